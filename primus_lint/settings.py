"""Settings: the nearest `primus-lint.toml`, or `pyproject.toml` with a table `[tool.primus-lint]`, above each file.

The search goes up to the root of the repository (the folder that holds `.git`). A folder is looked at once a process.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from primus_lint import __version__
from primus_lint.readers.document import LocatedProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_NAMES = ("primus-lint.toml", "pyproject.toml")
FAIL_ON = ("error", "warning", "info", "never")
PROFILES = ("legal", "recommended", "all")
SEVERITIES = ("error", "warning", "info")
_LISTS = ("select", "ignore", "extend-select", "rule-paths", "exclude", "extend-exclude")
_CHOICES = {"fail-on": FAIL_ON, "profile": PROFILES}
_TEXTS = ("extend", "required-version", "framework-version", "agent-url", "agent-model")
_NUMBERS = ("gpu-hour-price",)
_IGNORES = ("per-file-ignores", "extend-per-file-ignores")
KEYS = (*_LISTS, *_CHOICES, *_TEXTS, *_NUMBERS, *_IGNORES, "severity", "targets")
_SINGLE = ("fail_on", "profile", "required_version", "framework_version", "gpu_hour_price", "agent_url", "agent_model")
TARGET_KEYS = ("files", "gpu", "nodes", "world-size", "gpus-per-node")
_COUNTS = ("nodes", "world-size", "gpus-per-node")


class Settings:
    """What one settings file says, over the file that it extends.

    `path` is the file (None: none found, all defaults); its globs and rule paths start at `root`, its folder. `layers` are
    these settings and those beneath, the lowest first. A single value is the nearest layer's that has one, else None;
    lists are what this file says itself, those that replace a lower layer's None where it says nothing.
    """

    __slots__ = (
        "_matchers", "agent_model", "agent_url", "exclude", "extend", "extend_exclude", "extend_per_file_ignores",
        "extend_select", "fail_on", "framework_version", "gpu_hour_price", "ignore", "layers", "path", "per_file_ignores",
        "problems", "profile", "required_version", "root", "rule_paths", "select", "severity", "targets", "used_ignores",
    )  # fmt: skip

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self.root = "" if path is None else os.path.dirname(os.path.abspath(path))
        self.layers: tuple[Settings, ...] = (self,)
        self.extend: str | None = None
        self.select: tuple[str, ...] = ()
        self.ignore: tuple[str, ...] = ()
        self.extend_select: tuple[str, ...] = ()
        self.rule_paths: tuple[str, ...] | None = None
        self.exclude: tuple[str, ...] | None = None
        self.extend_exclude: tuple[str, ...] = ()
        self.per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] | None = None
        self.extend_per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self.severity: tuple[tuple[str, str], ...] = ()
        self.targets: tuple[tuple[str, dict[str, Any]], ...] = ()
        self.fail_on: str | None = None
        self.profile: str | None = None
        self.required_version: str | None = None
        self.framework_version: str | None = None
        self.gpu_hour_price: float | None = None  # of one GPU, in whatever currency
        self.agent_url: str | None = None  # of an OpenAI-compatible endpoint; its key comes from the environment alone
        self.agent_model: str | None = None
        self.problems: list[LocatedProblem] = []
        self.used_ignores: set[tuple[str, str]] = set()  # (glob, rule pattern) of per-file-ignores that hid a finding
        self._matchers: dict[str, Callable[[str], Any]] = {}

    def over(self, base: Settings) -> Settings:
        """These settings on top of others, which give what is not given here."""
        self.layers = (*base.layers, self)
        self.problems = base.problems + self.problems
        for name in _SINGLE:
            if getattr(self, name) is None:
                setattr(self, name, getattr(base, name))
        return self

    def _nearest(self, name: str) -> Settings:
        """The nearest layer that gives a list which replaces those beneath."""
        return next((layer for layer in reversed(self.layers) if getattr(layer, name) is not None), self)

    def matches(self, pattern: str, path: str) -> bool:
        """Whether a glob of this file matches a file (given by any path that leads to it)."""
        matcher = self._matchers.get(pattern)
        if matcher is None:
            matcher = self._matchers[pattern] = re.compile(glob_regex(pattern)).fullmatch
        relative = os.path.relpath(os.path.abspath(path), self.root or ".").replace(os.sep, "/")
        return matcher(relative) is not None

    def rule_folders(self) -> tuple[str, ...]:
        """The folders of `rule-paths`."""
        layer = self._nearest("rule_paths")
        return tuple(os.path.join(layer.root, path) for path in layer.rule_paths or ())

    def excludes(self, path: str) -> bool:
        """Whether a file is left out of runs over folders and of hooks."""
        nearest = self._nearest("exclude")
        return any(nearest.matches(pattern, path) for pattern in nearest.exclude or ()) or any(
            layer.matches(pattern, path) for layer in self.layers for pattern in layer.extend_exclude
        )

    def all_ignores(self) -> Iterator[tuple[Settings, str, tuple[str, ...]]]:
        """(layer, glob, rule patterns) of every entry of `per-file-ignores` that is in force."""
        nearest = self._nearest("per_file_ignores")
        for pattern, ignored in nearest.per_file_ignores or ():
            yield nearest, pattern, ignored
        for layer in self.layers:
            for pattern, ignored in layer.extend_per_file_ignores:
                yield layer, pattern, ignored

    def ignored_in(self, path: str) -> tuple[str, ...]:
        """Rule patterns that `per-file-ignores` switches off in a file."""
        codes: tuple[str, ...] = ()
        for layer, pattern, ignored in self.all_ignores():
            if layer.matches(pattern, path):
                codes += ignored
        return codes

    def target_for(self, path: str) -> dict[str, Any] | None:
        """gpu, nodes, world_size, gpus_per_node of the last entry of `targets` that matches a file, or None."""
        target: dict[str, Any]
        for layer in reversed(self.layers):
            for pattern, target in reversed(layer.targets):
                if layer.matches(pattern, path):
                    return target
        return None


def glob_regex(pattern: str) -> str:
    """A glob as a regular expression over paths with `/`: `*` and `?` stay inside a folder, `**` crosses folders, a
    pattern without `/` matches at any depth, one that ends in `/` everything below."""
    text = pattern.replace(os.sep, "/").removeprefix("./")
    if text.endswith("/"):
        text += "**"
    if "/" not in text:
        text = "**/" + text
    out = []
    at = 0
    while at < len(text):
        if text.startswith("**/", at):
            out.append("(?:[^/]+/)*")
            at += 3
        elif text.startswith("**", at):
            out.append(".*")
            at += 2
        elif text[at] == "*":
            out.append("[^/]*")
            at += 1
        elif text[at] == "?":
            out.append("[^/]")
            at += 1
        elif text[at] == "[" and "]" in text[at + 2 :]:
            end = text.index("]", at + 2)
            body = text[at + 1 : end].replace("\\", "\\\\")
            out.append("[" + ("^" + body[1:] if body[0] == "!" else body) + "]")
            at = end + 1
        elif text[at] == "{" and "}" in text[at:]:
            end = text.index("}", at)
            out.append("(?:" + "|".join(re.escape(part) for part in text[at + 1 : end].split(",")) + ")")
            at = end + 1
        else:
            out.append(re.escape(text[at]))
            at += 1
    return "".join(out)


_FOLDERS: dict[str, Settings] = {}


def load_settings(path: str) -> Settings:
    """The settings for a file or folder. Never raises: what is wrong with them is in `problems`."""
    folder = os.path.abspath(path)
    if not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    found = _FOLDERS.get(folder)
    if found is None:
        found = _FOLDERS[folder] = _search(folder)
    return found


def forget_settings() -> None:
    """Look at the files again (for a server that runs on)."""
    _FOLDERS.clear()


def _search(folder: str) -> Settings:
    for name in FILE_NAMES:
        settings = read_settings(os.path.join(folder, name))
        if settings is not None:
            return settings
    parent = os.path.dirname(folder)
    if parent == folder or os.path.exists(os.path.join(folder, ".git")):
        return Settings()
    return load_settings(parent)


def read_settings(path: str, extending: tuple[str, ...] = ()) -> Settings | None:
    """The settings in a file, over those that it extends; None when there is no such file, or a pyproject.toml says
    nothing about primus-lint. `extending` are the files that led here by `extend`."""
    try:
        if not os.path.isfile(path) and not os.path.islink(path):
            return None
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        target = f" (a link to {os.readlink(path)})" if os.path.islink(path) else ""
        settings = Settings(path)
        message = f"cannot be read: {error.strerror or error}{target}"
        settings.problems.append(LocatedProblem("settings-unreadable", message, path, None, 1, 1, True))
        return settings
    project = os.path.basename(path) == "pyproject.toml"
    if project and b"primus-lint" not in data:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    text = data.decode("utf-8", "replace")
    settings = Settings(path)
    try:
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+), column (\d+)", str(error))
        line, column = (int(match[1]), int(match[2])) if match else (text.count("\n") + 1, 1)
        message = f"not TOML: {error}"
        settings.problems.append(LocatedProblem("settings-syntax", message, path, None, line, column, True))
        return settings
    if project:
        table = table.get("tool", {})
        table = table.get("primus-lint") if isinstance(table, dict) else None
        if table is None:
            return None
    from primus_lint.settings_check import fill

    fill(settings, table, text)
    if settings.extend is not None:
        from primus_lint.settings_check import extend

        extend(settings, text, (*extending, os.path.realpath(path)))
    return settings


def version_satisfies(wanted: str, version: str = __version__) -> bool | None:
    """Whether a version meets `>=0.2, <1`; None when the requirement cannot be read."""
    mine = _release(version)
    for part in wanted.split(","):
        match = re.fullmatch(r"\s*(==|!=|>=|<=|>|<|~=)?\s*v?(\d+(?:\.\d+)*)\s*", part)
        if match is None or mine is None:
            return None
        other = _release(match[2]) or ()
        width = max(len(mine), len(other))
        left = mine + (0,) * (width - len(mine))
        right = other + (0,) * (width - len(other))
        holds = {
            "==": left == right,
            "!=": left != right,
            ">=": left >= right,
            "<=": left <= right,
            ">": left > right,
            "<": left < right,
            "~=": left >= right and left[: max(1, len(other) - 1)] == other[: max(1, len(other) - 1)],
        }
        if not holds[match[1] or "=="]:
            return False
    return True


def _release(text: str) -> tuple[int, ...] | None:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return None if match is None else tuple(int(part) for part in match[0].split("."))


def target_comment(text: str) -> dict[str, Any]:
    """The target that a comment in the file states (`# primus-lint: target gpu=mi355x nodes=4`): gpu, nodes,
    world_size, gpus_per_node as far as given; empty without such a comment. Words that are none of these are skipped
    (the rule target-comment reports them)."""
    return {key: value for key, value, _ in target_words(text) if key is not None}


def target_words(text: str) -> list[tuple[str | None, Any, tuple[int, int]]]:
    """Words of the target comments: (key, value, span in the text); key None for a word that says nothing."""
    words: list[tuple[str | None, Any, tuple[int, int]]] = []
    at = text.find("primus-lint:")
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        start = text.rfind("\n", 0, at) + 1
        body = re.fullmatch(r"primus-lint:\s*target(?:\s*:\s*|\s)(.*)", text[at:end])
        if body is not None and re.search(r"(?:^|\s)#\s*$", text[start:at]):
            for word in re.finditer(r"[^\s,]+", body[1]):
                span = (at + body.start(1) + word.start(), at + body.start(1) + word.end())
                name, _, value = word[0].partition("=")
                key = name.replace("-", "_")
                if key == "gpu" and value:
                    words.append((key, value, span))
                elif key in ("nodes", "world_size", "gpus_per_node") and value.isdecimal() and int(value) > 0:
                    words.append((key, int(value), span))
                else:
                    words.append((None, word[0], span))
        at = text.find("primus-lint:", end)
    return words
