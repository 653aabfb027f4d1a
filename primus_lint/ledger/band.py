"""What the recipe does not settle: named uncertainties of a rank's steady and peak bytes, each with its reason.

Each entry is a number of bytes below and above the account. They are added up: a band is meant to be trusted, not to be
narrow. Widths are physical (a tensor, a workspace, an alternative kernel) or seen in ../shared/goldens, and say which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum
from primus_lint.ledger import allocator, graphs, persistent, sharding, transients
from primus_lint.ledger.activations.attention import DETERMINISTIC_FLASH, backend, core, deterministic, scores
from primus_lint.ledger.activations.tensors import total
from primus_lint.ledger.architecture import architecture
from primus_lint.ledger.inflight import most
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.inflight import Loaded
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.stage_activations import Activations
    from primus_lint.ledger.states import Stage

MIB = 1 << 20
HOT_PERCENT = 25  # goldens, 60 runs on today's software: 0 to 23 % more in the expert tensors than balanced (3 more)
COLD_PERCENT = 5
UNEVEN_BLOCKS = 2  # kept tensors of a layer that lie in a block 1 MiB larger (goldens: 0 to 2 a layer)
COMPILES_LEAN = 2009  # PyTorch, major*1000 + minor: that of the long-term image whose runs show no copies
COMPILE_COPIES = 10  # quarter copies of the logits in fp32: 1.5 to 2.5 copies in the first step (goldens, 8 runs)


class Doubt(NamedTuple):
    """Bytes below and above the account, at the end of a step and at the peak. `aside`: not part of the device's band:
    nothing more is reserved for it, or only software does it that is older than today's."""

    steady_low: Any
    steady_high: Any
    peak_low: Any
    peak_high: Any
    reason: str
    aside: bool = False


