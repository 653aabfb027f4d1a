"""LoRA: frozen base weights with low-rank adapters beside some linear layers, as Primus's `lora` section makes them.

An adapter is a pair of Megatron's own parallel linears, inputs -> dim -> outputs, both split over the tensor ranks. Frozen
weights lie outside the buffers and have no gradient and no optimizer state. A frozen linear layer keeps no input; where it
has an adapter, the adapter keeps it in bf16 (after dropout, with its mask), and its own hidden values. Held against the
real modules of Megatron-Core and TransformerEngine in tests/oracle for dense layers; read for experts.
Source: Primus `primus/backends/megatron/peft`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger.activations.experts import rows
from primus_lint.ledger.params import Param, Segment

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes

TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


def enabled(run: Run) -> bool:
    return bool(run.args.get("lora.enabled"))


def dimension(run: Run) -> Any:
    """Rank of the adapters: 32 when it is not given."""
    given = run.args.get("lora.dim")
    return 32 if given is None else given


def targets(run: Run) -> tuple[str, ...]:
    """Linear layers with adapters: all four when none are named."""
    return tuple(run.args.get("lora.target_modules") or TARGETS)


def abstain(run: Run) -> list[str]:
    """Which uses of LoRA have no account, and why."""
    if not enabled(run):
        return []
    dim, names = dimension(run), run.args.get("lora.target_modules")
    found = [
        ("on latent attention", run.model.mla is not None),
        ("with sharded weights (FSDP)", run.optimizer.sharding in ("fsdp2", "megatron-fsdp")),
        ("on weights stored in FP8", run.precision.fp8_param),
        ("in local layers", run.kernels.implementation == "local"),
        ("with MTP", run.model.mtp_num_layers > 0),
        ("with a dimension that is no positive number", not isinstance(dim, int) or dim < 1),
        ("on other modules than the four linear layers", not isinstance(names, list | type(None)) or bool(set(targets(run)) - set(TARGETS))),
    ]  # fmt: skip
    return [f"LoRA {what} is not modelled" for what, present in found if present]


def segments(sizes: Sizes, chunk: Chunk) -> list[Segment]:
    """The trainable parameters of a chunk: two a layer and target. Experts share one adapter a layer."""
    run, model = sizes.run, sizes.run.model
    rank, names = dimension(run), targets(run)
    out: list[Segment] = []
    for moe, layers in groupby(chunk.layers, model.is_moe_layer):
        found: list[Param] = []
        for name in TARGETS:
            if name not in names:
                continue
            for inputs, outputs, split, expert in shapes(sizes, name, moe):
                found.append(Param(f"{name}.linear_in", inputs * rank // split, expert))
                found.append(Param(f"{name}.linear_out", outputs * rank // split, expert))
        out.append(Segment("adapters", tuple(found), len(tuple(layers))))
    return out


def shapes(sizes: Sizes, name: str, moe: bool) -> list[tuple[Any, Any, Any, bool]]:
    """(inputs, outputs, ranks that split both, expert grid) of the linear layers of a name in a layer, whole model."""
    h, heads = sizes.h, sizes.A * sizes.d
    if name == "linear_qkv":
        return [(h, heads + 2 * sizes.k * sizes.d, sizes.tp, False)]
    if name == "linear_proj":
        return [(sizes.A * sizes.dv, h, sizes.tp, False)]
    widths: list[tuple[Any, Any, bool]] = [(sizes.f, sizes.tp, False)]
    if moe:
        widths = [(sizes.g, sizes.etp, True)] + ([(sizes.shared, sizes.tp, False)] if sizes.shared else [])
    if name == "linear_fc1":
        return [(h, sizes.fc1 * width, split, expert) for width, split, expert in widths]
    return [(width, h, split, expert) for width, split, expert in widths]


def keep(sizes: Sizes, kind: Kind, tensors: Tensors) -> Tensors:
    """The tensors of a layer with frozen weights and adapters, from those of the layer trained whole."""
    run, act, S, T, h = sizes.run, sizes.act, sizes.S, sizes.T, sizes.h
    names, dropout = (
        targets(run),
        bool(run.args.get("lora.dropout")) and run.args.get("lora.dropout_position") != "post",
    )
    rank = dimension(run)
    frozen = (
        "attention.norm_out", "attention.proj_in", "mlp.fc2_in", "shared.fc1_in", "shared.fc2_in", "experts.fc1_in",
        "experts.fc2_in",
    )  # fmt: skip
    out = {name: size for name, size in tensors.items() if name not in frozen}
    if not kind.moe:
        out.pop("mlp.norm_out")  # in a mixture the router keeps it

    def adapter(where_: str, tokens: Any, width: Any, shares: bool) -> None:
        """`shares`: the input is a tensor that something else keeps."""
        if dropout:
            out[f"{where_}.lora_in"] = tokens * width * (act + 1)
        elif not shares:
            out[f"{where_}.lora_in"] = tokens * width * act
        out[f"{where_}.lora_hidden"] = tokens * rank * act

    def normed(where_: str, norm_out: bool) -> None:
        """Behind a norm: its output, and gathered once more under sequence parallelism."""
        if norm_out:
            out[f"{where_}.norm_out"] = T * h * act
        adapter(f"{where_}.fc1" if where_ != "attention" else "attention.qkv", S, h, True)
        if not dropout:
            out[f"{where_}.gathered"] = where(sizes.sp, S * h * act, 0)

    if "linear_qkv" in names:
        normed("attention", True)
    if "linear_proj" in names:
        adapter("attention.proj", S, sizes.Aq * sizes.dv, True)
    if not kind.moe:
        if "linear_fc1" in names:
            normed("mlp", True)
        if "linear_fc2" in names:
            adapter("mlp.fc2", S, sizes.f // sizes.tp, False)
        return out
    moe = run.model.moe
    assert moe is not None
    routed = rows(sizes)
    if "linear_fc1" in names:
        adapter("experts.fc1", routed, moe.latent_size or h, False)
        if sizes.shared:
            normed("shared", False)
    if "linear_fc2" in names:
        adapter("experts.fc2", routed, sizes.g // sizes.etp, False)
        if sizes.shared:
            adapter("shared.fc2", S, sizes.shared // sizes.tp, False)
    return out
