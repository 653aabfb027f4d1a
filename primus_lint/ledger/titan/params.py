"""Parameters of a TorchTitan model under FSDP2 and tensor parallelism: groups, shards, what a gathered group holds.

FSDP2 wraps the embedding, every block, and final norm with output layer, each as one group; under expert parallelism the
routed experts of a block are a group of their own, sharded over fewer ranks. A parameter is sharded by its rows (after
tensor parallelism): every rank stores ceil(rows/N) of them, the last ranks with padding; the optimizer keeps states of
the real rows only (byte-accounting of the reference, torchtitan section; held against the real code).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from primus_lint.ledger.titan.sizes import Experts, Latent, Sizes


class Parameter(NamedTuple):
    """One tensor-parallel rank's part of a weight; `rows` is the dimension that FSDP cuts."""

    rows: int
    columns: int
    gather_bytes: int = 2  # an element of the gathered weight

    @property
    def numel(self) -> int:
        return self.rows * self.columns

    def shard(self, ranks: int) -> int:
        """Elements that a rank stores, padding included."""
        return -(-self.rows // ranks) * self.columns

    def owned(self, ranks: int, rank: int) -> int:
        """Real elements in a rank's shard."""
        each = -(-self.rows // ranks)
        return max(min(each, self.rows - rank * each), 0) * self.columns


class Group:
    """Parameters that are gathered and reduced together, over `ranks`.

    `shard`: elements that a rank stores, padding included; `gathered`: those of all shards together; `gathered_bytes`: of
    the gathered weights.
    """

    __slots__ = ("gathered", "gathered_bytes", "numel", "parameters", "ranks", "shard")

    def __init__(self, parameters: tuple[Parameter, ...], ranks: int) -> None:
        self.parameters, self.ranks = parameters, ranks
        shards = [parameter.shard(ranks) for parameter in parameters]
        self.numel = sum(parameter.numel for parameter in parameters)
        self.shard = sum(shards)
        self.gathered = self.shard * ranks
        each = zip(shards, parameters, strict=True)
        self.gathered_bytes = ranks * sum(shard * parameter.gather_bytes for shard, parameter in each)

    @property
    def even(self) -> bool:
        """Whether no rank stores padding."""
        return all(parameter.rows % self.ranks == 0 for parameter in self.parameters)

    def owned(self, rank: int) -> int:
        """Real elements in the shard of one of the ranks."""
        return sum(parameter.owned(self.ranks, rank) for parameter in self.parameters)


def embedding(s: Sizes) -> Group:
    return Group((Parameter(s.vocab // s.tp, s.hidden),), s.shard)


def output(s: Sizes) -> Group:
    """Final norm and output layer."""
    float8 = s.float8 is not None and s.float8.output
    return Group((Parameter(s.hidden, 1), Parameter(s.vocab // s.tp, s.hidden, _linear_bytes(s, float8))), s.shard)


def block(s: Sizes, layer: int) -> Group:
    """Attention, two norms, and the MLP or, where the layer has experts, router, shared experts and, without expert
    parallelism, the routed ones; norms are replicated over tensor parallelism."""
    norms = (Parameter(s.hidden, 1),) * 2
    parameters = norms + (_attention(s) if s.latent is None else _latent_attention(s, s.latent))
    moe = s.experts_of(layer)
    if moe is None:
        return Group(parameters + _mlp(s, s.ffn), s.shard)
    parameters += (Parameter(moe.count, s.hidden),)
    if moe.shared:
        parameters += _mlp(s, moe.shared)
    if moe.ep == 1:
        parameters += _routed(s, moe, moe.count, s.shard)
    return Group(parameters, s.shard)


def routed(s: Sizes, layer: int) -> Group | None:
    """The routed experts of a layer, where they are a group of their own."""
    moe = s.experts_of(layer)
    return None if moe is None or moe.ep == 1 else Group(_routed(s, moe, moe.local, moe.shard), moe.shard)


def blocks(s: Sizes) -> list[tuple[Group, Group | None]]:
    """The groups of every block: the block's own, and that of its routed experts where they have one."""
    made: dict[bool, tuple[Group, Group | None]] = {}
    for layer in range(s.layers):
        kind = s.experts_of(layer) is None
        if kind not in made:
            made[kind] = (block(s, layer), routed(s, layer))
    return [made[s.experts_of(layer) is None] for layer in range(s.layers)]


def whole_bytes(groups: tuple[Group, Group | None]) -> int:
    """Bytes of a block when all of it is gathered."""
    own, experts = groups
    return own.gathered_bytes + (experts.gathered_bytes if experts else 0)


def groups(s: Sizes) -> list[Group]:
    """Every group of the model."""
    layers = blocks(s)
    found = [embedding(s), output(s), *(own for own, _ in layers)]
    return found + [experts for _, experts in layers if experts is not None]


def stored(s: Sizes) -> list[Group]:
    """The groups as the optimizer sees them: a tied output layer is the embedding's weight, seen once."""
    found = groups(s)
    return [
        Group(group.parameters[:1], group.ranks) if s.tied and index == 1 else group
        for index, group in enumerate(found)
    ]


def _linear_bytes(s: Sizes, float8: bool) -> int:
    """Bytes of an element of a linear layer's gathered weight."""
    return 1 if s.float8 is not None and s.float8.gathered and float8 else 2


def _attention(s: Sizes) -> tuple[Parameter, ...]:
    """wq, wk, wv, wo, and Qwen3's norms of queries and keys."""
    queries, keys = s.heads * s.head_dim // s.tp, s.groups * s.head_dim // s.tp
    of_heads = (Parameter(s.head_dim, 1),) * 2 if s.qwen else ()
    each = _linear_bytes(s, s.float8 is not None and s.float8.attention)
    return (
        *of_heads, Parameter(queries, s.hidden, each), Parameter(keys, s.hidden, each), Parameter(keys, s.hidden, each),
        Parameter(s.hidden, queries, each),
    )  # fmt: skip


def _latent_attention(s: Sizes, m: Latent) -> tuple[Parameter, ...]:
    """wq, or wq_a, its norm and wq_b; wkv_a, its norm and wkv_b; wo. What leads into the latents is replicated over
    tensor parallelism."""
    heads = s.heads // s.tp
    queries = heads * (m.nope + m.rope)
    each = _linear_bytes(s, s.float8 is not None and s.float8.attention)
    query: tuple[Parameter, ...] = (Parameter(queries, s.hidden, each),)
    if m.q_rank:
        query = (Parameter(m.q_rank, s.hidden, each), Parameter(m.q_rank, 1), Parameter(queries, m.q_rank, each))
    return (
        *query, Parameter(m.kv_rank + m.rope, s.hidden, each), Parameter(m.kv_rank, 1),
        Parameter(heads * (m.nope + m.value), m.kv_rank, each), Parameter(s.hidden, heads * m.value, each),
    )  # fmt: skip


def _mlp(s: Sizes, width: int) -> tuple[Parameter, ...]:
    """w1, w2, w3."""
    ffn = width // s.tp
    each = _linear_bytes(s, s.float8 is not None and s.float8.mlp)
    return (Parameter(ffn, s.hidden, each), Parameter(s.hidden, ffn, each), Parameter(ffn, s.hidden, each))


def _routed(s: Sizes, moe: Experts, local: int, ranks: int) -> tuple[Parameter, ...]:
    """w1, w2, w3 of the experts of a rank: cut by experts, or inside each expert where there are more ranks."""
    ffn = moe.ffn // moe.tp
    if moe.ep > 1 and ranks * moe.ep > moe.count:
        return (Parameter(ffn, local * s.hidden), Parameter(s.hidden, local * ffn), Parameter(ffn, local * s.hidden))
    return (Parameter(local, ffn * s.hidden),) * 3


def routed_weights(s: Sizes, moe: Experts) -> int:
    """Elements of the experts of a rank."""
    return 3 * moe.local * (moe.ffn // moe.tp) * s.hidden


def tensors(s: Sizes) -> int:
    """Number of parameters: each has a step counter in the optimizer."""
    return sum(len(group.parameters) for group in stored(s))
