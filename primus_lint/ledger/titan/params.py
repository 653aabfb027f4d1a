"""Parameters of a Llama 3 model under FSDP2 and tensor parallelism: groups, shards, what a gathered group holds.

FSDP2 wraps the embedding, every block, and final norm with output layer, each as one group. A parameter is sharded by
its rows (after tensor parallelism): every rank stores ceil(rows/N) of them, the last ranks with padding; the optimizer
keeps states of the real rows only (byte-accounting of the reference, torchtitan section; held against the real code).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from primus_lint.ledger.titan.sizes import Sizes


class Parameter(NamedTuple):
    """One tensor-parallel rank's part of a weight."""

    rows: int
    columns: int

    @property
    def numel(self) -> int:
        return self.rows * self.columns

    def shard(self, ranks: int) -> int:
        """Elements that a rank stores, padding included."""
        return -(-self.rows // ranks) * self.columns

    def gathered(self, ranks: int) -> int:
        """Elements of the gathered weight, padding included."""
        return self.shard(ranks) * ranks

    def owned(self, ranks: int, rank: int) -> int:
        """Real elements in a rank's shard."""
        each = -(-self.rows // ranks)
        return max(min(each, self.rows - rank * each), 0) * self.columns


class Group(NamedTuple):
    """Parameters that are gathered and reduced together."""

    parameters: tuple[Parameter, ...]

    @property
    def numel(self) -> int:
        return sum(parameter.numel for parameter in self.parameters)

    def shard(self, ranks: int) -> int:
        return sum(parameter.shard(ranks) for parameter in self.parameters)

    def gathered(self, ranks: int) -> int:
        return sum(parameter.gathered(ranks) for parameter in self.parameters)

    def owned(self, ranks: int, rank: int) -> int:
        return sum(parameter.owned(ranks, rank) for parameter in self.parameters)


def embedding(s: Sizes) -> Group:
    return Group((Parameter(s.vocab // s.tp, s.hidden),))


def output(s: Sizes) -> Group:
    """Final norm and output layer."""
    return Group((Parameter(s.hidden, 1), Parameter(s.vocab // s.tp, s.hidden)))


def block(s: Sizes) -> Group:
    """wq, wk, wv, wo, w1, w2, w3 and two norms, with Qwen3's norms of queries and keys; norms are replicated over tensor
    parallelism."""
    queries, keys = s.heads * s.head_dim // s.tp, s.groups * s.head_dim // s.tp
    ffn = s.ffn // s.tp
    of_heads = (Parameter(s.head_dim, 1),) * 2 if s.qwen else ()
    return Group(
        (
            *of_heads,
            Parameter(queries, s.hidden), Parameter(keys, s.hidden), Parameter(keys, s.hidden),
            Parameter(s.hidden, queries), Parameter(ffn, s.hidden), Parameter(s.hidden, ffn), Parameter(ffn, s.hidden),
            Parameter(s.hidden, 1), Parameter(s.hidden, 1),
        )
    )  # fmt: skip


def tensors(s: Sizes) -> int:
    """Number of parameters: each has a step counter in the optimizer."""
    return 1 + s.layers * len(block(s).parameters) + len(output(s).parameters)
