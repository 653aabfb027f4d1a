"""Bytes that a block of Llama 3 or Qwen3 and the head keep from forward to backward, bf16 computing.

Read from the live storages of the real model (../shared/oracle/titan_fsdp.py) for kernels "decomposed"; for "fused"
RMSNorm keeps its input and one fp32 number a token instead of two fp32 copies; for "compiled" the norms, rotary
embedding and SwiGLU are recomputed from their inputs by the compiler's partitioner (not witnessed: an estimate).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.ledger.titan.sizes import Sizes


def norm_bytes(s: Sizes) -> int:
    """One RMSNorm: input and reciprocal root mean square. Decomposed, it keeps x and x/rms in fp32 instead of x."""
    elements = s.part * s.hidden
    kept = {"decomposed": 8 * elements, "fused": 2 * elements, "compiled": 2 * elements}[s.kernels.norm]
    return kept + 4 * s.part


def attention_bytes(s: Sizes) -> int:
    """Queries and keys after the rotary embedding, values, output, fp32 log-sum-exp."""
    queries, keys = s.heads * s.head_dim // s.tp, s.groups * s.head_dim // s.tp
    kept = s.tokens * (2 * queries + 4 * keys + 2 * queries + 4 * (s.heads // s.tp))
    return kept + (head_norm_bytes(s) + s.handed_bytes if s.qwen else 0)


def head_norm_bytes(s: Sizes) -> int:
    """Qwen3's norms of queries and keys, over each head."""
    rows = s.tokens * (s.heads + s.groups) // s.tp
    each = {"decomposed": 8, "fused": 2, "compiled": 2}[s.kernels.norm]
    return rows * s.head_dim * each + 4 * rows


def block_bytes(s: Sizes) -> int:
    """A block that recomputes nothing: two norms with their gathered outputs, attention, the MLP.

    The MLP keeps both products, and eager also the activation and its product with the gate: 2 or 4 of ffn/tp a token.
    """
    compiled = s.kernels.norm == "compiled"
    gathered = 0 if compiled and s.tp == 1 else 2 * (2 * s.tokens * s.hidden)
    mlp = s.tokens * (s.ffn // s.tp) * 2 * (2 if compiled else 4)
    return 2 * norm_bytes(s) + gathered + attention_bytes(s) + mlp


def input_bytes(s: Sizes) -> int:
    """The input of a block: all that full recomputation keeps."""
    return 2 * s.part * s.hidden


def selective_bytes(s: Sizes) -> int:
    """A block under the "op" policy: its input and the outputs of every second matrix product: wq, wv, w1, w2.

    The policy also saves attention where it names the kernel, and reduce-scatter: under tensor parallelism the outputs
    of wo and w2 are kept once more, cut by tp.
    """
    queries, keys = s.heads * s.head_dim // s.tp, s.groups * s.head_dim // s.tp
    saved = s.tokens * 2 * (queries + keys + s.ffn // s.tp + s.hidden)
    if s.tp > 1:
        saved += 2 * (2 * s.part * s.hidden)
    if s.kernels.flash_saved:
        saved += s.tokens * (2 * queries + 4 * (s.heads // s.tp))
    return input_bytes(s) + saved


def kept_bytes(s: Sizes, layer: int) -> int:
    """What one block keeps."""
    if not s.wrapped(layer):
        return block_bytes(s)
    return s.handed_bytes + (selective_bytes(s) if s.recompute == "op" else input_bytes(s))


def head_bytes(s: Sizes) -> int:
    """The final norm and its gathered output, the input of the output layer."""
    return norm_bytes(s) + 2 * s.tokens * s.hidden


def logits_bytes(s: Sizes) -> int:
    """The bf16 logits, alive until the loss has its fp32 copy."""
    return 2 * s.tokens * (s.vocab // s.tp)


def loss_bytes(s: Sizes) -> int:
    """The backward of the loss: eager holds three fp32 logits (log-softmax, its gradient, that of the likelihood), four
    under loss parallelism with a few numbers a token; compiled the bf16 logits and their gradient."""
    if s.kernels.loss == "compiled" and s.tp == 1:
        return 2 * logits_bytes(s)
    if s.tp == 1:
        return 6 * logits_bytes(s) + 8
    return 8 * logits_bytes(s) + 33 * s.tokens + 12


def head_norm_backward_bytes(s: Sizes) -> int:
    """What a block holds at the backward of its norm of the queries: gradients of the MLP's weights, of wo and of three
    norms, what the first norm keeps and its output, gradients of the residual, of keys and values, and decomposed six fp32
    tensors (else the gradients of input and output)."""
    queries, keys = s.heads * s.head_dim, s.groups * s.head_dim
    weights = 2 * (3 * s.ffn * s.hidden + queries * s.hidden + s.hidden + 2 * s.head_dim)
    own = s.tokens * queries * (6 * 4 if s.kernels.norm == "decomposed" else 4)
    return weights + own + norm_bytes(s) + 2 * (2 * s.tokens * s.hidden) + 2 * (2 * s.tokens * keys) + s.handed_bytes


def norm_backward_bytes(s: Sizes) -> int:
    """What the backward of a block's first norm holds: decomposed six fp32 tensors, and the gradient of the residual;
    else the gradients of input and output."""
    elements = s.part * s.hidden
    return (6 * 4 + 2) * elements if s.kernels.norm == "decomposed" else 4 * elements
