"""One section of a recipe on one target, with everything that is computed about it: conditions, memory, time."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron import Lowered
from primus_lint.target import Assumed
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from primus_lint.hardware import Accelerator
    from primus_lint.ir.run import Run, Target
    from primus_lint.ledger import Abstention, Ledger
    from primus_lint.ledger.host import NodeMemory
    from primus_lint.projection import Projection
    from primus_lint.readers.document import ResolvedDocument, Section
    from primus_lint.report.base import Before
    from primus_lint.rules.catalogue import Entry
    from primus_lint.rules.finding import Finding

GRID_FAMILIES = frozenset("PBLECRO")  # errors of these rules leave nothing that memory or time could be computed for
LENGTH_RULES = "B3"  # length of the training and learning rates: an error there stops the run, not the account
UNKNOWN_SIZES = "sizes that no time can be computed for"


class HostMemory(NamedTuple):
    """A kind of node, the bytes of host memory that one usually has, and those in use on the fullest."""

    node: str
    capacity_bytes: int
    used: NodeMemory


class Subject:
    """One section of a document on one target, with its passes: each is computed once, at its first use.

    This one is of Megatron; see `frameworks` for those of which less is known.
    """

    lowering = "primus_lint.lower.megatron"  # its `lower` makes the namespace that the framework's conditions are about
    has_figures = True  # whether memory and time are modelled

    def __init__(
        self,
        document: ResolvedDocument,
        section: Section,
        target: Target,
        version: str,
        assumed: Sequence[Assumed] = (),
    ) -> None:
        self.document = document
        self.section = section
        self.target = target
        self.version = version
        self.assumed = assumed
        self.framework = section.framework
        if section.framework == "megatron" and document.format.startswith("primus"):
            self.framework = "primus-megatron"  # Primus makes Megatron's arguments
        self.exported: set[str] = set()  # variables that the file or the user sets for the run
        self.env: dict[str, str] | None = None  # the whole environment of a rank; None: what the launcher sets
        self.launched = False  # whether the launcher sets CUDA_DEVICE_MAX_CONNECTIONS after `env` was exported
        self.stack: Mapping[str, Any] | None = None  # arch, te, torch, where known
        self.before: Before | None = None  # the same section at the base revision
        self.wanted: Callable[[Entry], bool] | None = None  # which rules below error level are worth a wording
        self.shown_as: dict[str, str] = {}  # name of a finding that is not shown -> how a summary names it
        if document.env and document.format != "batch":
            self.export({name: value.value for name, value in document.env.items()})

    def export(self, variables: Mapping[str, str]) -> None:
        """Set environment variables of the run, on top of what the launcher sets (and of earlier ones)."""
        from primus_lint.lower.megatron import launcher_env

        self.exported.update(variables)
        launcher = launcher_env(self.framework, self.arguments)
        self.env = {**launcher, **(self.env or {}), **variables}
        self.launched = self.framework == "primus-megatron"

    @property
    def arguments(self) -> dict[str, Any]:
        """The section's keys with their values."""
        return {key: value.value for key, value in self.section.values.items()}

    def env_under(self, args: Mapping[str, Any]) -> Mapping[str, str] | None:
        """The environment of a rank under some arguments: Primus sets one variable by the kind of sharding."""
        if not self.launched or self.env is None:
            return self.env
        from primus_lint.lower.megatron import launcher_env

        name = "CUDA_DEVICE_MAX_CONNECTIONS"
        return {**self.env, name: launcher_env(self.framework, args)[name]}

    @property
    def modelled(self) -> bool:
        """Whether the framework's conditions are known."""
        return self.lowering != ""

    @cached_property
    def lowered(self) -> Lowered:
        from importlib import import_module

        lower = import_module(self.lowering).lower
        env = self.env_under(self.arguments)
        result: Lowered = lower(self.section, self.target, self.version, self.framework, env, self.stack)
        return result

    @property
    def run(self) -> Run | None:
        return self.lowered.run

    @cached_property
    def accelerator(self) -> Accelerator | None:
        from primus_lint.hardware import accelerator

        return None if self.target.gpu is None else accelerator(self.target.gpu)

    @cached_property
    def conditions(self) -> list[Finding]:
        """Findings of the framework's conditions, the earliest failing stage first."""
        from primus_lint.rules.engine import check

        return check(self.lowered, self.wanted)

    @cached_property
    def computable(self) -> bool:
        """Whether memory and time mean something: a complete recipe whose grid, batch and layout are legal."""
        if not self.modelled or self.document.unresolved:
            return False
        return self.complete and not self._broken

    @property
    def complete(self) -> bool:
        """Whether every size that memory and time need is stated, or has a default."""
        return self.run is not None

    @cached_property
    def _broken(self) -> list[str]:
        """Names of the broken rules that leave nothing to be computed (severities may change afterwards)."""
        return [finding.name for finding in self.conditions if _leaves_no_account(finding)]

    @property
    def grid_known(self) -> bool:
        """Whether all degrees are known."""
        return True

    def presumed(self) -> list[Assumed]:
        """What the recipe leaves to a file that is not at hand, and was known by its name."""
        if self.run is None:
            return []
        known = self.lowered.namespace["tokenizer_vocabulary"]
        return [] if known is None else [Assumed("vocab_size", f"{known.size:,}", f"the tokenizer {known.source}")]

    @cached_property
    def legal_world_sizes(self) -> list[int]:
        from primus_lint.rules.worlds import legal_world_sizes

        return legal_world_sizes(self.lowered)

    @cached_property
    def roomiest(self) -> tuple[int, Ledger | None]:
        """See `rules.checks.memory.roomiest`; of a recipe with legal sizes and a known device."""
        from primus_lint.rules.checks.memory import roomiest

        assert self.accelerator is not None
        return roomiest(self, self.accelerator, self.legal_world_sizes)

    @cached_property
    def account(self) -> Ledger | Abstention:
        """The memory account, or the reasons why there is none."""
        from primus_lint.ledger import Abstention

        if not self.has_figures:
            return Abstention(self.not_modelled)
        return self._account() if self.computable else Abstention((self._uncomputable(),))

    def _account(self) -> Ledger | Abstention:
        from primus_lint.ledger import ledger

        assert self.run is not None
        return ledger(self.run, self.accelerator)

    @property
    def ledger(self) -> Ledger | None:
        from primus_lint.ledger import Ledger

        return self.account if isinstance(self.account, Ledger) else None

    @property
    def fits(self) -> bool | None:
        """Whether every rank has room; None when the band of some rank holds the capacity, or either is not known."""
        if self.ledger is None or self.accelerator is None:
            return None
        return self.ledger.fits(self.accelerator.visible_hbm_bytes)

    def _uncomputable(self) -> str:
        """Why neither memory nor time of a known framework can be computed."""
        if self._broken and not self.document.unresolved:  # without its presets a recipe breaks rules that it keeps
            named = [self.shown_as.get(name, name) for name in self._broken]
            return f"the recipe is illegal: {', '.join(dict.fromkeys(named))}"
        return f"the recipe is incomplete: {self.incomplete}"

    @property
    def incomplete(self) -> str:
        """What keeps a recipe from being calculated with; "" when it can be, or when that is not known."""
        if self.document.unresolved:
            return ", ".join(self.document.unresolved)
        return "" if self.complete else self._unstated()

    def _unstated(self) -> str:
        """The keys without which nothing can be calculated, with what they hold."""
        from primus_lint.lower.megatron.kinds import unusable

        keys = unusable(self.lowered.namespace)
        texts = {key: "not given" if value is None else repr(value) for key, value in keys.items()}
        said = [f"{key} is {text if len(text) <= 60 else text[:57] + '...'}" for key, text in texts.items()]
        return ", ".join(said) or "its sizes cannot be calculated with"

    @property
    def no_memory(self) -> tuple[str, ...]:
        """Why there is no memory account; empty when there is one."""
        from primus_lint.ledger import Abstention

        if self.has_figures and not self.computable:  # in the names that are shown by now
            return (self._uncomputable(),)
        return self.account.reasons if isinstance(self.account, Abstention) else ()

    @property
    def no_time(self) -> tuple[str, ...]:
        """Why nothing is projected; empty when something is."""
        if self.projection is not None:
            return ()
        if not self.has_figures:
            return self.not_modelled
        if not self.computable:
            return (self._uncomputable(),)
        if self.target.world_size is None:
            return ("the world size is not known",)
        if self.accelerator is None:
            return ("no GPU kind is known",)
        return self._no_time()

    def _no_time(self) -> tuple[str, ...]:
        from primus_lint.projection.project import why_not

        assert self.timed_run is not None
        return (why_not(self.timed_run) or UNKNOWN_SIZES,)

    @property
    def timed_run(self) -> Run | None:
        """The typed recipe whose step is projected."""
        return self.run

    @cached_property
    def host_memory(self) -> HostMemory | None:
        """Host memory of the fullest node against what such a node has; None when either is not known."""
        if self.ledger is None or self.accelerator is None or self.run is None or self.target.world_size is None:
            return None
        from primus_lint.hardware import node_type
        from primus_lint.ledger.host import node

        kind = node_type(self.accelerator.name, self.target.gpus_per_node)
        if kind is None or kind.host_memory_bytes is None:
            return None
        used = node(self.ledger, self.target.world_size, self.target.gpus_per_node, self.run.parallel.tp)
        return HostMemory(kind.name, kind.host_memory_bytes, used)

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What no figure of memory or time takes into account, or why there is none."""
        return tuple(self.run.not_modelled) if self.run is not None else (self._uncomputable(),)

    @cached_property
    def projection(self) -> Projection | None:
        from primus_lint.projection import project

        if not self.computable or self.accelerator is None or self.target.world_size is None:
            return None
        return None if self.timed_run is None else project(self.timed_run, self.accelerator, ledger=self.ledger)

    def at_world(self, world_size: int, legal: bool = False) -> Subject:
        """The same section on another number of GPUs; `legal`: one of the legal sizes, no condition is asked again."""
        from primus_lint.ir.run import Target

        other = self.like(self.section, Target(self.target.gpu, world_size, self.target.gpus_per_node))
        if legal:
            other.computable = other.complete
        return other

    def like(self, section: Section, target: Target) -> Subject:
        """Another section or target of the same file, in the same environment and judged by the same rules."""
        other = type(self)(self.document, section, target, self.version, self.assumed)
        other.framework, other.env, other.stack = self.framework, self.env, self.stack
        other.launched, other.wanted = self.launched, self.wanted
        return other


def _leaves_no_account(finding: Finding) -> bool:
    """Whether a finding means that neither memory nor time can be computed."""
    return (
        finding.severity == "error" and finding.code[0] in GRID_FAMILIES and not finding.code.startswith(LENGTH_RULES)
    )
