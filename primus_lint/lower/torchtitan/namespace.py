"""The namespace of a TorchTitan recipe: dotted configuration keys, and the short symbols derived from them.

`training.seq_len` and its like are the keys of the JobConfig; `model.FIELD` are the arguments of the model's flavor
with the overrides on top. The symbols follow torchtitan v0.2.2 (distributed/parallel_dims.py, train.py,
distributed/pipeline_parallel.py); where b5bcd76c counts differently, it says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div
from primus_lint.lower.megatron.namespace import Namespace
from primus_lint.lower.torchtitan.models import WITHOUT_PIPELINING, WITHOUT_VALIDATION

if TYPE_CHECKING:
    from collections.abc import Callable

SYMBOLS: dict[str, Callable[[Any], Any]] = {}
KEYS_OF: dict[str, tuple[str, ...]] = {}

_P = "parallelism."
_REPLICATE, _SHARD = _P + "data_parallel_replicate_degree", _P + "data_parallel_shard_degree"
_TP, _CP, _PP = _P + "tensor_parallel_degree", _P + "context_parallel_degree", _P + "pipeline_parallel_degree"
_EP, _ETP = _P + "expert_parallel_degree", _P + "expert_tensor_parallel_degree"
_SCHEDULE, _PER_STAGE = _P + "pipeline_parallel_schedule", _P + "pipeline_parallel_layers_per_stage"
_FIRST, _LAST = _P + "pipeline_parallel_first_stage_less_layers", _P + "pipeline_parallel_last_stage_less_layers"
_PARTS, _MICRO = _P + "module_fqns_per_model_part", _P + "pipeline_parallel_microbatch_size"
_GRID = ("world_size", _SHARD, _REPLICATE, _CP, _TP, _PP)
_FLAVOR = ("model.flavor", "model.name")
_STAGES = (_PER_STAGE, _PP, _SCHEDULE, _FIRST, _LAST)

SINGLE_STAGE = ("1f1b", "gpipe", "pipelineschedulesingle")
MULTI_STAGE = (
    "interleaved1f1b", "loopedbfs", "interleavedzerobubble", "zbvzerobubble", "dualpipev", "pipelineschedulemulti"
)  # fmt: skip
V_SHAPED = ("zbvzerobubble", "dualpipev")


class TitanNamespace(Namespace):
    """Dotted keys and symbols of one TorchTitan recipe."""

    __slots__ = ()
    symbols = SYMBOLS
    keys_of = KEYS_OF


def symbol(*keys: str) -> Callable[[Callable[[Namespace], Any]], Callable[[Namespace], Any]]:
    """Register a symbol; `keys` are the configuration keys that it comes from, the one to point at first."""

    def register(function: Callable[[Namespace], Any]) -> Callable[[Namespace], Any]:
        SYMBOLS[function.__name__] = function
        KEYS_OF[function.__name__] = keys
        return function

    return register


def _degree(name: str, key: str) -> None:
    SYMBOLS[name] = lambda v: v[key]
    KEYS_OF[name] = (key,)


for _name, _key in (("dp_replicate", _REPLICATE), ("tp", _TP), ("cp", _CP), ("pp", _PP), ("ep", _EP)):
    _degree(_name, _key)


@symbol(_ETP)
def etp(v: Namespace) -> Any:
    """Tensor parallelism inside the experts; b5bcd76c has none."""
    return 1 if v[_ETP] is None else v[_ETP]


@symbol(_REPLICATE, _CP, _TP, _PP)
def rest(v: Namespace) -> Any:
    """Ranks of everything but sharded data parallelism."""
    return v["dp_replicate"] * v["cp"] * v["tp"] * v["pp"]


@symbol("world_size", _SHARD, _REPLICATE, _CP, _TP, _PP)
def dp_shard(v: Namespace) -> Any:
    """Sharded data parallelism; -1 takes the ranks that are left (rounded down), unknown without a world size."""
    given = v[_SHARD]
    if given >= 0:
        return given
    return None if v["world_size"] is None else v["world_size"] // v["rest"]


@symbol(*_GRID)
def grid(v: Namespace) -> Any:
    """Ranks that the degrees multiply to."""
    return v["rest"] * v["dp_shard"]


@symbol(*_GRID)
def batch_degree(v: Namespace) -> Any:
    """Ranks that the batch is divided over."""
    return v["dp_replicate"] * v["dp_shard"]


@symbol(*_GRID)
def fsdp(v: Namespace) -> Any:
    """Ranks that the parameters are sharded over; context parallelism shards them as well."""
    return v["dp_shard"] * v["cp"]


@symbol(_EP, _ETP, *_GRID)
def expert_fsdp(v: Namespace) -> Any:
    """Ranks that the parameters of a rank's experts are sharded over."""
    return v["fsdp"] * v["tp"] // (v["ep"] * v["etp"])


@symbol("training.local_batch_size")
def lbs(v: Namespace) -> Any:
    return v["training.local_batch_size"]


@symbol("training.global_batch_size", "training.local_batch_size", *_GRID)
def gbs(v: Namespace) -> Any:
    """Global batch in sequences: local batch times the batch degree when negative."""
    given = v["training.global_batch_size"]
    return given if given >= 0 else v["lbs"] * v["batch_degree"]


@symbol("training.seq_len", "training.max_context_length")
def seq(v: Namespace) -> Any:
    return v["training.max_context_length"] if v["training.seq_len"] is None else v["training.seq_len"]


@symbol("training.local_batch_size", _MICRO, _P + "num_pp_microbatches")
def num_microbatches(v: Namespace) -> Any:
    """Pipeline micro-batches a rank and forward-backward pass."""
    if v[_MICRO] is None:
        return v["parallelism.num_pp_microbatches"]
    return v["lbs"] // v[_MICRO]


