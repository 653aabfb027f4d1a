"""Options and steps that several commands share."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

from primus_lint.readers import SHELL_SUFFIXES, YAML_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Checked, Options
    from primus_lint.readers.document import LocatedProblem
    from primus_lint.settings import Settings
    from primus_lint.source.text import SourceText

SUFFIXES = (*YAML_SUFFIXES, *SHELL_SUFFIXES)
SKIPPED_FOLDERS = {
    ".git",
    ".hg",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".tox",
    ".mypy_cache",
    "dist",
    "build",
}


class UsageError(Exception):
    """The command was used wrongly; the message says how it is meant."""


def say(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(text + "\n")


def internal_error(lost: str) -> None:
    """Tell a bug of ours, with what was lost by it."""
    import traceback

    traceback.print_exc()
    say(f"primus-lint: internal error, please report it: {lost}")


def make_options(values: dict[str, Any]) -> Options:
    """The Options of a command's parameters. Raises UsageError."""
    from primus_lint.lower.versions import canonical, versions
    from primus_lint.pipeline import Options

    if values.get("nodes") is not None and values.get("world_size") is not None:
        raise UsageError("--nodes and --world-size say the same thing: give one of them")
    version = values.get("framework_version")
    if version is not None and all(canonical(framework, version) is None for framework in ("megatron", "torchtitan")):
        known = (*versions("megatron"), *versions("torchtitan"))
        raise UsageError(f"--framework-version {version!r} is not known; known are {', '.join(known)}")
    gpu = values.get("gpu")
    if gpu is not None:
        check_gpu(gpu)
    return Options(
        gpu=gpu,
        nodes=values.get("nodes"),
        world_size=values.get("world_size"),
        gpus_per_node=values.get("gpus_per_node"),
        env=dict(pair(item, "--env") for item in values.get("env") or ()),
        set_values=[set_pair(item) for item in values.get("set_values") or ()],
        model=values.get("model"),
        framework_version=version,
        primus_root=values.get("primus_root"),
    )


def refuse_what_if(values: dict[str, Any], instead: str) -> None:
    """Raises UsageError when a file would be written that is right only with the values of `--set`."""
    keys = ", ".join(text.partition("=")[0] for text in values.get("set_values") or ())
    if keys:
        raise UsageError(
            f"--set ({keys}) asks what would be if: the file does not hold these values, so nothing is written for them; "
            f"put them into the file, or look at the changes with {instead}"
        )


def check_gpu(name: str, where: str = "--gpu ") -> None:
    from primus_lint.hardware import accelerator, names

    if accelerator(name) is None:
        import difflib

        near = difflib.get_close_matches(name.lower(), [item.lower() for item in names()], 3, 0.4)
        hint = f" (near: {', '.join(near)})" if near else ""
        raise UsageError(f"{where}{name!r} is not known{hint}; known are {', '.join(names())}")


def pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} wants NAME=VALUE, not {text!r}")
    return name, value


def set_pair(text: str) -> tuple[str, str]:
    """Key and value of `--set`. Raises UsageError for broken YAML, and for a key written as a path of the file."""
    name, value = pair(text, "--set")
    if name.startswith("modules."):
        _, overrides, key = name.partition(".overrides.")
        key = key if overrides else name.split(".", 2)[-1]
        raise UsageError(f"--set {name}: keys are named as under `overrides`, without a path: --set {key}={value}")
    if value.strip()[:1] in ("[", "{", '"', "'"):
        import yaml

        try:
            yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = getattr(error, "problem", None) or "it cannot be read"
            raise UsageError(f"--set {text}: the value is no YAML: {reason}; put text in quotes") from None
    return name, value


