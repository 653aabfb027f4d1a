"""What lives for a moment only, at the moments that can be a rank's peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, maximum, minimum, where
from primus_lint.ledger.activations.attention import flydsl, sinks
from primus_lint.ledger.activations.experts import rows
from primus_lint.ledger.activations.kind import recipe
from primus_lint.ledger.architecture import architecture
from primus_lint.ledger.lora import enabled

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.sizes import Sizes


MIB = 1 << 20
SPLIT = ("zb-h1", "zb-h2", "zb-heuristic", "zbv", "v-half", "v-min", "dualpipe", "dualpipev")


def backward_bytes(sizes: Sizes, kind: Kind, mlp_kept: Any) -> Any:
    """What one layer's backward needs beyond all kept tensors, at its worst moment.

    MLP first: the incoming gradient; then either its gathered copy with the gradient of fc2's input, or, once fc2's
    input is gone, the gradient of fc1's output. A mixture of experts has both sides of the reverse dispatch. By the
    time of the attention the MLP's kept tensors (`mlp_kept`) are gone: gradients of output, q, k, v and the kernel's
    scratch. Weight gradients that are not added in place exist besides.
    """
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    gathered = S * h * act
    if kind.moe:
        g = sizes.g // sizes.etp
        routed = rows(sizes) * act
        inner = maximum(2 * routed * h, maximum(routed * (h + g), routed * g * sizes.fc1))
    else:
        elements = S * (sizes.f // sizes.tp) * act
        inner = maximum(gathered + elements, elements * sizes.fc1)
    qk, kv = head_dimensions(sizes)
    attention = gathered + S * (2 * sizes.Aq * qk + sizes.Aq * sizes.dv + kv * (qk + sizes.dv)) * act
    attention = attention + attention_workspace(sizes)
    out = T * h * act + maximum(inner, attention - mlp_kept) + gemm_workspace(sizes)
    return out + weight_gradient_bytes(sizes, kind)


def weight_gradient_bytes(sizes: Sizes, kind: Kind) -> Any:
    """The largest weight gradient of a layer that is made before it is added to the buffer.

    Nothing where the product accumulates in place. Turbo's FP8 products do so for per-tensor scaling alone, the legacy
    experts never; grouped products make the gradients of all local experts at once.
    """
    run = sizes.run
    moe = run.model.moe
    if enabled(run):
        return 0  # frozen; those of adapters are small
    if kind.moe:
        assert moe is not None
        at_once = sizes.local_experts if moe.grouped_gemm and run.kernels.implementation != "local" else 1
        weight = at_once * sizes.fc1 * (sizes.g // sizes.etp) * (moe.latent_size or sizes.h) * sizes.act
        legacy, turbo = moe.grouped_gemm and moe.legacy_grouped_gemm, run.kernels.turbo_grouped_gemm
    else:
        weight = sizes.fc1 * (sizes.f // sizes.tp) * sizes.h * sizes.act
        legacy, turbo = False, run.kernels.turbo_gemm
    blockwise = turbo and kind.low and recipe(run) not in ("delayed", "tensorwise")
    fused = run.optimizer.gradient_accumulation_fusion and not legacy and not blockwise
    return 0 * weight if fused else weight


def head_dimensions(sizes: Sizes) -> tuple[Any, Any]:
    """Width of a query and key head, and number of key/value heads of a rank (as many as query heads under MLA)."""
    mla = sizes.run.model.mla
    if mla is not None:
        return mla.qk_head_dim + mla.qk_pos_emb_head_dim, sizes.Aq
    return sizes.d, sizes.kq


def gemm_workspace(sizes: Sizes) -> int:
    """Turbo takes the workspace of a hipBLASLt call from the allocator, for the moment of the call."""
    run = sizes.run
    if not run.kernels.turbo_gemm:
        return 0
    return 64 * MIB if architecture(run.target.gpu, run.kernels.vendor) == "gfx950" else 128 * MIB


def attention_workspace(sizes: Sizes) -> Any:
    """Scratch of the attention backward: an fp32 accumulator of dq, and of the row sums (flash-attention, cuDNN, CK).

    CK also repeats dk and dv to all heads under grouped queries, and in deterministic runs has one accumulator per
    block of the sequence. Turbo's FlyDSL kernels have one in bf16 per band, up to 16 GiB, and fp32 dk.
    """
    run = sizes.run
    rows_of_heads = sizes.S * sizes.Aq
    if run.kernels.turbo_attention and flydsl(sizes):
        bands = ceil_div(sizes.seq // sizes.cp, 128 if sizes.d == 128 else 256)
        banded = (
            minimum(bands * rows_of_heads * sizes.d * 2, 16 << 30)
            + rows_of_heads * 4
            + 4 * sizes.S * sizes.kq * sizes.d
        )
        return where(sizes.cp > 1, banded, _accumulators(sizes)) if sinks(run) else banded
    return _accumulators(sizes)


def _accumulators(sizes: Sizes) -> Any:
    run = sizes.run
    rows_of_heads = sizes.S * sizes.Aq
    qk, _ = head_dimensions(sizes)
    accumulators: Any = 1
    if run.kernels.vendor == "rocm" and run.args.get("deterministic_mode") and not run.kernels.turbo_attention:
        accumulators = ceil_div(sizes.seq // sizes.cp, 128 if qk <= 128 else 64)
    out = rows_of_heads * (accumulators * qk * 4 + 4)
    if run.kernels.vendor == "rocm" and sizes.k < sizes.A:
        out = out + rows_of_heads * (qk + sizes.dv) * 2
    return out


def pending_bytes(sizes: Sizes, chunk: Chunk) -> Any:
    """What waits for the delayed weight gradient of a micro-batch: input and output gradient of every linear layer
    (TransformerEngine clones both)."""
    run = sizes.run
    if run.schedule.kind not in SPLIT:
        return 0
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    attention = T * 2 * h + S * (2 * sizes.Aq * sizes.d + 2 * sizes.kq * sizes.d)
    moe = sum(run.model.is_moe_layer(layer) for layer in chunk.layers)
    dense = len(chunk.layers) - moe
    total: Any = len(chunk.layers) * attention
    if dense:
        total = total + dense * (2 * T * h + S * (1 + sizes.fc1) * (sizes.f // sizes.tp))
    if moe:
        total = total + moe * rows(sizes) * (2 * h + (1 + sizes.fc1) * (sizes.g // sizes.etp))
    return total * act


def batch_bytes(sizes: Sizes) -> Any:
    """The micro-batch on the first and last stage: tokens, labels and positions (int64), loss mask (fp32), and the
    attention mask that the data loader makes (bytes, sequence x sequence) unless told not to."""
    rows = sizes.mbs * sizes.seq
    out = rows * (8 + 8 + 8 + 4)
    if sizes.run.args.get("create_attention_mask_in_dataloader", True):
        out = out + rows * sizes.seq
    return out


def pipeline_bytes(sizes: Sizes) -> Any:
    """Tensors in transfer between stages: the next input and the gradient that is being sent or received."""
    if sizes.pp == 1:
        return 0
    return (3 if sizes.vpp > 1 else 2) * stage_input_bytes(sizes)


def stage_input_bytes(sizes: Sizes) -> Any:
    """What one stage sends to the next of a micro-batch."""
    return sizes.T * sizes.h * (4 if sizes.run.precision.fp32_residual else sizes.act)


def main_gradient_bytes(sizes: Sizes, owned: Any) -> Any:
    """fp32 gradients of the owned parameters, made when the gradients are not fp32; they stay until the next iteration
    clears them, so they count in the steady state but not at the peak of a backward."""
    optimizer = sizes.run.optimizer
    low = optimizer.main_grads_dtype != "fp32" or optimizer.sharding == "megatron-fsdp"  # taken as they are
    if sizes.grad == 4 or (optimizer.precision_aware and low):
        return 0 * owned
    return 4 * owned


def optimizer_step_bytes(sizes: Sizes, owned: Any) -> Any:
    """Moments that are not fp32 are raised to it for a whole parameter group inside the fused Adam."""
    optimizer = sizes.run.optimizer
    out: Any = 0 * owned
    if optimizer.precision_aware:
        low = (optimizer.exp_avg_dtype != "fp32") + (optimizer.exp_avg_sq_dtype != "fp32")
        out = out + 4 * low * owned
    return out
