"""What `primus-lint check` does, without its command-line parser."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from primus_lint.cli import common
from primus_lint.cli.common import UsageError, say

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked, Options
    from primus_lint.report.bundle import Report

MAX_REGRESSION = 3.0  # percent of tokens/s that a recipe may lose against --base
# The module of a format in `report/`, where it has another name.
WRITERS = {"json": "json_report"}


def run_check(files: tuple[str, ...], values: dict[str, Any]) -> int:
    """Check all files, print the reports, return the exit status."""
    from primus_lint.report.bundle import Report

    clock = None
    if values.get("timing"):
        from primus_lint.report.timing import Clock

        clock = Clock()
    options = common.make_options(values)
    _check_baseline_words(files, values)
    if values.get("max_regression") is not None and not values.get("base"):
        raise UsageError("--max-regression compares with a revision: give --base REV, too")
    report = Report([], common.repository_root(common.working_directory()))
    if values.get("base"):
        from primus_lint.report.base import comparing

        with comparing(report, str(values["base"]), _max_regression(values), options):
            report.checked, could_not = check_all(files, options, values)
    else:
        report.checked, could_not = check_all(files, options, values)
    if values.get("no_ignores"):
        for item, finding in report.all():
            finding.suppressed = None
            for subject in item.subjects:
                subject.shown_as.pop(finding.name, None)
    report.grouping = not values.get("no_group")
    if values.get("baseline") or values.get("update_baseline"):
        could_not |= not accept_baseline(report, values)
    if values.get("add_ignores"):
        from primus_lint.rules.add_ignores import add_ignores

        for line in add_ignores(report, str(values["add_ignores"])):
            say(line)
    report.fail_on = fail_on(report.checked, values)
    write_reports(report, values)
    if clock is not None:
        clock.write(sys.stderr)
    return common.exit_code(report.checked, could_not, report.fail_on)


def _max_regression(values: dict[str, Any]) -> float:
    """The share of tokens/s that a recipe may lose. Raises UsageError for what is none."""
    given = values.get("max_regression")
    percent = MAX_REGRESSION if given is None else float(given)
    if not 0 <= percent < 100:
        raise UsageError(f"--max-regression is a share of tokens/s in percent, 0 to below 100, not {percent:g}")
    return percent / 100


def _check_baseline_words(files: tuple[str, ...], values: dict[str, Any]) -> None:
    """`--baseline FILE` without `=` would lint the baseline and accept another one. Raises UsageError."""
    from primus_lint.cli.options import BASELINE

    wrong = next((name for name in files if name.endswith(".json")), None)
    if wrong is not None and values.get("baseline") == BASELINE:
        raise UsageError(f"--baseline takes its file after an equals sign: --baseline={wrong}")


def accept_baseline(report: Report, values: dict[str, Any]) -> bool:
    """Suppress what the baseline lists, or write it first. Whether it could be read."""
    from primus_lint.cli.options import BASELINE
    from primus_lint.rules.baseline import BaselineError, accept, update

    path = str(values.get("baseline") or BASELINE)
    if path == BASELINE:
        path = os.path.join(report.root, BASELINE)
    try:
        if values.get("update_baseline"):
            say(update(report, path))
        report.baseline = accept(report, path)
    except BaselineError as error:
        say(f"primus-lint: {error}")
        return False
    return True


def fail_on(checked: list[Checked], values: dict[str, Any]) -> str:
    if values.get("fail_on"):
        return str(values["fail_on"])
    for item in checked:
        setting = item.settings.fail_on if item.settings is not None else None
        if setting:
            return str(setting)
    return "error"


def check_all(files: tuple[str, ...], options: Options, values: dict[str, Any]) -> tuple[list[Checked], bool]:
    """Check every file; whether some could not be checked at all."""
    from primus_lint.pipeline import check_source

    checked: list[Checked] = []
    failed: list[str] = []
    for path, named, source, settings in common.sources(files, values, failed):
        try:
            item = check_source(source, options, settings)
        except Exception:  # a bug of ours: the other files are checked all the same
            common.internal_error(f"{path} was not checked")
            failed.append(path)
            continue
        if not item.is_recipe and not item.unreadable:
            if not named:
                if hidden := common.hidden_recipe(source):
                    say(f"primus-lint: warning: {path}: {hidden}")
                continue
            if not item.findings:  # else they say why it cannot be read
                say(f"primus-lint: {path}: {common.no_recipe(source)}")
            failed.append(path)
        checked.append(item)
    if len(checked) > 1:
        from primus_lint.rules.siblings import drift

        drift(checked)
    if not any(values.get(name) for name in ("select", "extend_select", "ignore", "profile")):
        say_unused_ignores(checked, [path for path in files or (".",) if os.path.isdir(path)])
    return checked, bool(failed)


def say_unused_ignores(checked: list[Checked], folders: list[str]) -> None:
    """Tell entries of `per-file-ignores` that a run over folders had no use for."""
    if folders and any(True for item in checked if item.settings is not None for _ in item.settings.all_ignores()):
        from primus_lint.rules.unused_ignores import unused_ignores

        for problem in unused_ignores(checked, folders):
            say(common.settings_line(problem))


def write_reports(report: Report, values: dict[str, Any]) -> None:
    """Every requested format to its output, or to standard output. Without a format: text, in GitHub Actions github."""
    in_actions = os.environ.get("GITHUB_ACTIONS") == "true"
    formats = list(values.get("formats") or ()) or ["github" if in_actions else "text"]
    outputs = list(values.get("outputs") or ())
    if len(outputs) > len(formats):
        raise UsageError("more --output than --output-format")
    for index, name in enumerate(formats):
        text = io.StringIO()
        to_file = outputs[index] if index < len(outputs) and outputs[index] != "-" else None
        write_format(name, text, report, values, color=to_file is None and common.use_color(sys.stdout))
        if to_file is None:
            sys.stdout.write(writable(text.getvalue(), sys.stdout.encoding))
        else:
            try:
                with open(to_file, "w", encoding="utf-8") as file:
                    file.write(writable(text.getvalue()))
            except OSError as error:
                raise UsageError(f"--output {to_file} cannot be written: {error.strerror or error}") from None


def writable(text: str, encoding: str | None = "utf-8") -> str:
    """A text that can be encoded: bytes of a recipe that are no UTF-8 reach reports as lone surrogates."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def write_format(name: str, out: io.StringIO, report: Report, values: dict[str, Any], color: bool) -> None:
    if values.get("statistics") and name in ("text", "concise"):
        from primus_lint.report import statistics

        statistics.write(out, report)
    elif name == "text":
        from primus_lint.report import text

        quiet, verbose = bool(values.get("quiet")), bool(values.get("verbose"))
        text.write(out, report, text.Style(color), quiet, verbose)
    else:
        importlib.import_module(f"primus_lint.report.{WRITERS.get(name, name)}").write(out, report)
