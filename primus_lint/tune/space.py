"""The space that the tuner looks at: structures times broadcast axes.

A structure fixes what formulas cannot broadcast (pipeline and virtual stages, layer split, recompute kind); inside it
the degrees, the micro-batch and the number of recomputed layers are axes. World size, global batch, sequence length
and the model never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.formula import round_up
from primus_lint.rules.functions import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Run

TP = "tensor_model_parallel_size"
PP = "pipeline_model_parallel_size"
CP = "context_parallel_size"
EP = "expert_model_parallel_size"
ETP = "expert_tensor_parallel_size"
MBS = "micro_batch_size"
SPLIT_KEYS = (
    "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage",
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
)
RECOMPUTE_KEYS = ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules")
AXES = (TP, CP, EP, ETP, MBS, "recompute_num_layers")
# Every key that the search may change. All are of class safe (design 4.2): same mathematics up to reduction order.
TUNED = (
    TP, PP, CP, EP, ETP, MBS, *SPLIT_KEYS, *RECOMPUTE_KEYS, "recompute_layer_ids", "sequence_parallel",
    "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "gradient_accumulation_fusion",
)  # fmt: skip


class Structure(NamedTuple):
    """Keys that are the same for a whole grid, and the grid's axes (lists of values, crossed)."""

    keys: dict[str, Any]
    axes: dict[str, list[Any]]


class Pins(NamedTuple):
    """Keys that must keep their value."""

    keys: frozenset[str]

    def allows(self, *keys: str) -> bool:
        return not any(key in self.keys for key in keys)


def structures(run: Run, given: dict[str, Any], pins: Pins) -> Iterator[Structure]:
    """Every structure of the space of a recipe at its world size. `given` are its arguments as asked for."""
    pins = Pins(pins.keys | checkpoint_pins(given))
    axes = degree_axes(run, given, pins)
    for split in splits(run, given, pins):
        pp, per_chunk = split[PP], _layers_per_chunk(split, run)
        for recompute in recomputes(run, given, pins, per_chunk):
            for overlap in overlaps(given, pins):
                crossed = dict(axes)
                count = recompute.get("recompute_num_layers")
                keys = {**split, **{k: v for k, v in recompute.items() if k != "recompute_num_layers"}, **overlap}
                if isinstance(count, list):
                    crossed["recompute_num_layers"] = count
                elif "recompute_num_layers" in recompute:
                    keys["recompute_num_layers"] = count
                keys[PP] = pp
                yield Structure(keys, crossed)


def degree_axes(run: Run, given: dict[str, Any], pins: Pins) -> dict[str, list[Any]]:
    """Values of the broadcast axes: divisors of what they must divide, the current value always among them."""
    world = int(run.target.world_size or 0)
    per_node = run.target.gpus_per_node
    heads = run.model.num_attention_heads
    tps = [d for d in divisors(heads) if d <= min(per_node, world) and world % d == 0]
    if given.get("load"):
        tps = [tp for tp in tps if checkpoint_opens(run, tp)]
    axes = {
        TP: _axis(TP, tps, run.parallel.tp, pins),
        CP: _axis(CP, [1, 2, 4, 8] if run.batch.seq_length >= 8192 else [1], run.parallel.cp, pins),
    }
    moe = run.model.moe
    if moe is not None:
        eps = [d for d in divisors(moe.num_experts) if d <= world and world % d == 0]
        axes[EP] = _axis(EP, eps, run.parallel.ep, pins)
        axes[ETP] = _axis(ETP, [1], run.parallel.etp, pins)
    batch = int(run.batch.global_batch_size or 0)
    sizes = [size for size in (1, 2, 3, 4, 6, 8, 12, 16) if batch % size == 0]
    if moe is not None and (moe.capacity_factor is not None or moe.aux_loss):
        sizes = []  # the micro-batch is part of what is trained (design 4.2: unsafe)
    axes[MBS] = _axis(MBS, sizes, run.batch.micro_batch_size, pins)
    return axes


def checkpoint_opens(run: Run, tp: int) -> bool:
    """Whether a checkpoint of the recipe opens at another tensor-parallel size: the padded vocabulary must not change."""
    vocabulary = run.model.vocab_size
    if vocabulary is None:
        return bool(tp == run.parallel.tp)
    divisor = run.model.vocab_divisor
    now, then = round_up(vocabulary, divisor * run.parallel.tp), round_up(vocabulary, divisor * tp)
    return bool(now == then)