def expert_load(routed_bytes: Any) -> Doubt:
    """Of what grows with the rows that dropless experts receive: the router decides how many."""
    text = f"dropless experts: {COLD_PERCENT} % fewer to {HOT_PERCENT} % more rows than balanced"
    return Doubt(0, 0, routed_bytes * COLD_PERCENT // 100, routed_bytes * HOT_PERCENT // 100, text)


def doubts(
    sizes: Sizes, candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...], stage: Stage, activations: Activations,
    moments: Any, dummies: Any,
) -> dict[str, Doubt]:  # fmt: skip
    """The uncertainties of a rank whose micro-batches in flight are one of `candidates`; `moments`: bytes of the
    optimizer's moments; `dummies`: of dummy weight gradients."""
    run = sizes.run
    out: dict[str, Doubt] = {}
    small = persistent.SMALL_BYTES
    out["small tensors"] = Doubt(small, small, small, small, "counters, scales and seeds", True)
    if run.version == "d98e8a64" and sizes.m is not None and any(chunk.embedding or chunk.loss for chunk in chunks):
        held = sizes.m * transients.batch_bytes(sizes)
        # the rerun state machine saved each batch; in between its tensors were moved to the device in place
        text = "ranks that load data kept the batches of a step from April to July 2026 (Megatron-LM 4103 to 5635)"
        out["batches of a step"] = Doubt(0, held, 0, held, text, True)
    if run.args.get("te") is None and (not is_scalar(dummies) or dummies):
        text = "TransformerEngine before 2.3 keeps no dummy weight gradients"
        out["dummy weight gradients"] = Doubt(dummies, 0, dummies, 0, text, True)
    other = workspace_alternative(sizes, chunks)
    if not is_scalar(other) or other:
        text = "PyTorch's BLAS workspace on Blackwell is 8 MiB in some builds and 32 MiB in others"
        out["BLAS workspaces"] = Doubt(
            maximum(-other, 0), maximum(other, 0), maximum(-other, 0), maximum(other, 0), text
        )
    if sizes.pp > 1:
        text = "a stage input more or less in transfer when the peak comes; one fewer retained between steps by virtual stages"
        each = transients.stage_input_bytes(sizes)
        out["transfers"] = Doubt(each if sizes.vpp > 1 else 0, 0, each, each, text)
    if run.optimizer.sharding == "megatron-fsdp" and sharding.gathers_weights(sizes):
        unit = sharding.largest_unit(sizes, chunks) * (sizes.e + sizes.grad)
        ends = sharding.outside_units(stage) * sizes.e if run.args.get("log_params_norm") else 0
        text = "Megatron-FSDP: a unit more or less whole at once; what lies outside the units stays so since May 2026"
        out["gathered units"] = Doubt(ends, ends, unit, unit, text)
        stored = sum(item.gradients for item in (sharding.holding(sizes, grid) for grid in stage.grids))
        if run.args.get("megatron_fsdp_main_grads_dtype") == "auto" and sizes.grad == 2:
            more = stored * 2
            text = "Megatron-FSDP up to Megatron-Core 0.18: gradients in fp32, and no copies of them for the optimizer"
            out["gradients of Megatron-FSDP"] = Doubt(more, 0, 0, more, text, True)
    if run.optimizer.sharding == "fsdp2":
        unit = sharding.largest_unit(sizes, chunks) * sizes.act
        text = "torch FSDP2: the unit gathered ahead and the gradient of the unit before need not be there when the peak comes"
        out["gathered units"] = Doubt(0, 0, 2 * unit, 0, text)
    moe = run.model.moe
    if moe is not None and moe.capacity_factor is None and run.kernels.sync_free_moe_stage < 3:
        experts = [activations.expert_bytes(chunk) for chunk in chunks]
        at_work: Any = 0
        for _, one in experts:
            at_work = maximum(at_work, one)
        routed = most(candidates, [kept for kept, _ in experts]) + at_work
        out["expert load"] = expert_load(routed)
    more = unfused_more(sizes)
    if more is not None:
        text = "a flash-attention older than 2.4.1 is not deterministic: plain matrix products instead"
        out["unfused attention"] = Doubt(0, 0, 0, _layers(candidates, chunks) * more, text, True)
    copies = compilation_bytes(sizes, chunks)
    if run.args.get("torch") is None and (not is_scalar(copies) or copies):
        text = "compiling the fused loss made 1.5 to 2.5 more copies in the first step, before the moments are there"
        out["compilation of the loss"] = Doubt(0, 0, 0, maximum(copies - moments, 0), text, True)
    if run.recompute.fine_grained_offload:
        layer: Any = 0
        for chunk in chunks:
            layer = maximum(layer, activations.offloaded_bytes(chunk))
        text = "half a layer more or less still on the device"
        out["offloading"] = Doubt(0, 0, layer // 2, layer // 2, text)
    if graphs.scope(run) is not None:
        pooled = most(candidates, [activations.pool_bytes(chunk) for chunk in chunks])
        each = graphs.each_bytes(sizes)
        text = "buffers of one graph more or less; a tenth of what the graphs keep"
        out["CUDA graphs"] = Doubt(each, each, each + pooled // 10, each + pooled // 10, text)
    return out


def compilation_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """What compiling the `native` fused loss took in the first step in older builds of PyTorch (2.5 copies of the logits in
    fp32; the newest runs of the goldens show none)."""
    stated = sizes.run.args.get("torch")
    if sizes.run.kernels.cross_entropy_fusion != "native" or not any(chunk.loss for chunk in chunks):
        return 0
    return 0 if stated is not None and stated >= COMPILES_LEAN else sizes.S * (sizes.V // sizes.tp) * COMPILE_COPIES


def block_doubt(
    sizes: Sizes, candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...], state_tensors: int, waste: int
) -> Doubt | None:
    """Of one recipe: where the allocator puts its tensors. None with expandable segments.

    `state_tensors`: tensors of the large pool among main parameters and moments; `waste`: what their blocks hold beyond
    them in the account. A block is up to 1 MiB larger than its tensor, evenly spread: two standard deviations of the sum.
    """
    if allocator.expandable(sizes):
        return None
    spread = int(2 * MIB * (state_tensors / 12) ** 0.5)
    layers = _layers(candidates, chunks) if sizes.run.recompute.granularity != "full" else 0
    below = max(min(spread, waste), 0)
    text = "blocks of the caching allocator are up to 1 MiB larger than their tensors"
    return Doubt(below, spread, below, spread + layers * UNEVEN_BLOCKS * MIB, text, True)


def _layers(candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...]) -> Any:
    """The most layers whose tensors are kept at once."""
    return most(candidates, [len(chunk.layers) + len(chunk.mtp) for chunk in chunks])


def workspace_alternative(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """What the other default of PyTorch's BLAS workspaces would add (or, negative, save); 0 where it is settled."""
    run = sizes.run
    if run.args.get("torch") is not None and not deterministic(run):
        return 0
    if architecture(run.target.gpu, run.kernels.vendor) != "sm100" or run.args.get("env_CUBLAS_WORKSPACE_CONFIG"):
        return 0
    count = persistent.torch_workspaces(sizes, any(chunk.loss for chunk in chunks))
    other = persistent.BEFORE_HOPPER_BYTES if deterministic(run) else 32 * MIB
    return count * (other - persistent.torch_workspace_bytes(sizes))


def unfused_more(sizes: Sizes) -> Any:
    """What unfused attention would keep of a layer beyond flash-attention, where the stack may be too old for it."""
    run = sizes.run
    if backend(sizes) != "flash" or architecture(run.target.gpu, run.kernels.vendor) != "sm80":
        return None
    stated = run.args.get("flash_attn")
    if not deterministic(run) or run.kernels.attention_backend != "auto" or "core_attn" in run.recompute.modules:
        return None
    if run.recompute.granularity == "full" or (stated is not None and stated >= DETERMINISTIC_FLASH):
        return None
    q, kv = (sizes.S * heads * sizes.d * sizes.act for heads in (sizes.Aq, sizes.kq))
    return maximum(total(scores(sizes, q, q)) - total(core(sizes, q, kv, kv, q)), 0)
