"""The whole data flow on one screen: bytes -> document -> recipe -> ledger -> projection -> findings.

Every arrow is one function; each step runs only when something asks for it. `tune/` takes the same parts to rewrite.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron import Lowered
from primus_lint.lower.versions import canonical, default
from primus_lint.readers import read
from primus_lint.source.text import SourceText
from primus_lint.target import Assumed, resolve_target
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from primus_lint.hardware import Accelerator
    from primus_lint.ir.run import Run, Target
    from primus_lint.ledger import Abstention, Ledger
    from primus_lint.ledger.host import NodeMemory
    from primus_lint.projection import Projection
    from primus_lint.readers.document import ResolvedDocument, Section
    from primus_lint.report.base import Base, Before
    from primus_lint.rules.catalogue import Entry
    from primus_lint.rules.finding import Finding
    from primus_lint.settings import Settings


# Framework of a section -> the module whose `lower` makes the namespace of it.
LOWERINGS = {
    "megatron": "primus_lint.lower.megatron",
    "torchtitan": "primus_lint.lower.torchtitan",
    "megatron_bridge": "primus_lint.lower.bridge",
}
GRID_FAMILIES = frozenset("PBLECRO")  # errors of these rules leave nothing that memory or time could be computed for
UNKNOWN_SIZES = "sizes that no time can be computed for"
LENGTH_RULES = "B3"  # length of the training and learning rates: an error there stops the run, not the account


class Options:
    """What the command line says about how to read and judge, the same for every file."""

    __slots__ = (
        "base", "env", "framework_version", "gpu", "gpus_per_node", "model", "nodes", "primus_root", "set_values",
        "world_size",
    )  # fmt: skip

    def __init__(
        self,
        *,
        gpu: str | None = None,
        nodes: int | None = None,
        world_size: int | None = None,
        gpus_per_node: int | None = None,
        env: Mapping[str, str] | None = None,
        set_values: Sequence[tuple[str, str]] = (),
        model: str | None = None,
        framework_version: str | None = None,
        primus_root: str | None = None,
    ) -> None:
        self.gpu = gpu
        self.nodes = nodes
        self.world_size = world_size
        self.gpus_per_node = gpus_per_node
        self.env = dict(env or {})
        self.set_values = tuple(set_values)
        self.model = model
        self.framework_version = framework_version
        self.primus_root = primus_root
        self.base: Base | None = None  # the revision to compare with


class HostMemory(NamedTuple):
    """A kind of node, the bytes of host memory that one usually has, and those in use on the fullest."""

    node: str
    capacity_bytes: int
    used: NodeMemory


class Subject:
    """One section of a document on one target, with its passes: each is computed once, at its first use."""

    def __init__(
        self, document: ResolvedDocument, section: Section, target: Target, version: str, assumed: Sequence[Assumed]
    ) -> None:
        self.document = document
        self.section = section
        self.target = target
        self.version = version
        self.assumed = assumed
        self.framework = section.framework
        if section.framework == "megatron" and document.format.startswith("primus"):
            self.framework = "primus-megatron"
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
        if self.section.framework != "megatron":
            return
        from primus_lint.lower.megatron import launcher_env

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
        """Whether the framework's conditions are known: a lowering gives the names that they are about."""
        return self.section.framework in LOWERINGS

    @cached_property
    def lowered(self) -> Lowered:
        from importlib import import_module

        lower = import_module(LOWERINGS[self.section.framework]).lower
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
        return (self.run is not None or self.framework == "torchtitan") and not self._broken

    @cached_property
    def _broken(self) -> list[str]:
        """Names of the broken rules that leave nothing to be computed (severities may change afterwards)."""
        return [finding.name for finding in self.conditions if _leaves_no_account(finding)]

    @property
    def grid_known(self) -> bool:
        """Whether all degrees are known: a Megatron-Bridge recipe may set its own in code."""
        if self.framework != "megatron_bridge":
            return True
        return all(self.lowered.namespace[name] is not None for name in ("tp", "pp", "cp"))

    def presumed(self) -> list[Assumed]:
        """What the recipe leaves to a file that is not at hand, and was known by its name."""
        if self.section.framework != "megatron" or self.run is None:
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

        if not self.modelled or self.framework == "megatron_bridge":
            return Abstention(self.not_modelled)
        if not self.computable:
            return Abstention((self._uncomputable(),))
        if self.framework == "torchtitan":
            from primus_lint.ledger.titan import ledger as titan_ledger
            from primus_lint.lower.megatron.namespace import WRONG_KIND

            try:
                return titan_ledger(self.lowered.namespace, self.accelerator)
            except WRONG_KIND:  # text or a list where a number belongs: the key rules say which
                return Abstention(("torchtitan: a value of a wrong kind",))
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
        if self._broken:
            named = [self.shown_as.get(name, name) for name in self._broken]
            return f"the recipe is illegal: {', '.join(dict.fromkeys(named))}"
        return f"the recipe is incomplete: {self.incomplete}"

    @property
    def incomplete(self) -> str:
        """What keeps a recipe from being calculated with; "" when it can be, or when that is not known."""
        if self.document.unresolved:
            return ", ".join(self.document.unresolved)
        if self.section.framework != "megatron" or self.run is not None:
            return ""
        from primus_lint.lower.megatron.kinds import unusable

        keys = unusable(self.lowered.namespace)
        texts = {key: "not given" if value is None else repr(value) for key, value in keys.items()}
        said = [f"{key} is {text if len(text) <= 60 else text[:57] + '...'}" for key, text in texts.items()]
        return ", ".join(said) or "its sizes cannot be calculated with"

    @property
    def no_memory(self) -> tuple[str, ...]:
        """Why there is no memory account; empty when there is one."""
        if self.ledger is None and self.modelled and self.framework != "megatron_bridge" and not self.computable:
            return (self._uncomputable(),)
        return () if self.ledger is not None else self.account.reasons  # type: ignore[union-attr]

    @property
    def no_time(self) -> tuple[str, ...]:
        """Why nothing is projected; empty when something is."""
        if self.projection is not None:
            return ()
        if not self.modelled or self.framework == "megatron_bridge":
            return self.not_modelled
        if not self.computable:
            return (self._uncomputable(),)
        if self.target.world_size is None:
            return ("the world size is not known",)
        if self.accelerator is None:
            return ("no GPU kind is known",)
        from primus_lint.projection.project import why_not

        run = self.timed_run
        if run is None:
            return self._titan_time[1]
        return (why_not(run) or UNKNOWN_SIZES,)

    @property
    def timed_run(self) -> Run | None:
        """The typed recipe whose step is projected: for TorchTitan, Megatron's that does the same work."""
        return self._titan_time[0] if self.framework == "torchtitan" else self.run

    @cached_property
    def _titan_time(self) -> tuple[Run | None, tuple[str, ...]]:
        """TorchTitan's timed recipe and what its time takes for something else; or None and why there is none."""
        from primus_lint.lower.megatron.namespace import WRONG_KIND
        from primus_lint.lower.torchtitan.timed import notes, reasons, timed_run

        names = self.lowered.namespace
        try:
            against = reasons(names)
            if self.target.world_size is None:
                return None, against
            run = None if against else timed_run(names, self.target)
            return run, against or (notes(names) if run is not None else (f"torchtitan: {UNKNOWN_SIZES}",))
        except (*WRONG_KIND, ArithmeticError):  # text or a list where a number belongs: the key rules say which
            return None, ("torchtitan: time, because of a value of a wrong kind",)

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
        if not self.modelled:
            return (f"framework {self.section.framework}: keys and text are checked; memory and time are not modelled",)
        if self.framework == "torchtitan":
            from primus_lint.ledger.titan import open_points
            from primus_lint.lower.megatron.namespace import WRONG_KIND

            try:
                return (*open_points(self.lowered.namespace), *self._titan_time[1])
            except WRONG_KIND:
                return ("torchtitan: memory and time, because of a value of a wrong kind",)
        if self.framework == "megatron_bridge":
            own = () if self.grid_known else ("megatron_bridge: the degrees that the recipe sets itself",)
            return (*own, "megatron_bridge: memory and time")
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
            other.computable = other.run is not None or other.framework == "torchtitan"
        return other

    def like(self, section: Section, target: Target) -> Subject:
        """Another section or target of the same file, in the same environment and judged by the same rules."""
        other = Subject(self.document, section, target, self.version, self.assumed)
        other.framework, other.env, other.stack = self.framework, self.env, self.stack
        other.launched, other.wanted = self.launched, self.wanted
        return other


