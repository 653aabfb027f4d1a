"""The compiled rule catalogue: conditions at once, words only when a finding needs them."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from primus_lint import resources
from primus_lint.lines import Lines
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Entry(NamedTuple):
    """One rule as the engine runs it. `function(namespace)` is True when the rule is broken; None: a check in code."""

    code: str
    frameworks: tuple[str, ...]
    since: str | None
    until: str | None
    stage: int
    names: tuple[str, ...]
    function: Callable[[Any], Any] | None
    check: str | None
    severity: str
    name: str
    profile: str

    @property
    def module(self) -> str:
        """The module of a check in code; "" for a condition."""
        return "" if self.check is None else self.check.partition(":")[0]

    @property
    def from_one_file(self) -> bool:
        """Whether one file is enough to tell that the rule holds: no siblings and no base revision are compared."""
        return self.module not in ("siblings", "base")


def _newest(root: str) -> float:
    newest = 0.0
    stack = [root]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    stack.append(entry.path)
                newest = max(newest, entry.stat().st_mtime)
    return newest


_own: tuple[str, ...] = ()  # folders of the user's own rules (`rule-paths`)


def use_rule_paths(folders: tuple[str, ...]) -> None:
    """Add the rules of more folders to the shipped ones, from now on. Raises RuleError for a malformed rule and for a
    check in code that is not there."""
    global _own
    if folders == _own:
        return
    _own = folders
    for function in (_compiled, entries, former, facts, documents, codes_by_name, by_code, patterns, applicable):
        function.cache_clear()
    own = [entry.check for entry in entries() if entry.code[0] == "Z" and entry.check is not None]
    if own:
        from primus_lint.rules.judge import check_function

        for check in own:
            check_function(check)


@cache
def _fresh() -> bool:
    """Make sure that the compiled copy is there and not older than its sources; False when it cannot be written."""
    target = resources.compiled("rules_scalar.py")
    if not resources.is_checkout():
        return os.path.isfile(target)
    root = resources.data_root("rules")
    here = os.path.dirname(os.path.abspath(__file__))
    sources = max(_newest(root), os.stat(os.path.join(here, "compile.py")).st_mtime,
                  os.stat(os.path.join(here, "expr.py")).st_mtime)  # fmt: skip
    if os.path.isfile(target) and os.stat(target).st_mtime >= sources:
        return True
    from primus_lint.rules.compile import write_compiled

    try:
        write_compiled(root, resources.DATA)
    except OSError:
        return False
    return True


@cache
def entries(form: str = "scalar") -> tuple[Entry, ...]:
    """All rules in the order in which the real program meets them; `form` is "scalar" or "array"."""
    return tuple(Entry(*row) for row in _compiled(form)["TABLE"])


@cache
def former() -> dict[str, str]:
    """Former name or code of a rule -> its code."""
    table: dict[str, str] = _compiled("scalar")["FORMER"]
    return table


@cache
def _compiled(form: str) -> dict[str, Any]:
    """What the compiled Python source of one form defines."""
    if not _own and _fresh():
        import importlib

        importlib.invalidate_caches()
        return vars(importlib.import_module(f"primus_lint._data.rules_{form}"))
    from primus_lint.rules.compile import compile_rules

    _, scalar, array = compile_rules(resources.data_root("rules"), list(_own))
    space: dict[str, Any] = {}
    exec(compile(scalar if form == "scalar" else array, "<rules>", "exec"), space)
    return space


WORDING = frozenset(
    ("code", "name", "severity", "confidence", "stage", "order", "catalogue", "message", "legal", "labels", "fix", "keys",
     "at", "names", "profile", "suppressible", "group", "told_by",
     "stock")
)  # fmt: skip


@cache
def facts() -> dict[str, dict[str, Any]]:
    """Code -> what a finding of the rule is worded from (`documents` has the rest). Only for look-ups by code."""
    if _own or not _fresh():
        return documents()
    with open(resources.compiled("rules_wording.txt"), encoding="utf-8") as file:
        return Lines(dict(line.split("\t", 1) for line in file))


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Code -> the whole rule file."""
    loaded = _load("rules.json")
    if loaded is not None:
        return loaded
    from primus_lint.rules.compile import compile_rules

    rules, _, _ = compile_rules(resources.data_root("rules"), list(_own))
    return {rule["code"]: rule for rule in rules}


def _load(name: str) -> dict[str, dict[str, Any]] | None:
    if _own or not _fresh():
        return None
    with open(resources.compiled(name), encoding="utf-8") as file:
        return {rule["code"]: rule for rule in json.load(file)}


class Rule(dict[str, Any]):
    """The facts of one rule for a check in code, read only when the check has something to say."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, key: str) -> Any:
        return facts()[self.code][key]

    def get(self, key: str, default: Any = None) -> Any:
        return facts()[self.code].get(key, default)


@cache
def codes_by_name() -> dict[str, str]:
    """Every name and code, former ones too -> code."""
    table = dict(former())
    for entry in entries():
        table[entry.code] = entry.code
        table[entry.name] = entry.code
    return table


@cache
def by_code() -> dict[str, Entry]:
    """Code -> rule, without its texts."""
    return {entry.code: entry for entry in entries()}


@cache
def patterns() -> frozenset[str]:
    """Everything that selects a rule: names, codes and their beginnings, former names and codes, and ALL."""
    names = {"ALL", *former()}
    for entry in entries():
        names.update((entry.name, *(entry.code[:length] for length in range(1, len(entry.code) + 1))))
    return frozenset(names)


@cache
def applicable(framework: str, version: str, form: str = "scalar") -> tuple[Entry, ...]:
    """The rules that hold for a framework at a version."""
    from primus_lint.lower.versions import order

    now = order(version)
    return tuple(
        entry
        for entry in entries(form)
        if (framework in entry.frameworks or "any" in entry.frameworks)
        and (entry.since is None or order(entry.since) <= now)
        and (entry.until is None or order(entry.until) >= now)
    )
