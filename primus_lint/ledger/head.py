"""Both ends of the model and its MTP depths: what they keep for the backward pass of one micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum, minimum, where
from primus_lint.ledger.activations.layer import kept_selective
from primus_lint.ledger.activations.norms import input_bytes, statistics_bytes
from primus_lint.ledger.activations.quantize import linear_input
from primus_lint.ledger.activations.router import of_2026
from primus_lint.ledger.activations.tensors import total
from primus_lint.ledger.lora import enabled

if TYPE_CHECKING:
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes


def embedding(sizes: Sizes) -> Tensors:
    """Token ids (int64) and, over tensor ranks, the mask of foreign ids; dropout keeps a byte mask."""
    if enabled(sizes.run):
        return {}  # a frozen table needs no gradient
    out: Tensors = {"embedding.ids": sizes.S * 8, "embedding.mask": where(sizes.tp > 1, sizes.S, 0)}
    if sizes.run.model.position_embedding == "learned_absolute":
        out["embedding.positions"] = sizes.S * 8
    if sizes.run.model.hidden_dropout:
        out["embedding.dropout_mask"] = sizes.T * sizes.h
    return out


def final_norm(sizes: Sizes) -> Tensors:
    """Input of the final norm and its row statistics; its output is kept by the output layer."""
    return {
        "head.norm_x": input_bytes(sizes, sizes.T, sizes.h),
        "head.norm_statistics": statistics_bytes(sizes, sizes.T),
    }


def loss(sizes: Sizes) -> Tensors:
    """Output layer and cross entropy, once for the model and once per MTP depth.

    Unfused and `native` cross entropy keep the fp32 softmax, a byte mask and int64 targets; `te` keeps the bf16
    logits, in which it leaves the gradient; Primus's chunked head (`linear`) keeps none. Each MTP depth also keeps its
    loss mask, its token count and its loss in fp32, and since Megatron-Core 0.19 the count clamped to one and whether there
    are any.
    """
    depths = sizes.run.model.mtp_num_layers
    heads = 1 + depths
    fusion = sizes.run.kernels.cross_entropy_fusion
    logits = sizes.S * (sizes.V // sizes.tp)
    out: Tensors = {} if enabled(sizes.run) else {"head.output_in": sizes.T * sizes.h * sizes.act * heads}
    if fusion == "te":
        out["head.logits"] = logits * sizes.act * heads
    elif fusion == "linear":
        out["head.labels"] = sizes.S * 8
        out["head.softmax"] = logits * 4 * depths
    else:
        out["head.softmax"] = logits * 4 * heads
        out["head.target"] = sizes.S * 9 * heads
    deferred = deferred_micro_batches(sizes)
    if not is_scalar(deferred) or deferred:
        # the waiting input of the output layer holds its graph, and with it the received input and its gradient
        received = sizes.T * sizes.h * (4 if sizes.run.precision.fp32_residual else sizes.act)
        out["head.deferred"] = deferred * ((logits + sizes.T * sizes.h) * sizes.act + 2 * received)
    if depths:
        out["head.mtp_loss"] = depths * (8 * sizes.S + (12 if of_2026(sizes) else 4))
    return out


def deferred_micro_batches(sizes: Sizes) -> Any:
    """Micro-batches whose output-layer input and logit gradient wait for the pipeline flush
    (`defer_embedding_wgrad_compute`, at most `wgrad_deferral_limit`, 0 = all)."""
    args = sizes.run.args
    if not args.get("defer_embedding_wgrad_compute"):
        return 0
    limit = args.get("wgrad_deferral_limit") or 0
    if sizes.m is None:
        return limit
    return minimum(limit, sizes.m) if limit else sizes.m


def mtp(sizes: Sizes, kind: Kind, checkpointed: bool) -> Tensors:
    """One MTP depth with its transformer layer; checkpointed it keeps its two inputs alone.

    Under sequence parallelism the layer's input is a slice of the gathered eh_proj output, so all of it stays.
    """
    S, T, h = sizes.S, sizes.T, sizes.h
    out: Tensors = {"mtp.ids": S * 8, "mtp.mask": where(sizes.tp > 1, S, 0)}
    if sizes.run.model.hidden_dropout:  # every depth embeds its own tokens, outside what is recomputed
        out["mtp.dropout_mask"] = T * h
    if checkpointed:
        out["mtp.inputs"] = 2 * T * h * sizes.act
        return out
    norm_x = input_bytes(sizes, T, h)
    out["mtp.norm_x"] = 3 * norm_x
    out["mtp.norm_statistics"] = 3 * statistics_bytes(sizes, T)
    out["mtp.eh_in"] = linear_input(sizes, kind.low, T, 2 * h)
    out["mtp.layer"] = total(kept_selective(sizes, kind))
    if sizes.run.kernels.implementation != "local":
        out["mtp.layer_x_rest"] = (S - T) * h * sizes.act
    return out


def logits_transient_bytes(sizes: Sizes) -> Any:
    """What coexists with the kept loss tensors at the loss: bf16 logits going in, or their bf16 gradient coming out (logits
    in fp32 are worked on in place).

    `native` makes exp(logits) beside the fp32 copy, so both and the bf16 logits coexist; the chunked head works on
    4,096 tokens at a time.
    """
    fusion = sizes.run.kernels.cross_entropy_fusion
    per_token = sizes.V // sizes.tp
    if fusion == "linear":
        return 4096 * per_token * (sizes.act + 4)
    if fusion == "te":
        return 0 * sizes.S
    source = 0 if sizes.act == 4 else sizes.act
    return sizes.S * per_token * (source + 4 if fusion == "native" else source)


def weight_gradient_bytes(sizes: Sizes) -> Any:
    """What the backward of the output layer needs beyond what the loss keeps: the gradient of its input (before tensor ranks
    share it) and of its weight, made on its own without fused accumulation (under torch FSDP2 it counts with the units).
    Less what is gone by then: of logits kept in fp32 there is a gradient in the activations' dtype.
    """
    run = sizes.run
    fusion = run.kernels.cross_entropy_fusion
    if fusion == "linear":
        return 0 * sizes.S
    made = sizes.S * sizes.h * sizes.act
    if not (run.optimizer.gradient_accumulation_fusion or enabled(run) or run.optimizer.sharding == "fsdp2"):
        made = made + sizes.V // sizes.tp * sizes.h * sizes.act
    gone = 0 if fusion == "te" else 4 - sizes.act
    return maximum(made - gone * sizes.S * (sizes.V // sizes.tp), 0)


def logits_bytes(sizes: Sizes) -> Any:
    """The most that there is of logits, their copies and gradients at the loss, once for the model."""
    fusion = sizes.run.kernels.cross_entropy_fusion
    kept = {"te": sizes.act, "linear": 0}.get(fusion or "", 4)
    return sizes.S * (sizes.V // sizes.tp) * kept + logits_transient_bytes(sizes)