def working_directory() -> str:
    """The working directory. Raises UsageError when it is gone."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(f"the working directory cannot be used: {error.strerror}") from None


def repository_root(start: str) -> str:
    """The folder with `.git` above `start`, else the working directory."""
    folder = os.path.abspath(start)
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return working_directory()
        folder = parent


def find_files(arguments: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """(path, named alone) for every file argument and every YAML file or shell script below a directory argument. What
    is no file there (a link to nothing, a pipe) is left out and said; a folder that cannot be listed is given as it is."""
    for argument in arguments:
        if argument == "-" or not os.path.isdir(argument):
            yield argument, True
            continue
        empty = True
        closed: list[OSError] = []
        for folder, folders, files in os.walk(argument, onerror=closed.append):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
            for name in sorted(files):
                if name.endswith(SUFFIXES) and not name.startswith("."):
                    empty = False
                    path = os.path.join(folder, name).removeprefix("." + os.sep)
                    if os.path.isfile(path):
                        yield path, False
                    else:
                        say(f"primus-lint: warning: {path} is skipped: {_no_file(path)}")
        for error in closed:
            yield str(error.filename), False
        if empty and not closed:
            say(f"primus-lint: {argument}: no YAML file or script below this folder")


def _no_file(path: str) -> str:
    """Why what has the name of a recipe is none."""
    if os.path.exists(path):
        return "not a regular file (a pipe, socket or device)"
    target = os.readlink(path) if os.path.islink(path) else ""
    return f"a link to {target}, which leads to no file" if target else "it is gone"


def replace_file(path: str, data: bytes, expected: bytes) -> None:
    """Put a new text in the place of a file's; what its other hard links keep is said. Raises OSError."""
    from primus_lint.source.files import kept_by_links, write_atomic

    if others := write_atomic(path, data, expected=expected):
        say(f"primus-lint: warning: {path}: {kept_by_links(others)}")


def file_source(path: str) -> SourceText:
    """The text of a file that a command is about. Raises UsageError."""
    try:
        return _recipe_text(path)
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None


def unreadable(path: str, error: OSError) -> str:
    """Why a file cannot be read, with the name of a file that may have been meant."""
    from difflib import get_close_matches

    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"{path}: {_no_file(path)}"
    folder, name = os.path.split(path)
    try:
        near = get_close_matches(name, os.listdir(folder or "."), 1, 0.75) if error.errno == errno.ENOENT else []
    except OSError:
        near = []
    meant = f"; did you mean {os.path.join(folder, near[0])}?" if near else ""
    return f"{path}: {error.strerror or error}{meant}"


def no_recipe(source: SourceText) -> str:
    """What to say of a file that a user named and that is no recipe."""
    hidden = hidden_recipe(source)
    return "not a training recipe that primus-lint reads" + (f"; {hidden}" if hidden else "")


def hidden_recipe(source: SourceText) -> str:
    """What to say of a script that writes a Primus experiment itself; "" for any other file."""
    import re

    if not source.path.endswith(SHELL_SUFFIXES) or "<<" not in source.text:
        return ""
    inside = re.search(r"<<[^\n]+\n(?:.*\n)*?[ \t]*modules:[ \t]*\n(?:.*\n)*?[ \t]+framework:", source.text)
    return "the Primus experiment in its here-document is not read: put it into a file of its own" if inside else ""


def check_file(path: str, values: dict[str, Any]) -> Checked:
    """A file that a command is about, checked under its settings. Raises UsageError where either cannot be used."""
    from primus_lint.pipeline import check_source
    from primus_lint.settings import load_settings

    settings = load_settings(path)
    if not settings_problems(settings, set()):
        raise UsageError(f"the settings ({settings.path}) have a mistake")
    return check_source(file_source(path), make_options(values), settings)


def say_findings(checked: Checked) -> None:
    """Why a command cannot go on with a file: a line a finding."""
    for finding in checked.findings:
        say(f"{finding.severity}[{finding.name}]: {finding.message}")


def _recipe_text(path: str) -> SourceText:
    """The text of a file. Raises OSError, also for a format that no reader knows and that would be no YAML."""
    from primus_lint.source.text import SourceText

    if path.endswith(".toml") and os.path.isfile(path):
        raise OSError(errno.EINVAL, "TOML is not read; recipes of TorchTitan are read from Primus's YAML")
    return SourceText.from_path(path)


