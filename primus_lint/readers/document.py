"""ResolvedDocument: what every reader produces, whatever the format.

A document holds one or more sections (a Primus file has one per module); a section maps configuration keys to values,
and every value knows its whole origin chain. Nothing here knows bytes or seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from primus_lint.source.spans import Problem, SpanDoc
    from primus_lint.source.text import SourceText

# Layers of precedence, the strongest first. "adjustment" is what the framework or Primus itself changes afterwards.
LAYERS = (
    "adjustment",
    "cli",
    "experiment",
    "extends",
    "module-preset",
    "model-preset",
    "model-table",
    "framework-default",
    "environment",
)


class Origin(NamedTuple):
    """One place that gave a key a value.

    `path` is the file as opened (or a name such as "primus/configs/models/megatron/llama3_8B.yaml" for a preset of the
    shipped snapshot); `key_span` and `span` are character spans of key and value in that file (None when the file is
    not at hand); `line`/`column` are 1-based and point at the value (0 when unknown). `raw` is the text as written, so
    `${PRIMUS_TP:8}` stays visible; `variable` names the environment variable that was consulted.
    """

    layer: str
    value: Any
    path: str | None = None
    key_path: tuple[str | int, ...] = ()
    key_span: tuple[int, int] | None = None
    span: tuple[int, int] | None = None
    line: int = 0
    column: int = 0
    raw: str | None = None
    variable: str | None = None
    note: str = ""


class Value:
    """A resolved value and its origin chain: `origins[0]` won, the rest were overridden, weaker ones last."""

    __slots__ = ("origins", "value")

    def __init__(self, value: Any, origins: tuple[Origin, ...]) -> None:
        self.value = value
        self.origins = origins

    @property
    def origin(self) -> Origin:
        return self.origins[0]

    def __repr__(self) -> str:
        return f"Value({self.value!r}, {self.origin.layer})"


class Section:
    """One trained thing of a document: a Primus module, or the whole of a flat file.

    `values` maps keys to values. Flat frameworks (megatron, maxtext, megatron_bridge) use the key as it stands; nested
    ones (torchtitan, diffusion, nemo_automodel) use dotted leaf keys (`training.seq_len`). `node_path` is the path of
    the mapping in which a new override belongs (for Primus: `("modules", "pre_trainer", "overrides")`). `model` and
    `module_preset` are preset names without `.yaml`. `meta` holds what chooses them (`framework`, `config`, `model`)
    with its place; `dropped` the preset values that never reach the run although no live key stands in their place
    (leaves of a section that the module preset defines as a whole). `own_flags` are command-line flags that only the
    training program itself can know; `whole`: no other file adds arguments to these.
    """

    __slots__ = (
        "command",
        "dropped",
        "framework",
        "meta",
        "model",
        "module_preset",
        "name",
        "node_path",
        "own_flags",
        "values",
        "whole",
    )

    def __init__(
        self,
        name: str,
        framework: str,
        values: dict[str, Value],
        *,
        node_path: tuple[str | int, ...] = (),
        model: str | None = None,
        module_preset: str | None = None,
    ) -> None:
        self.name = name
        self.framework = framework
        self.values = values
        self.node_path = node_path
        self.model = model
        self.module_preset = module_preset
        self.meta: dict[str, Value] = {}
        self.dropped: dict[str, Value] = {}
        self.command: Origin | None = None  # of a script: the command that trains
        self.own_flags: tuple[str, ...] = ()
        self.whole = True

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value.value

    def origin(self, key: str) -> Origin | None:
        value = self.values.get(key)
        return None if value is None else value.origin


class LocatedProblem(NamedTuple):
    """A problem met while reading, in whichever file it lies. `code` is a kebab-case name."""

    code: str
    message: str
    path: str
    span: tuple[int, int] | None = None
    line: int = 0
    column: int = 0
    fatal: bool = False
    key_path: tuple[str | int, ...] = ()
    related: tuple[tuple[str, int, int, str], ...] = ()  # (path, line, column, message)


class ResolvedDocument:
    """The result of reading one file with its presets, parents, environment and `--set` values."""

    __slots__ = (
        "again",
        "doc",
        "env",
        "env_used",
        "format",
        "framework_version",
        "is_recipe",
        "lost",
        "path",
        "preset_source",
        "presets",
        "problems",
        "sections",
        "source",
        "sources",
        "top_level",
    )

    def __init__(
        self,
        path: str,
        format: str,
        *,
        source: SourceText | None = None,
        doc: SpanDoc | None = None,
        sections: list[Section] | None = None,
        problems: list[LocatedProblem] | None = None,
        is_recipe: bool = True,
    ) -> None:
        self.path = path
        self.format = format  # "primus", "primus-export", "megatron-yaml", "shell", "batch"
        self.source = source
        self.doc = doc
        self.sections = sections if sections is not None else []
        self.problems = problems if problems is not None else []
        self.is_recipe = is_recipe  # False: YAML that is no recipe (skipped in directories and hooks)
        self.presets: list[str] = []  # files read besides this one
        self.sources: dict[str, SourceText] = {}  # every file at hand, for excerpts
        self.env_used: dict[str, str | None] = {}  # variable -> value found (None: unset, default taken)
        self.top_level: dict[str, Value] = {}  # dotted leaves outside modules (work_group, platform.config, strays)
        self.env: dict[str, Value] = {}  # variables that the file itself exports (Primus `env:`, Megatron ENV_VARS)
        # what parents set in a section that was replaced as a whole: path of the key -> what replaces it, what was set
        self.lost: dict[tuple[str | int, ...], tuple[Origin, Value]] = {}
        self.preset_source = ""  # where presets came from, for people
        self.again: Callable[[SourceText], ResolvedDocument] | None = None  # reads another text of this file alike
        self.framework_version: str | None = None  # when the file or its presets state one

    @property
    def fatal(self) -> bool:
        return any(problem.fatal for problem in self.problems)

    @property
    def unresolved(self) -> list[str]:
        """Codes of the problems that leave out a whole layer, a preset or a parent: its values are not known."""
        codes = (problem.code for problem in self.problems if problem.fatal)
        return [code for code in dict.fromkeys(codes) if code.startswith(("preset-", "extends-", "missing-model"))]

    def __iter__(self) -> Iterator[Section]:
        return iter(self.sections)


def source_problem(problem: Problem, source: SourceText) -> LocatedProblem:
    """A problem of the source layer, located in its file."""
    line, column = source.position(problem.span[0])
    related = []
    for message, span in problem.related:
        other_line, other_column = source.position(span[0])
        related.append((source.path, other_line, other_column, message))
    return LocatedProblem(
        problem.code, problem.message, source.path, (problem.span[0], problem.span[1]), line, column, problem.fatal,
        related=tuple(related),
    )  # fmt: skip
