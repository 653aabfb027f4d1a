"""What `primus-lint check` does, without its command-line parser."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

from primus_lint.cli import common
from primus_lint.cli.common import UsageError, say

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked


def run_check(files: tuple[str, ...], values: dict[str, Any]) -> int:
    """Check all files, print the reports, return the exit status."""
    options = common.make_options(values)
    checked, could_not = check_all(files, options, values)
    write_reports(checked, values)
    return common.exit_code(checked, could_not, fail_on(checked, values))


def fail_on(checked: list[Checked], values: dict[str, Any]) -> str:
    if values.get("fail_on"):
        return str(values["fail_on"])
    for item in checked:
        setting = item.settings.fail_on if item.settings is not None else None
        if setting:
            return str(setting)
    return "error"


def check_all(files: tuple[str, ...], options: Any, values: dict[str, Any]) -> tuple[list[Checked], bool]:
    """Check every file; whether some could not be checked at all."""
    from primus_lint.pipeline import check_source

    checked: list[Checked] = []
    could_not = False
    overrides = {
        "select": _names(values.get("select")),
        "extend_select": _names(values.get("extend_select")),
        "ignore": _names(values.get("ignore")),
        "profile": values.get("profile"),
    }
    shown: set[str] = set()
    for path, alone in common.find_files(files or (() if values.get("hook") else (".",))):
        try:
            source = common.read_source(path, values.get("stdin_filename"))
        except OSError as error:
            say(f"primus-lint: {path}: {error.strerror or error}")
            could_not = True
            continue
        settings = common.settings_for(source.path, values.get("config"), bool(values.get("isolated")), overrides)
        could_not |= not common.settings_problems(settings, shown)
        item = check_source(source, options, settings)
        if not item.is_recipe and not item.unreadable:
            if not alone or values.get("hook"):
                continue
            say(f"primus-lint: {path}: not a training recipe that primus-lint reads")
            could_not = True
        checked.append(item)
    return checked, could_not


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def write_reports(checked: list[Checked], values: dict[str, Any]) -> None:
    """Every requested format to its output; the first format without an output goes to standard output."""
    formats = list(values.get("formats") or ()) or ["text"]
    outputs = list(values.get("outputs") or ())
    if len(outputs) > len(formats):
        raise UsageError("more --output than --output-format")
    for index, name in enumerate(formats):
        text = io.StringIO()
        to_file = outputs[index] if index < len(outputs) else None
        write_format(name, text, checked, values, color=to_file is None and common.use_color(sys.stdout))
        if to_file is None:
            sys.stdout.write(text.getvalue())
        else:
            with open(to_file, "w", encoding="utf-8") as file:
                file.write(text.getvalue())


def write_format(name: str, out: io.StringIO, checked: list[Checked], values: dict[str, Any], color: bool) -> None:
    if name == "json":
        from primus_lint.report import json_report

        json_report.write(out, checked, common.repository_root(os.getcwd()))
        return
    shown = {id(item): [f for f in item.findings if f.suppressed is None] for item in checked}
    if values.get("statistics"):
        write_statistics(out, [finding for item in checked for finding in shown[id(item)]])
        return
    if name == "concise":
        from primus_lint.report import concise

        for item in checked:
            concise.write(out, shown[id(item)])
        return
    from primus_lint.report import text

    style = text.Style(color)
    for item in checked:
        text.write_file(out, item, shown[id(item)], style, quiet=bool(values.get("quiet")))
    if not values.get("quiet"):
        write_totals(out, checked, style)


def write_statistics(out: io.StringIO, findings: list[Any]) -> None:
    counts: dict[tuple[str, str, str], int] = {}
    for finding in findings:
        key = (finding.code, finding.name, finding.severity)
        counts[key] = counts.get(key, 0) + 1
    for (code, name, severity), number in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        out.write(f"{number:>6}  {code}  {severity:8}{name}\n")


def write_totals(out: io.StringIO, checked: list[Checked], style: Any) -> None:
    findings = [finding for item in checked for finding in item.findings]
    counts = dict.fromkeys(("error", "warning", "info"), 0)
    for finding in findings:
        if finding.suppressed is None:
            counts[finding.severity] += 1
    assumed: dict[tuple[str, str], int] = {}
    for item in checked:
        for entry in item.assumed:
            key = (f"{entry.what} {entry.value}", entry.source)
            assumed[key] = assumed.get(key, 0) + 1
    for (what, source), number in assumed.items():
        out.write(style("dim", f"assumed {what} from {source}" + (f" ({number} files)" if number > 1 else "")) + "\n")
    fixable = sum(any(fix.safety == "safe" for fix in f.fixes) for f in findings if f.suppressed is None)
    suppressed = sum(finding.suppressed is not None for finding in findings)
    plural = "" if len(checked) == 1 else "s"
    line = f"{_count(counts['error'], 'error')}, {_count(counts['warning'], 'warning')} in {len(checked)} file{plural}"
    if fixable:
        line += f"; {fixable} with a safe fix (--fix)"
    if suppressed:
        line += f"; {suppressed} suppressed"
    out.write(style("error" if counts["error"] else "bold", line) + "\n")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
