"""Fill `Settings` from a parsed TOML table; what is wrong becomes a located problem with the nearest legal name."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import LocatedProblem
from primus_lint.settings import (
    _CHOICES,
    _COUNTS,
    _IGNORES,
    _LISTS,
    _NUMBERS,
    _TEXTS,
    KEYS,
    SEVERITIES,
    TARGET_KEYS,
    read_settings,
    version_satisfies,
)

if TYPE_CHECKING:
    from primus_lint.settings import Settings


def fill(settings: Settings, table: Any, text: str) -> None:
    """Take every legal entry of `table`; `text` is the file, to find lines in."""
    check = _Check(settings, text)
    if not isinstance(table, dict):
        check.problem("tool.primus-lint", "settings-type", "[tool.primus-lint] must be a table", fatal=True)
        return
    for key, value in table.items():
        check.entry(key, value)


def extend(settings: Settings, text: str, chain: tuple[str, ...]) -> None:
    """Lay settings over the file that they extend; `chain` are the files that led here, this one last."""
    check = _Check(settings, text)
    wanted = os.path.expanduser(os.path.expandvars(str(settings.extend)))
    path = os.path.join(settings.root, wanted)
    if os.path.realpath(path) in chain:
        circle = " -> ".join(os.path.relpath(file, settings.root) for file in (*chain, os.path.realpath(path)))
        check.problem("extend", "settings-extend", f"settings extend each other in a circle: {circle}", fatal=True)
        return
    base = read_settings(path, chain)
    if base is not None:
        settings.over(base)
    elif os.path.isfile(path):
        message = f"{settings.extend} has no table [tool.primus-lint] to extend"
        check.problem("extend", "settings-extend", message, fatal=True)
    else:
        message = f"there is no file {settings.extend} to extend (paths start at the folder of this file)"
        check.problem("extend", "settings-extend", message, fatal=True)


def place_of(key: str, text: str) -> tuple[tuple[int, int] | None, int, int]:
    """Span, line and column of the first line that sets a key, else of the first place that names it."""
    match = re.search(rf"^[ \t]*(?:\[+[^\]\n]*\b)?(?P<key>[\"']?{re.escape(key)}[\"']?)\s*[=\].]", text, re.M)
    if match is None:
        match = re.search(rf"(?P<key>{re.escape(key)})", text)
    if match is None:
        return None, 1, 1
    start, end = match.span("key")
    return (start, end), text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


class _Check:
    __slots__ = ("settings", "text")

    def __init__(self, settings: Settings, text: str) -> None:
        self.settings = settings
        self.text = text

    def problem(self, key: str, code: str, message: str, fatal: bool = False) -> None:
        """At the first line that sets the key."""
        span, line, column = place_of(key, self.text)
        self.settings.problems.append(
            LocatedProblem(code, message, str(self.settings.path), span, line, column, fatal, (key,))
        )

    def unknown(self, key: str, legal: tuple[str, ...], where: str) -> None:
        from difflib import get_close_matches

        near = get_close_matches(key.replace("_", "-"), legal, 1, 0.5)
        hint = f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(legal)}"
        if key == "tool":
            hint = ": in this file the settings stand at the top, without [tool.primus-lint]"
        self.problem(key, "settings-unknown-key", f"unknown {where} `{key}`{hint}", fatal=True)

    def wrong(self, key: str, wanted: str, value: Any) -> None:
        self.problem(key, "settings-type", f"`{key}` wants {wanted}, not {value!r}", fatal=True)

    def texts(self, key: str, value: Any) -> tuple[str, ...] | None:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.wrong(key, "a list of strings", value)
        return None

    def entry(self, key: str, value: Any) -> None:
        settings, name = self.settings, key.replace("-", "_")
        if key in _LISTS:
            texts = self.texts(key, value)
            if texts is not None:
                setattr(settings, name, texts)
            if key == "rule-paths":
                self.folders(texts or ())
        elif key in _CHOICES:
            if value in _CHOICES[key]:
                setattr(settings, name, value)
            else:
                self.wrong(key, " or ".join(_CHOICES[key]), value)
        elif key in _TEXTS:
            if not isinstance(value, str):
                self.wrong(key, "a string", value)
                return
            setattr(settings, name, value)
            if key == "required-version":
                self.required(value)
            elif key == "framework-version":
                self.framework(value)
        elif key in _NUMBERS:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                setattr(settings, name, float(value))
            else:
                self.wrong(key, "a number above 0", value)
        elif key in _IGNORES:
            self.per_file_ignores(key, value)
        elif key == "severity":
            self.severity(value)
        elif key == "targets":
            self.targets(value)
        else:
            self.unknown(key, KEYS, "setting")

    def folders(self, paths: tuple[str, ...]) -> None:
        for path in paths:
            if not os.path.isdir(os.path.join(self.settings.root, path)):
                self.problem(path, "settings-rule-paths", f"rule-paths: there is no folder {path}", fatal=True)

    def required(self, wanted: str) -> None:
        from primus_lint import __version__

        holds = version_satisfies(wanted)
        if holds is None:
            self.wrong("required-version", "a version such as 0.2.0 or a range such as `>=0.2, <1`", wanted)
        elif not holds:
            message = f"these settings want primus-lint {wanted}, this is {__version__}"
            self.problem("required-version", "required-version", message, fatal=True)

    def framework(self, name: str) -> None:
        from primus_lint.lower.versions import canonical, versions

        frameworks = ("megatron", "torchtitan")
        if all(canonical(framework, name) is None for framework in frameworks):
            known = ", ".join(version for framework in frameworks for version in versions(framework))
            self.wrong("framework-version", f"a known version ({known})", name)

    def per_file_ignores(self, key: str, value: Any) -> None:
        if not isinstance(value, dict):
            self.wrong(key, "a table of glob = [rules]", value)
            return
        found = []
        for pattern, codes in value.items():
            texts = self.texts(pattern, codes)
            if texts is not None:
                found.append((pattern, texts))
        setattr(self.settings, key.replace("-", "_"), tuple(found))

    def severity(self, value: Any) -> None:
        if not isinstance(value, dict):
            self.wrong("severity", "a table of rule = level", value)
            return
        found = []
        for pattern, level in value.items():
            if level in SEVERITIES:
                found.append((pattern, level))
            else:
                self.wrong(pattern, " or ".join(SEVERITIES), level)
        self.settings.severity = tuple(found)

    def device(self, name: str) -> None:
        from primus_lint.hardware import accelerator, suggest

        if accelerator(name) is None:
            near = suggest(name)
            hint = f"; near: {', '.join(near)}" if near else "; `primus-lint hardware` lists them"
            self.problem(name, "settings-target", f"no device is called {name}{hint}", fatal=True)

    def targets(self, value: Any) -> None:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.wrong("targets", "an array of tables: [[tool.primus-lint.targets]]", value)
            return
        found = []
        for item in value:
            target: dict[str, Any] = {}
            for key, given in item.items():
                if key not in TARGET_KEYS:
                    self.unknown(key, TARGET_KEYS, "key of a target")
                elif key in _COUNTS:
                    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
                        target[key.replace("-", "_")] = given
                    else:
                        self.wrong(key, "a whole number above 0", given)
                elif not isinstance(given, str):
                    self.wrong(key, "a string", given)
                elif key == "gpu":
                    self.device(given)
                    target["gpu"] = given
            pattern = item.get("files")
            if pattern is None:
                self.problem("targets", "settings-type", "a target wants `files`, a glob", fatal=True)
            elif isinstance(pattern, str):
                if "nodes" in target and "world_size" in target:
                    per_node = target.get("gpus_per_node")
                    message = "nodes and world-size say the same thing: give one of them"
                    if per_node is not None:
                        message = f"nodes x gpus-per-node = {target['nodes'] * per_node}, but world-size = {target['world_size']}"
                    if per_node is None or target["nodes"] * per_node != target["world_size"]:
                        self.problem("world-size", "settings-target", f"target {pattern}: {message}", fatal=True)
                found.append((pattern, target))
        self.settings.targets = tuple(found)
