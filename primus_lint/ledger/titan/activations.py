"""Bytes that a block and the head keep from forward to backward, bf16 computing.

Kernels "decomposed": read from the live storages of the real models (../shared/oracle/titan_fsdp.py and
tests/ledger/titan/witness.py). "fused": RMSNorm keeps its input and one fp32 number a token instead of two fp32 copies.
"compiled": what PyTorch's partitioner of the compiled graph saves (tests/ledger/titan/test_compiled.py): inputs of matrix
products and of attention are never computed again, the activation inside the MLP is, and so are the inputs of float8
products, whose cast is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.ledger.titan.experts import experts_bytes, mlp_bytes

if TYPE_CHECKING:
    from primus_lint.ledger.titan.sizes import Latent, Sizes


def norm_bytes(s: Sizes) -> int:
    """One RMSNorm: input and reciprocal root mean square. Decomposed, it keeps x and x/rms in fp32 instead of x."""
    elements = s.part * s.hidden
    kept = {"decomposed": 8 * elements, "fused": 2 * elements, "compiled": 2 * elements}[s.kernels.norm]
    return kept + 4 * s.part


def attention_bytes(s: Sizes) -> int:
    """Queries and keys after the rotary embedding, values, output, fp32 log-sum-exp."""
    queries, keys = s.heads * s.head_dim // s.tp, s.groups * s.head_dim // s.tp
    kept = s.tokens * (2 * queries + 4 * keys + 2 * queries + 4 * (s.heads // s.tp))
    kept += cast_bytes(s, queries)
    return kept + (head_norm_bytes(s) + s.handed_bytes if s.qwen else 0)


def cast_bytes(s: Sizes, columns: int) -> int:
    """The output of attention in float8, as the last product takes it: compiled it is kept beside the output itself."""
    return s.tokens * columns if s.kernels.compiled and s.float8 is not None and s.float8.attention else 0


def head_norm_bytes(s: Sizes) -> int:
    """Qwen3's norms of queries and keys, over each head."""
    rows = s.tokens * (s.heads + s.groups) // s.tp
    each = {"decomposed": 8, "fused": 2, "compiled": 2}[s.kernels.norm]
    return rows * s.head_dim * each + 4 * rows


def latent_bytes(s: Sizes, m: Latent) -> int:
    """Multi-head latent attention: norms of the latents with their outputs, queries and keys with their rotated parts,
    the product that the values are a part of, output, fp32 log-sum-exp."""
    heads = s.heads // s.tp
    inner = heads * (2 * 2 * (m.nope + m.rope) + 2 * (m.nope + m.value) + 2 * m.value + 4)
    inner += cast_bytes(s, heads * m.value) // s.tokens
    latents = latent_norm_bytes(s, m.kv_rank, m.kv_rank + m.rope)
    if m.q_rank:
        latents += latent_norm_bytes(s, m.q_rank, m.q_rank)
    return s.tokens * inner + latents


def latent_norm_bytes(s: Sizes, width: int, product: int) -> int:
    """The norm of a latent and its output: decomposed x and x/rms in fp32, else the product that it is a part of."""
    kept = 8 * width if s.kernels.norm == "decomposed" else 2 * product
    again = s.kernels.compiled and s.float8 is not None and s.float8.attention
    return s.tokens * (kept + 4 + (0 if again else 2 * width))


def normed_bytes(s: Sizes, layer: int) -> int:
    """The (gathered) outputs of a block's two norms. Compiled with float8 products they are computed again, unless they
    leave the compiled piece: a block with experts is compiled in pieces."""
    each, moe = 2 * s.tokens * s.hidden, s.experts_of(layer)
    if not s.kernels.compiled or s.float8 is None:
        return 2 * each
    attention = s.float8.attention and (moe is None or s.kernels.whole)
    mlp = s.float8.mlp and moe is None
    return each * (2 - attention - mlp)