def sources(
    files: tuple[str, ...], values: dict[str, Any], failed: list[str]
) -> Iterator[tuple[str, bool, SourceText, Settings]]:
    """(path, whether a user named it, text, settings) of every file that a command is about; what settings exclude is
    left out of folders and hooks. Files that cannot be read or whose settings have a mistake go to `failed`."""
    overrides = {
        "select": _names(values.get("select")),
        "extend_select": _names(values.get("extend_select")),
        "ignore": _names(values.get("ignore")),
        "profile": values.get("profile"),
    }
    shown: set[str] = set()
    hook = bool(values.get("hook"))
    for path, alone in find_files(files or (() if hook else (".",))):
        named = alone and not hook
        try:
            source = read_source(path, values.get("stdin_filename"))
        except OSError as error:
            say(f"primus-lint: {unreadable(path, error)}")
            failed.append(path)
            continue
        settings = settings_for(source.path, values.get("config"), bool(values.get("isolated")), overrides)
        if not settings_problems(settings, shown):
            failed.append(path)
        if named or not settings.excludes(source.path):
            yield path, named, source, settings


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def read_source(path: str, stdin_filename: str | None) -> SourceText:
    """The text of a file or of standard input. Raises OSError."""
    from primus_lint.source.text import SourceText

    if path != "-":
        return _recipe_text(path)
    data = sys.stdin.buffer.read()
    return SourceText.from_bytes(stdin_filename or "<stdin>", data)


def settings_for(path: str, config: str | None, isolated: bool, overrides: dict[str, Any]) -> Settings:
    """The settings of a file with the command line's selection on top."""
    from primus_lint.settings import Settings, load_settings, read_settings

    settings = Settings() if isolated else (read_settings(config) or Settings() if config else load_settings(path))
    if not any(overrides.values()):
        return settings
    top = Settings(settings.path)
    for name, value in overrides.items():
        if value:
            setattr(top, name, value)
    return top.over(settings)


def settings_problems(settings: Settings, shown: set[str]) -> bool:
    """Say once a run what is wrong with a settings file; whether it can be used at all. Its own rules come into force."""
    from primus_lint.rules.catalogue import use_rule_paths
    from primus_lint.rules.select import pattern_problems

    folders = settings.rule_folders()
    try:
        use_rule_paths(folders)
    except ValueError as error:  # RuleError: a malformed rule
        use_rule_paths(())
        raise UsageError(str(error)) from None
    if folders:
        from primus_lint.rules.own import doubts

        for line in doubts(folders):
            if line not in shown:
                say(f"primus-lint: warning: {line}")
                shown.add(line)
    good = True
    known = settings.path is None or settings.path in shown
    for problem in [*([] if known else settings.problems), *pattern_problems(settings)]:
        good &= not problem.fatal
        line = settings_line(problem)
        if line not in shown:
            say(line)
            shown.add(line)
    shown.add(settings.path or "")
    return good


def settings_line(problem: LocatedProblem) -> str:
    """What is wrong with a settings file, in one line."""
    where = f"{problem.path}:{problem.line}:{problem.column}" if problem.line else "primus-lint"
    return f"{where}: {'error' if problem.fatal else 'warning'}[{problem.code}] {problem.message}"


def use_color(out: Any) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (hasattr(out, "isatty") and out.isatty())


def exit_code(checked: list[Checked], could_not: bool, fail_on: str) -> int:
    """0 clean, 1 findings at or above `fail_on`, 2 when something could not be checked; 2 wins."""
    if could_not or any(item.unreadable for item in checked):
        return 2
    from primus_lint.report.bundle import FAILING

    for item in checked:
        if any(finding.severity in FAILING[fail_on] for finding in item.findings if finding.suppressed is None):
            return 1
    return 0
