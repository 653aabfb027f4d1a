"""Self-attention: tensors kept for backward by one layer and micro-batch.

TransformerEngine modules: LayerNormLinear keeps its input x, the norm's output and the row statistics; the fused
kernel keeps q, k, v, its output, the fp32 log-sum-exp and 16 bytes of RNG state; linear_proj keeps that output.
The local spec computes scores with plain matrix products: q, and k and v repeated to all heads, the fp32 softmax, its
bf16 copy and a causal mask. Source: TE 2.11 and megatron-core 0.16.1 run on fake tensors (tests/oracle).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where
from primus_lint.ledger.activations.norms import input_bytes, statistics_bytes
from primus_lint.ledger.activations.quantize import keeps_original, linear_input, quantized
from primus_lint.ledger.architecture import architecture

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes

RNG_BYTES = 16
DETERMINISTIC_FLASH = 2005  # major*1000 + minor of the flash-attention library; its 2.4.1 has a deterministic backward


def grouped_query(sizes: Sizes, kind: Kind) -> Tensors:
    """Attention with key/value groups, input norm included."""
    run = sizes.run
    act, S, T, h = sizes.act, sizes.S, sizes.T, sizes.h
    q = S * sizes.Aq * sizes.d * act
    kv = S * sizes.kq * sizes.d * act
    out: Tensors = {
        "attention.x": input_bytes(sizes, T, h),
        "attention.norm_out": linear_input(sizes, kind.low, T, h),
        "attention.norm_statistics": statistics_bytes(sizes, T),
    }
    if run.model.qk_layernorm:
        out["attention.q_before_norm"] = input_bytes(sizes, S * sizes.Aq, sizes.d)
        out["attention.k_before_norm"] = input_bytes(sizes, S * sizes.kq, sizes.d)
        out["attention.qk_norm_statistics"] = statistics_bytes(sizes, S * (sizes.Aq + sizes.kq))
    if run.model.position_embedding in ("rope", "yarn", "mrope") and not run.kernels.rope_fusion:
        out["attention.rope_tables"] = rope_tables(sizes, int(sizes.d * (run.args.get("rotary_percent") or 1.0)))
    out.update(core(sizes, q, kv, kv, q))
    if backend(sizes) == "local" and queries_are_copies(
        sizes
    ):  # v, unless repeated, is a view of the packed projection
        out["attention.packed"] = where(sizes.Aq == sizes.kq, q + kv, 0)
    if run.model.attention_output_gate:
        out["attention.gate"] = S * sizes.Aq * sizes.d * 4
        copied = kind.low and (not keeps_original(sizes) or run.kernels.turbo_gemm)
        out["attention.proj_in"] = linear_input(sizes, copied, S, sizes.Aq * sizes.dv)
    else:
        projection_copy(sizes, kind, out)
    return out


def queries_are_copies(sizes: Sizes) -> bool:
    """Whether queries and keys are tensors of their own, not views of the packed projection: rotated or normalised."""
    model = sizes.run.model
    return model.position_embedding in ("rope", "yarn", "mrope") or model.qk_layernorm


def rope_tables(sizes: Sizes, rotated: int) -> Any:
    """Unfused rotary positions: cosine and sine in the activation dtype, for q and for k, in every layer."""
    rows = sizes.seq // sizes.cp
    if sizes.run.model.position_embedding == "mrope":
        rows = rows * sizes.mbs
    return 4 * rows * rotated * sizes.act


def projection_copy(sizes: Sizes, kind: Kind, out: Tensors) -> None:
    """The one-byte copy that linear_proj keeps beside the attention output (delayed scaling, Turbo GEMM)."""
    if kind.low and (not keeps_original(sizes) or sizes.run.kernels.turbo_gemm):
        out["attention.proj_in"] = quantized(sizes, sizes.S, sizes.Aq * sizes.dv)


def backend(sizes: Sizes) -> str:
    """The attention kernel that runs: "local", "unfused", "flash", "fused" or "turbo".

    TransformerEngine's choice for `auto`: flash-attention before Hopper, cuDNN's fused kernel from Hopper on, except
    in deterministic runs on Blackwell, where the fused backward is refused. Where the stack names a flash-attention
    whose backward is not deterministic, such runs are left with plain matrix products. On ROCm the fused (CK) kernel.
    Environment variables (`NVTE_FLASH_ATTN`, `NVTE_FUSED_ATTN`) that switch kernels off count with `auto` alone. fp32 has
    plain matrix products alone.
    """
    run = sizes.run
    if run.kernels.implementation == "local":
        return "local"
    if run.kernels.turbo_attention:
        return "turbo"
    if sizes.act == 4:
        return "unfused"
    asked = run.kernels.attention_backend
    if asked != "auto":
        return "unfused" if asked == "local" else asked
    arch = architecture(run.target.gpu, run.kernels.vendor)
    off = [kind for kind in ("FLASH", "FUSED") if _variable(run, f"NVTE_{kind}_ATTN") == "0"]
    if off:  # what is left of the three
        return "unfused" if len(off) == 2 else "fused" if off == ["FLASH"] else "flash"
    if arch == "sm80":
        stated = run.args.get("flash_attn")
        old = stated is not None and stated < DETERMINISTIC_FLASH
        return "unfused" if old and deterministic(run) else "flash"
    return "flash" if arch == "sm100" and deterministic(run) else "fused"


def deterministic(run: Run) -> bool:
    """Whether the recipe asks for deterministic kernels."""
    return bool(run.args.get("deterministic_mode")) or _variable(run, "NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0"


def flydsl(sizes: Sizes) -> bool:
    """Whether Turbo attention runs its FlyDSL kernels instead of AITER's: gfx950, head dimension 64 or 128, no dropout,
    and 8 to 256 (a power of two) query heads per key/value group."""
    run = sizes.run
    ratio = sizes.A // sizes.k
    return (
        architecture(run.target.gpu, run.kernels.vendor) == "gfx950"
        and run.model.mla is None
        and sizes.d in (64, 128)
        and not run.model.attention_dropout
        and 8 <= ratio <= 256
        and ratio & (ratio - 1) == 0
    )


def sinks(run: Run) -> bool:
    """Whether Turbo attention is asked for learned sinks. They are bf16, and the FlyDSL kernels take fp32 ones alone
    (Primus-Turbo's attention_impl), so that other kernels run; with context parallelism Primus drops the sinks."""
    return run.kernels.turbo_attention and bool(run.args.get("use_sink_attention"))


def _variable(run: Run, name: str) -> str | None:
    """An environment variable of the ranks, as text; None when it is not known."""
    try:
        value = run.args["env_" + name]
    except KeyError:
        return None
    return None if value is None else str(value)


def core(sizes: Sizes, q: Any, k: Any, v: Any, output: Any) -> Tensors:
    """The core attention of one layer, by backend."""
    run = sizes.run
    kernel = backend(sizes)
    if kernel in ("local", "unfused"):
        return scores(sizes, q, output)
    out: Tensors = {
        "attention.q": q,
        "attention.k": k,
        "attention.v": v,
        "attention.out": output,
        "attention.lse": sizes.S * sizes.Aq * 4,
    }
    comm = run.parallel.cp_comm_type
    if kernel == "turbo":
        out["attention.rng"] = 0 if flydsl(sizes) and not sinks(run) else RNG_BYTES
        out["attention.out_copy"] = where(sizes.cp > 1, output, 0)
        return out
    split = 1 if comm == "a2a" else 2  # point-to-point and all-gather run the kernel twice
    out["attention.rng"] = RNG_BYTES * where(sizes.cp > 1, split, 1)
    if comm == "all_gather":
        out["attention.sequence_ends"] = where(sizes.cp > 1, 8, 0)
    if comm in ("a2a", "all_gather", "a2a+p2p"):
        out["attention.out_copy"] = where(sizes.cp > 1, output, 0)
    if kernel == "flash":
        # the flash-attention package works in b-s-h-d: with several sequences the output is transposed into a copy
        out["attention.out_copy"] = out.get("attention.out_copy", 0) + where(sizes.mbs > 1, output, 0)
    return out


def masked_kernel(sizes: Sizes) -> Any:
    """Whether plain attention runs a kernel for mask and softmax together: TE's takes 16 bits, 17 to 16,383 positions in
    eights, heads x sequences in fours (`FusedScaleMaskSoftmax.is_kernel_available`)."""
    run = sizes.run
    if run.kernels.implementation == "local":
        return run.kernels.masked_softmax_fusion
    if sizes.act == 4 or _variable(run, "NVTE_MASKED_SOFTMAX_FUSION") == "0":
        return False
    positions = sizes.seq // sizes.cp
    return (positions > 16) & (positions < 16384) & (positions % 8 == 0) & (sizes.mbs * sizes.Aq % 4 == 0)


def scores(sizes: Sizes, q: Any, output: Any) -> Tensors:
    """Attention by matrix products: everything of size s*s is kept."""
    run = sizes.run
    local = run.kernels.implementation == "local"
    square = (sizes.seq // sizes.cp) ** 2
    entries = sizes.mbs * sizes.Aq * square
    fused = masked_kernel(sizes)
    out: Tensors = {"attention.q": q, "attention.k": q, "attention.v": output, "attention.out": output}
    # TE joins the mask of the data loader, one a sequence, with the causal one
    masks = sizes.mbs if not local and run.args.get("create_attention_mask_in_dataloader", True) else 1
    out["attention.causal_mask"] = where(fused, 0, masks * square)
    out["attention.softmax"] = entries * where(fused, sizes.act, 4)
    copied = local or sizes.act != 4  # of the softmax in fp32
    out["attention.probs"] = where(fused, 0, entries * sizes.act if copied else 0)
    if run.model.attention_dropout:
        out["attention.probs_dropout_mask"] = entries
        out["attention.probs"] = entries * sizes.act
    return out


def causal_mask_bytes(sizes: Sizes) -> Any:
    """TE's cached causal mask, a byte a pair, where plain attention has no kernel for mask and softmax together
    (`_get_default_causal_mask`)."""
    if backend(sizes) != "unfused":
        return 0
    return where(masked_kernel(sizes), 0, (sizes.seq // sizes.cp) ** 2)


def dropout_masks(sizes: Sizes) -> Tensors:
    """Bias-dropout-add keeps a byte mask per element when hidden dropout is on (twice a layer)."""
    if sizes.run.model.hidden_dropout == 0.0:
        return {}
    mask = sizes.T * sizes.h
    return {"attention.dropout_mask": mask, "mlp.dropout_mask": mask}