@symbol("training.seq_len", "training.max_context_length", _TP, _CP)
def seq_multiple(v: Namespace) -> Any:
    """What the tokens of a micro-batch must be a multiple of: v0.2.2 doubles the context-parallel size even when it
    is 1 (ParallelDims.seq_len_divisor); b5bcd76c only above 1, and tp only under sequence parallelism."""
    if v["parallelism.enable_sequence_parallel"] is None:
        return v["tp"] * 2 * v["cp"]
    return (v["tp"] if v["parallelism.enable_sequence_parallel"] else 1) * (2 * v["cp"] if v["cp"] > 1 else 1)


@symbol(*_FLAVOR)
def architecture(v: Namespace) -> Any:
    """Name of the architecture; fine-tuning variants count as their base."""
    from primus_lint.lower.torchtitan.models import ALIASES

    return ALIASES.get(v["model.name"], v["model.name"])


@symbol("model.n_layers", *_FLAVOR)
def layers(v: Namespace) -> Any:
    return v["model.n_layers"]


@symbol("model.n_heads", *_FLAVOR)
def heads(v: Namespace) -> Any:
    return v["model.n_heads"]


@symbol("model.n_kv_heads", *_FLAVOR)
def groups(v: Namespace) -> Any:
    """Key and value heads: the heads when unset."""
    return v["heads"] if v.get("model.n_kv_heads") is None else v["model.n_kv_heads"]


@symbol("model.moe_args.num_experts", *_FLAVOR)
def experts(v: Namespace) -> Any:
    """Experts of a layer; 0 for a dense model, unknown for an unknown one."""
    if v.get("model.moe_enabled") is False or ("model.n_layers" in v and "model.moe_args.num_experts" not in v):
        return 0
    return v["model.moe_args.num_experts"]


@symbol(_SCHEDULE)
def schedule(v: Namespace) -> Any:
    """The schedule's name as it is looked up: case does not matter."""
    return v[_SCHEDULE].lower()


@symbol(_SCHEDULE)
def single_stage(v: Namespace) -> bool:
    """Whether the schedule holds one stage a rank."""
    return v["schedule"] in SINGLE_STAGE


@symbol(_SCHEDULE)
def schedule_known(v: Namespace) -> bool:
    return v["schedule"] in SINGLE_STAGE or v["schedule"] in MULTI_STAGE


@symbol(_SCHEDULE)
def v_shaped(v: Namespace) -> bool:
    """Whether the schedule folds the stages into a V: two a rank."""
    return v["schedule"] in V_SHAPED


@symbol("model.n_layers", _FIRST, _LAST, *_FLAVOR)
def weighed_layers(v: Namespace) -> Any:
    """Layers with the weights of embedding and output, as the split counts them."""
    return v["layers"] + v[_FIRST] + v[_LAST]


@symbol(*_STAGES, *_FLAVOR)
def num_stages(v: Namespace) -> Any:
    """Stages of the whole pipeline: from the layers per stage, else one or two a rank by the schedule."""
    if v[_PARTS] is not None:
        return len(v[_PARTS])
    if v[_PER_STAGE] is None:
        return v["pp"] * (1 if v["single_stage"] else 2)
    return ceil_div(v["weighed_layers"], v[_PER_STAGE])


@symbol(*_STAGES, *_FLAVOR)
def layers_each(v: Namespace) -> Any:
    """Weighed layers that every stage has at least."""
    return v["weighed_layers"] // v["num_stages"]


@symbol(*_STAGES, *_FLAVOR)
def legal_layers_per_stage(v: Namespace) -> list[int]:
    """Layers per stage that split into as many stages as the schedule wants."""
    total, pp, one = v["weighed_layers"], v["pp"], v["single_stage"]
    counts = [(each, ceil_div(total, each)) for each in range(1, min(total, 1000) + 1)]
    return [each for each, stages in counts if stages % pp == 0 and (stages == pp if one else stages >= 2 * pp)]


@symbol("compile.enable", "compile.components")
def compiled(v: Namespace) -> bool:
    """Whether the model is compiled."""
    return bool(v["compile.enable"]) and "model" in v["compile.components"]


@symbol("model.converters")
def converters(v: Namespace) -> list[str]:
    return list(v["model.converters"] or ())


@symbol("model.converters")
def quantized(v: Namespace) -> list[str]:
    """The kinds of quantization that the converters bring: "float8", "mx"."""
    return sorted({name.rpartition(".")[2] for name in v["converters"] if "quantize" in name})


@symbol("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", *_FLAVOR)
def block_containers(v: Namespace) -> list[str]:
    """Names of the modules of the blocks that are no linear layers (what selective recomputation cannot match)."""
    names = ["attention", "attention.inner_attention", "attention_norm", "ffn_norm"]
    if v["architecture"] not in ("gpt_oss",) and not (v["architecture"] == "qwen3" and v["experts"]):
        names.append("feed_forward")
    if v["experts"]:
        names += ["moe", "moe.experts", "moe.router", "moe.reorderer"]
        if v.get("model.moe_args.num_shared_experts"):
            names.append("moe.shared_experts")
    return [f"layers.{index}.{name}" for index in range(v["layers"]) for name in ("", *names)]


@symbol(*_FLAVOR)
def can_pipeline(v: Namespace) -> bool:
    return v["architecture"] not in WITHOUT_PIPELINING


@symbol(*_FLAVOR)
def can_validate(v: Namespace) -> bool:
    return v["architecture"] not in WITHOUT_VALIDATION
