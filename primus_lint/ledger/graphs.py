"""CUDA graphs: buffers that stay, and kept tensors that live in the graphs' own memory pool.

A replayed graph allocates nothing: what its modules keep for backward lies in the pool, which stays reserved from the
capture on but is not allocated in PyTorch's count. What stays allocated is the input and the output of every graph that is
in flight at once (TransformerEngine shares them between micro-batches that do not overlap), and for captured attention
a mask of sequence x sequence bytes per sample, whether the kernel reads it or not. A graph of the whole iteration
(`full_iteration`) is accounted as without graphs: its pool holds the same tensors.

Sources: Megatron-Core `TECudaGraphHelper`, `TransformerLayer.get_layer_static_inputs`, TransformerEngine
`_make_graphed_callables`. Outputs are read from ../shared/goldens: seven runs of two models keep one more hidden state
per graph than those functions show. Megatron's own graphs (`local`) have no mask and keep gradients too (read, not
measured).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ledger.activations.kind import kind_of, mtp_kind
from primus_lint.ledger.inflight import most

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run
    from primus_lint.ledger.activations.kind import Kind
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.inflight import Loaded
    from primus_lint.ledger.sizes import Sizes

PER_LAYER = ("transformer_engine", "local")
ATTENTION = ("attention.", "latent.")
ROUTER = ("router.", "mlp.x", "mlp.norm", "shared.")
DISPATCH = ("dispatch.",)
MLP = ("mlp.",)
EXPERTS = (*ROUTER, *MLP, *DISPATCH, "experts.", "latent_experts.")


def scope(run: Run) -> tuple[str, ...] | None:
    """The captured parts of a layer, () for the whole layer; None without graphs of single layers."""
    if run.kernels.cuda_graphs not in PER_LAYER:
        return None
    names = run.args.get("cuda_graph_scope") or run.args.get("cuda_graph_modules") or ()
    if isinstance(names, str):
        names = names.strip("[]").replace(",", " ").split()
    if "full_iteration" in names:
        return None
    return () if "full" in names else tuple(str(name) for name in names)


def attention_captured(run: Run) -> bool:
    names = scope(run)
    return names is not None and (names == () or "attn" in names)


def captured(run: Run, kind: Kind) -> tuple[str, ...]:
    """Prefixes of the kept tensors of a layer that lie in the pool; empty when no graph holds any."""
    names = scope(run)
    if names is None:
        return ()
    feed_forward = EXPERTS if kind.moe else MLP
    if names == ():
        return ATTENTION + feed_forward
    out: tuple[str, ...] = ATTENTION if "attn" in names else ()
    if ("moe" if kind.moe else "mlp") in names:
        out += feed_forward
    elif kind.moe and "moe_router" in names:
        out += ROUTER + (DISPATCH if "moe_preprocess" in names else ())
    return out


def pool_bytes(run: Run, kind: Kind, tensors: Tensors) -> Any:
    """Bytes of a layer's kept tensors that lie in the pool."""
    prefixes = captured(run, kind)
    total: Any = 0
    for name, value in tensors.items():
        if prefixes and name.startswith(prefixes):
            total = total + value
    return total


def buffer_bytes(sizes: Sizes, candidates: tuple[Loaded, ...], chunks: tuple[Chunk, ...]) -> Any:
    """Inputs, outputs and masks of the graphs that are in flight at once on a rank."""
    run = sizes.run
    names = scope(run)
    if names is None:
        return 0
    counts = []
    for chunk in chunks:
        kinds = [kind_of(run, layer) for layer in chunk.layers] + [mtp_kind(sizes)] * len(chunk.mtp)
        counts.append(sum(bool(captured(run, kind)) for kind in kinds))
    return most(candidates, counts) * each_bytes(sizes)


def each_bytes(sizes: Sizes) -> Any:
    """Input, output and mask of one graph; under Megatron's own graphs input, output and the gradients of both."""
    run = sizes.run
    hidden = sizes.T * sizes.h * 2
    if run.kernels.cuda_graphs == "local":
        return 4 * hidden
    mask = sizes.mbs * (sizes.seq // sizes.cp) * sizes.seq if attention_captured(run) else 0
    return 2 * hidden + mask
