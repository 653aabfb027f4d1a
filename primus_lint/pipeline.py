"""From bytes to findings: a file is read and resolved, each section becomes a `Subject`, and the rules judge it.

The passes of a section (recipe, conditions, memory, time) are in `subject`. `tune/` takes the same parts to rewrite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.frameworks import subject_of
from primus_lint.lower.versions import canonical, default
from primus_lint.readers import read
from primus_lint.source.text import SourceText
from primus_lint.target import Assumed, resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from primus_lint.readers.document import ResolvedDocument
    from primus_lint.report.base import Base
    from primus_lint.rules.catalogue import Entry
    from primus_lint.rules.finding import Finding
    from primus_lint.settings import Settings
    from primus_lint.subject import Subject


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
            subject_of(document, section, target, framework_version(section.framework, stated), checked.assumed)
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
