"""Which rules can tell the recipes of a space apart.

A condition is run once on the recipe as it stands while every argument that it reads is noted. One that reads none of
the arguments that the search changes takes the same path everywhere, and so has the same outcome everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.namespace import DERIVED, Namespace
from primus_lint.rules.engine import UNDECIDED
from primus_lint.tune.keys import FOLLOWING, TUNED

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.rules.catalogue import Entry

# What the search changes, and what the frameworks set by themselves because of that (`lower.megatron.adjust`); a test
# holds this against namespaces of the space.
VARYING = frozenset(
    (*TUNED, *FOLLOWING, "env_CUDA_DEVICE_MAX_CONNECTIONS", "overlap_p2p_comm", "align_param_gather", "accumulate_allreduce_grads_in_fp32", "fp8_param_gather",
     "use_layer_wise_distributed_optimizer", "moe_use_fused_router_with_aux_score", "moe_router_padding_for_quantization",
     "use_turbo_fused_act_with_probs")
)  # fmt: skip


class Traced(Namespace):
    """A namespace that notes the arguments that are read, also through derived symbols."""

    __slots__ = ("_memo", "reads")

    def __init__(self, names: Namespace) -> None:
        super().__init__(dict(names), names.given)
        self.reads: set[str] = set()
        self._memo: dict[str, tuple[Any, set[str]]] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in DERIVED or dict.__contains__(self, name):
            self.reads.add(name.removeprefix("given_"))
            return super().__getitem__(name)
        if name not in self._memo:
            outer, self.reads = self.reads, set()
            try:
                value = DERIVED[name](self)
                self._memo[name] = (value, self.reads)
            finally:
                outer |= self.reads
                self.reads = outer
        value, reads = self._memo[name]
        self.reads |= reads
        return value

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def reads(function: Callable[[Any], Any], names: Traced) -> tuple[Any, set[str]]:
    """The outcome of a condition (None: undecided), and the arguments that it read."""
    names.reads = set()
    try:
        outcome = function(names)
    except UNDECIDED:
        outcome = None
    return outcome, names.reads


def deciding(entries: list[Entry], names: Namespace) -> list[Entry]:
    """The rules whose outcome can differ inside the space, or that the recipe breaks whatever is changed. `names` is a
    fresh namespace of the recipe as it stands."""
    traced = Traced(names)
    kept = []
    for entry in entries:
        assert entry.function is not None
        outcome, read = reads(entry.function, traced)
        if read & VARYING or outcome:
            kept.append(entry)
    return kept