def checkpoint_pins(given: dict[str, Any]) -> frozenset[str]:
    """Keys that a checkpoint to be loaded fixes: all degrees in the old format, which cannot be resharded."""
    if given.get("load") and given.get("ckpt_format") == "torch":
        return frozenset((TP, PP, EP, ETP, *SPLIT_KEYS, "use_distributed_optimizer"))
    return frozenset()


def _axis(key: str, values: list[Any], current: Any, pins: Pins) -> list[Any]:
    if not pins.allows(key):
        return [current]
    return sorted({*values, current})


def splits(run: Run, given: dict[str, Any], pins: Pins) -> Iterator[dict[str, Any]]:
    """Pipeline sizes with their virtual stages and layer splits; first the recipe's own."""
    own = {key: given.get(key) for key in SPLIT_KEYS}
    yield {PP: run.parallel.pp, **own}
    if not pins.allows(PP, *SPLIT_KEYS):
        return
    layers, world = run.model.num_layers, int(run.target.world_size or 0)
    empty = dict.fromkeys(SPLIT_KEYS)
    for pp in divisors(world):
        if pp > layers or pp > 64:
            continue
        if layers % pp == 0:
            each = layers // pp
            for vpp in [v for v in divisors(each) if v <= 8] if pp > 1 else [1]:
                split = {PP: pp, **empty, "num_virtual_stages_per_pipeline_rank": vpp if vpp > 1 else None}
                if split != {PP: run.parallel.pp, **own}:
                    yield split
        elif pp > 1:
            yield from uneven(pp, layers, empty, own, run)


def uneven(pp: int, layers: int, empty: dict[str, Any], own: dict[str, Any], run: Run) -> Iterator[dict[str, Any]]:
    """Splits with shorter end stages where the layers do not divide: the ends also hold embedding and head."""
    if pp == 1:
        return
    for each in {-(-layers // pp), -(-layers // pp) + 1}:
        rest = layers - each * (pp - 1)
        if 0 < rest <= each:
            split = {PP: pp, **empty, "decoder_last_pipeline_num_layers": rest}
            if split != {PP: run.parallel.pp, **own}:
                yield split
        if pp > 2:
            ends = layers - each * (pp - 2)
            if 2 <= ends <= 2 * each:
                split = {
                    PP: pp, **empty,
                    "decoder_first_pipeline_num_layers": ends - ends // 2,
                    "decoder_last_pipeline_num_layers": ends // 2,
                }  # fmt: skip
                if split != {PP: run.parallel.pp, **own}:
                    yield split


def _layers_per_chunk(split: dict[str, Any], run: Run) -> int:
    """Most layers of a (virtual) stage of a split, about: what `block` recomputation counts in."""
    vpp = split["num_virtual_stages_per_pipeline_rank"] or 1
    return max(-(-run.model.num_layers // int(split[PP] * vpp)), 1)


def recomputes(run: Run, given: dict[str, Any], pins: Pins, per_chunk: int) -> Iterator[dict[str, Any]]:
    """Ways to recompute; first the recipe's own. `block` counts are an axis."""
    own = {key: given.get(key) for key in (*RECOMPUTE_KEYS, "recompute_layer_ids")}
    yield own
    if not pins.allows(*RECOMPUTE_KEYS):
        return
    none = {**dict.fromkeys(own), "recompute_granularity": None}
    if own != none:
        yield none
    full = {**none, "recompute_granularity": "full"}
    yield {**full, "recompute_method": "uniform", "recompute_num_layers": 1}
    counts = sorted({n for n in (1, 2, 3, 4, 6, 8, 12, 16, per_chunk // 2, per_chunk - 1) if 0 < n < per_chunk})
    if counts:
        yield {**full, "recompute_method": "block", "recompute_num_layers": counts}
    if run.args.get("cuda_graph_impl") in (None, "none"):
        modules = [["mlp"]] if run.model.moe is None else [["moe_act"], ["moe"]]
        if run.model.mla is not None:
            modules.append(["mla_up_proj", *modules[0]])
        for names in modules:
            yield {**none, "recompute_granularity": "selective", "recompute_modules": names}


def overlaps(given: dict[str, Any], pins: Pins) -> Iterator[dict[str, Any]]:
    """Sharding and overlap of the optimizer: as they are, and all on."""
    yield {}
    keys = ("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather")
    if given.get("use_torch_fsdp2") or given.get("use_megatron_fsdp") or not pins.allows(*keys):
        return
    if (given.get("optimizer") or "adam") not in ("adam", "sgd"):
        return
    if not all(given.get(key) for key in keys):
        yield dict.fromkeys(keys, True)
