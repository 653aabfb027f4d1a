"""Bytes of a layer of experts (torchtitan/models/moe/moe.py): what it keeps for the backward pass, and what it holds
for a moment in the forward and the backward pass.

Read from the live storages of the real model (tests/ledger/titan/witness.py), under balanced routing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.ledger.titan.sizes import Experts, Sizes


def mlp_bytes(s: Sizes, width: int) -> int:
    """Both products and the input of the third one, and eager also the activation; compiled with float8 products only
    the first two: 2 to 4 of ffn/tp a token."""
    float8 = s.float8 is not None and s.float8.mlp
    tensors = (2 if float8 else 3) if s.kernels.compiled else 4
    return s.tokens * (width // s.tp) * 2 * tensors


def router_bytes(s: Sizes, moe: Experts) -> int:
    """Scores of every expert (fp32, compiled the logits in bf16 and two numbers a token), indices and scores of the
    chosen ones, the order of the rows by experts."""
    chosen = 8 + (4 if moe.normed else 0) + (0 if moe.scored_before else 4)
    scores = 2 * moe.count + 8 if s.kernels.compiled else 4 * moe.count + (4 if moe.normed else 0)
    order = 16 + (4 if moe.scored_before else 0)
    if moe.split > 1 and moe.scored_before:
        order += 8  # the order of a rank's own rows, beside that of all
    return s.tokens * (scores + moe.top_k * chosen) + moe.routed(s.tokens) * order


def experts_bytes(s: Sizes, moe: Experts) -> int:
    """What a layer of experts keeps: routing, the rows that come in, two products, the activation and its product with
    the gate, and the fp32 copy of the rows that the scores weigh: of the input, or of the output."""
    rows = moe.rows(s.tokens)
    order = 4 if moe.ep == 1 else 0  # under expert parallelism it stays between steps
    kept = router_bytes(s, moe) + rows * (order + row_bytes(s, moe)) + 4 * moe.local
    if moe.float8:
        kept += 3 * moe.local * (moe.ffn // moe.tp) * s.hidden  # the weights in float8
    return kept + weighed_bytes(s, moe) + (mlp_bytes(s, moe.shared) if moe.shared else 0)


def row_bytes(s: Sizes, moe: Experts) -> int:
    """A row of the experts' products: its input, both products, eager the activation, the input of the third product.
    Primus-Turbo's float8 products keep float8 inputs, the first one twice: each product casts it."""
    activation = 0 if s.kernels.compiled else 2
    if moe.float8:
        return 2 * s.hidden + (moe.ffn // moe.tp) * (4 + activation + 1)
    return 2 * s.hidden + (moe.ffn // moe.tp) * (6 + activation)


def weighed_bytes(s: Sizes, moe: Experts) -> int:
    """The rows that the scores weigh, in fp32; in bf16 where Primus sums them up so. Those that come back are put into
    the order of all tokens, also where tensor-parallel ranks share them."""
    if moe.scored_before:
        return 4 * moe.routed(s.tokens) * s.hidden
    return (2 if s.kernels.whole else 4) * s.tokens * moe.top_k * s.hidden


def combining_bytes(s: Sizes, moe: Experts) -> int:
    """What the forward pass holds when the outputs of the experts are added up: the rows sent, the rows that came back
    (and where ranks exchange them a copy), the same in the order of the tokens, the sums, scores and counts."""
    rows, tokens = 2 * moe.routed(s.tokens) * s.hidden, 2 * s.tokens * s.hidden
    returned = 2 * rows if moe.ep > 1 else rows + 2 * s.hidden
    shared = tokens if moe.shared else 0
    ordered = tokens * moe.top_k
    sums = tokens + shared if moe.scored_before else 3 * tokens
    if s.kernels.whole and not moe.scored_before:
        ordered, sums = 0, 2 * tokens  # the rows in the order of the tokens are kept, their sum is in fp32
    return rows + returned + ordered + shared + sums + 4 * s.tokens * moe.top_k + 8 * moe.count


def weighing_backward_bytes(s: Sizes, moe: Experts) -> int:
    """What the backward of the weighted sum holds beyond what is kept: gradients of the layer's output and, where the
    output is weighed, its fp32 copy, the fp32 gradient of the rows and that of the scores; else the rows' gradient
    before and after it is put into the order of the experts."""
    tokens = 2 * s.tokens * s.hidden
    if moe.scored_before or s.kernels.whole:
        return tokens + 2 * tokens * moe.top_k
    return tokens + 2 * tokens + 2 * tokens * moe.top_k + 4 * s.tokens * moe.top_k


def products_backward_bytes(s: Sizes, moe: Experts, weights: int) -> int:
    """What the backward of the experts' products holds at its end, beyond what the layer keeps besides the rows:
    gradients of `weights` elements in bf16, the rows, and their gradient from both products."""
    return 2 * weights + 3 * 2 * moe.rows(s.tokens) * s.hidden


def routed_bytes(s: Sizes, moe: Experts) -> int:
    """The part of what a layer keeps that grows with the rows that a rank receives."""
    return moe.routed(s.tokens) * row_bytes(s, moe)


def freed_bytes(s: Sizes, moe: Experts) -> int:
    """What the layer keeps that its backward has given back by then: all of the products, the shared experts, what the
    scores weigh at the output."""
    shared = mlp_bytes(s, moe.shared) if moe.shared else 0
    products = moe.rows(s.tokens) * row_bytes(s, moe)
    return shared + products + (0 if moe.scored_before else weighed_bytes(s, moe))