def block_parts(s: Sizes, layer: int) -> dict[str, int]:
    """A block that recomputes nothing: two norms with their outputs, attention, the MLP or the experts."""
    moe = s.experts_of(layer)
    return {
        "norms": 2 * norm_bytes(s) + normed_bytes(s, layer),
        "attention": attention_bytes(s) if s.latent is None else latent_bytes(s, s.latent),
        **({"MLP": mlp_bytes(s, s.ffn)} if moe is None else {"experts": experts_bytes(s, moe)}),
    }


def block_bytes(s: Sizes, layer: int) -> int:
    return sum(block_parts(s, layer).values())


def residual_bytes(s: Sizes) -> int:
    """The input of a block or of its second half, alive while it runs, where the norm does not keep it."""
    return 2 * s.part * s.hidden if s.kernels.norm == "decomposed" else 0


def input_bytes(s: Sizes) -> int:
    """The input of a block: all that full recomputation keeps."""
    return 2 * s.part * s.hidden


def products(s: Sizes, layer: int) -> list[int]:
    """Columns of the outputs of a block's matrix products, in the order in which the policy of selective recomputation
    counts them; it leaves the router's gate out where the recipe says so."""
    if s.latent is None:
        queries, keys = s.heads * s.head_dim // s.tp, s.groups * s.head_dim // s.tp
        columns = [queries, keys, keys, s.hidden]
    else:
        m, heads = s.latent, s.heads // s.tp
        query = [m.q_rank] if m.q_rank else []
        columns = [*query, heads * (m.nope + m.rope), m.kv_rank + m.rope, heads * (m.nope + m.value), s.hidden]
    moe = s.experts_of(layer)
    width = s.ffn if moe is None else moe.shared
    if moe is not None and moe.gate_counted:
        columns.append(moe.count)
    return columns + ([width // s.tp, width // s.tp, s.hidden] if width else [])


def linears(s: Sizes, layer: int) -> int:
    """Linear layers of a block in float8."""
    assert s.float8 is not None
    attention = 4 if s.latent is None or not s.latent.q_rank else 5
    moe = s.experts_of(layer)
    mlp = 3 if moe is None or moe.shared else 0
    return attention * s.float8.attention + mlp * s.float8.mlp


def casting_bytes(s: Sizes, columns: int) -> int:
    """Eager casting of a tensor to float8: two fp32 copies and the result."""
    return 9 * s.tokens * columns if s.float8 is not None and not s.kernels.compiled else 0


def selective_bytes(s: Sizes, layer: int) -> int:
    """A block under the "op" policy: its input and the outputs of every second matrix product (the first included);
    compiled without that of the last one, which no backward needs.

    The policy also saves attention where it names the kernel, and reduce-scatter: under tensor parallelism the outputs
    of wo and w2 are kept once more, cut by tp. Under expert parallelism it saves what is exchanged: rows and counts.
    """
    columns = products(s, layer)
    if s.kernels.compiled and len(columns) % 2:
        columns.pop()
    saved = s.tokens * 2 * sum(columns[::2])
    if s.tp > 1:
        saved += 2 * (2 * s.part * s.hidden)
    if s.kernels.flash_saved:
        value = s.heads * (s.head_dim if s.latent is None else s.latent.value)
        saved += s.tokens * (2 * value + 4 * s.heads) // s.tp
    if s.float8 is not None:  # and every maximum that scales a cast: of each input and, gathered in bf16, each weight
        saved += 2 * linears(s, layer) * (1 if s.float8.gathered else 2)
    moe = s.experts_of(layer)
    if moe is not None and moe.ep > 1 and moe.exchange_saved:
        saved += 2 * (2 * moe.routed(s.tokens) * s.hidden) + 8 * moe.count
    return input_bytes(s) + saved


def kept_parts(s: Sizes, layer: int) -> dict[str, int]:
    """What one block keeps, by parts; one part where it recomputes."""
    if not s.wrapped(layer):
        return block_parts(s, layer)
    saved = selective_bytes(s, layer) if s.recompute == "op" else input_bytes(s)
    return {"of recomputed blocks": s.handed_bytes + saved}


def kept_bytes(s: Sizes, layer: int) -> int:
    """What one block keeps."""
    return sum(kept_parts(s, layer).values())


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
