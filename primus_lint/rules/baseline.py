"""The baseline: findings that a repository has accepted for now, by file, rule, key path and value, never by line.

It only shrinks: `update` on a file that exists takes entries away and adds none, and judges only the files and rules of
this run, so that a partial run wipes nothing. The file is JSON, one line an entry, sorted: it merges well.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.report.places import relative, value_of

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.rules.finding import Finding

VERSION = 1
REASON = "in the baseline"  # what `Finding.suppressed` says


class BaselineError(Exception):
    """A baseline that is not there or cannot be read; the message names the file."""


class Entry(NamedTuple):
    """What an accepted finding is known by. `value` is a hash of the key's value (empty: the rule is about no key)."""

    path: str
    rule: str
    key: str
    value: str


class Used(NamedTuple):
    """What a run made of a baseline: findings that it accepts, entries that it no longer needs."""

    path: str
    accepted: int
    unused: list[tuple[Entry, int]]

    def remarks(self) -> list[str]:
        lines = [
            f"{self.path}: no longer needed: {entry.rule} in {entry.path}" + (f" at {entry.key}" if entry.key else "")
            + (f" ({number} times)" if number > 1 else "")
            for entry, number in self.unused
        ]  # fmt: skip
        if self.unused:
            lines.append(f"{self.path}: --update-baseline takes unneeded entries away ({len(self.unused)})")
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "accepted": self.accepted,
            "unused": [{**entry._asdict(), "count": number} for entry, number in self.unused],
        }


def entry_of(finding: Finding, checked: Checked, root: str) -> Entry:
    """The entry that would accept a finding."""
    import hashlib

    value = value_of(finding)
    mark = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12] if value else ""
    key = ".".join(str(part) for part in finding.key_path)
    return Entry(relative(checked.path, root), finding.name, key, mark)


def acceptable(finding: Finding, checked: Checked) -> bool:
    """What keeps a file from being read is never accepted, nor what may not be suppressed."""
    return finding.suppressible and not (checked.unreadable and finding.severity == "error")


def read(path: str) -> dict[Entry, int]:
    """Entry -> how often it may occur. Raises BaselineError."""
    from primus_lint.rules import catalogue

    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if data["version"] != VERSION:
            raise BaselineError(f"{path}: baseline version {data['version']} is not known")
        names = {former: catalogue.by_code()[code].name for former, code in catalogue.former().items()}
        return {
            Entry(name, names.get(item["rule"], item["rule"]), item["key"], item["value"]): int(item["count"])
            for name, items in data["files"].items()
            for item in items
        }
    except FileNotFoundError:
        raise BaselineError(f"{path}: there is no baseline yet; --update-baseline writes one") from None
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from None
    except json.JSONDecodeError as error:
        raise BaselineError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        message = (
            f'{path}: not a baseline of primus-lint: it wants {{"version": {VERSION}, "files": {{FILE: [entries with rule, '
            "key, value and count]}}; delete it and write it anew with --update-baseline"
        )
        raise BaselineError(message) from None


def write(path: str, entries: dict[Entry, int]) -> None:
    """Write a baseline, or take it away when nothing is left."""
    if not entries:
        if os.path.exists(path):
            os.unlink(path)
        return
    lines: list[str] = []
    for name in sorted({entry.path for entry in entries}):
        items = [
            "   " + json.dumps({"rule": entry.rule, "key": entry.key, "value": entry.value, "count": entries[entry]})
            for entry in sorted(entries)
            if entry.path == name
        ]
        lines.append(f"  {json.dumps(name)}: [\n" + ",\n".join(items) + "\n  ]")
    text = f'{{\n "version": {VERSION},\n "files": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    from primus_lint.source.files import write_atomic

    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from None


def found(report: Report) -> dict[Entry, list[Finding]]:
    """The findings of a run that a baseline can accept, by entry."""
    out: dict[Entry, list[Finding]] = {}
    for checked, finding in report.shown():
        if acceptable(finding, checked):
            out.setdefault(entry_of(finding, checked, report.root), []).append(finding)
    return out


def judged(entry: Entry, report: Report) -> bool:
    """Whether this run can tell that an entry is not needed: its file was checked with its rule, or is gone."""
    from primus_lint.rules import catalogue
    from primus_lint.rules.select import selected

    for checked in report.checked:
        if relative(checked.path, report.root) == entry.path:
            code = catalogue.codes_by_name().get(entry.rule)
            rule = catalogue.by_code().get(code or "")
            known = rule is not None and not checked.unreadable
            if rule is not None and not rule.from_one_file and not _compared(checked.path, report):
                return False
            return rule is None or (
                known and selected(rule.code, rule.name, rule.severity, checked.path, checked.settings)
            )
    return not os.path.exists(os.path.join(report.root, entry.path))


def _compared(path: str, report: Report) -> bool:
    """Whether the run had something to compare a file with: a base revision, or a sibling."""
    from primus_lint.rules.siblings import have_siblings

    return report.base is not None or have_siblings(path, [checked.path for checked in report.checked])


def accept(report: Report, path: str) -> Used:
    """Suppress the findings that a baseline lists, the first ones up to each entry's count. Raises BaselineError."""
    entries = read(path)
    accepted = 0
    unused = []
    here = found(report)
    for entry, count in sorted(entries.items()):
        findings = here.get(entry, [])
        for finding in findings[:count]:
            finding.suppressed = REASON
            accepted += 1
        if len(findings) < count and judged(entry, report):
            unused.append((entry, count - len(findings)))
    return Used(relative(path, report.root), accepted, unused)


def update(report: Report, path: str) -> str:
    """Write a first baseline of everything found, or shrink the one that exists; what was done. Raises BaselineError."""
    here = {entry: len(findings) for entry, findings in found(report).items()}
    name = relative(path, report.root)
    if not os.path.exists(path):
        write(path, here)
        return f"{name}: accepted findings: {sum(here.values())}"
    old = read(path)
    new = {}
    for entry, count in old.items():
        left = min(count, here.get(entry, 0)) if judged(entry, report) else count
        if left:
            new[entry] = left
    write(path, new)
    gone = sum(old.values()) - sum(new.values())
    over = sum(max(count - old.get(entry, 0), 0) for entry, count in here.items())
    text = f"{name}: {gone} taken away, {sum(new.values())} left" if new else f"{name}: empty now, removed"
    if over:
        text += f"; new findings: {over}. A baseline only shrinks: suppress them, or delete it to start anew"
    return text