def _leaves_no_account(finding: Finding) -> bool:
    """Whether a finding means that neither memory nor time can be computed."""
    return (
        finding.severity == "error" and finding.code[0] in GRID_FAMILIES and not finding.code.startswith(LENGTH_RULES)
    )


class Checked:
    """What came out of one file."""

    __slots__ = ("assumed", "document", "findings", "path", "settings", "subjects", "unreadable")

    def __init__(self, path: str, document: ResolvedDocument) -> None:
        self.path = path
        self.document = document
        self.settings: Settings | None = None
        self.subjects: list[Subject] = []
        self.findings: list[Finding] = []
        self.assumed: list[Assumed] = []
        self.unreadable = False  # the file could not be parsed or resolved: exit 2

    @property
    def is_recipe(self) -> bool:
        return self.document.is_recipe


def check_source(source: SourceText, options: Options, settings: Settings | None = None) -> Checked:
    """Read, resolve, lower and judge one file."""
    from primus_lint.rules.judge import judge

    checked = resolve_source(source, options, settings)
    checked.findings = judge(checked, settings)
    checked.assumed += [item for subject in checked.subjects for item in subject.presumed()]
    return checked


def resolve_source(source: SourceText, options: Options, settings: Settings | None = None) -> Checked:
    """Read and resolve one file; nothing is judged yet."""
    document = read(
        source, env=options.env, set_values=options.set_values, primus_root=options.primus_root, model=options.model,
        version=options.framework_version or (settings.framework_version if settings else None),
    )  # fmt: skip
    checked = Checked(source.path, document)
    checked.settings = settings
    checked.unreadable = document.is_recipe and document.fatal
    if document.is_recipe:
        target, checked.assumed = resolve_target(
            source.path, source, settings, gpu=options.gpu, nodes=options.nodes,
            world_size=options.world_size, gpus_per_node=options.gpus_per_node, document=document,
        )  # fmt: skip
        stated = stated_versions(options, settings, document)
        if document.format in ("shell", "megatron-yaml") and document.framework_version:
            why = "flags that older versions do not have"
            checked.assumed.append(Assumed("framework_version", document.framework_version, why))
        checked.subjects = [
            Subject(document, section, target, framework_version(section.framework, stated), checked.assumed)
            for section in document.sections
        ]
        for subject in checked.subjects:
            subject.wanted = wanted_rules(settings)
            if options.env:
                subject.export(options.env)
        if options.base is not None and not document.fatal:
            options.base.attach(checked)
    return checked


def wanted_rules(settings: Settings | None) -> Callable[[Entry], bool]:
    """Whether the settings want a rule; an unwanted one need not be worded."""
    from primus_lint.rules.select import chosen

    return lambda entry: chosen(entry.code, entry.name, entry.severity, settings)


def stated_versions(options: Options, settings: Settings | None, document: ResolvedDocument) -> list[str]:
    """What is said about the framework's version, the strongest first: command line, settings, the file or presets."""
    stated = [options.framework_version, settings.framework_version if settings else None, document.framework_version]
    return [name for name in stated if name is not None]


def framework_version(framework: str, stated: Sequence[str]) -> str:
    """The version of a section's framework: the first name that is one of its versions, else what Primus pins."""
    for name in stated:
        version = canonical(framework, name)
        if version is not None:
            return version
    return default(framework)
