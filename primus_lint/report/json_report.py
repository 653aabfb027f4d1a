"""The report as JSON: report-v1 (design 4.4; schema in schemas/report-v1.json). Lines and columns are 1-based."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, TextIO

from primus_lint import __version__

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked, Subject
    from primus_lint.rules.finding import Finding, Place


def write(out: TextIO, checked_files: list[Checked], root: str) -> None:
    json.dump(report(checked_files, root), out, indent=1)
    out.write("\n")


def report(checked_files: list[Checked], root: str) -> dict[str, Any]:
    """The whole report as plain data. Paths are relative to `root`, the repository."""
    findings = [(checked, finding) for checked in checked_files for finding in checked.findings]
    open_findings = [finding for _, finding in findings if finding.suppressed is None]
    return {
        "version": 1,
        "tool": {"name": "primus-lint", "version": __version__},
        "assumed": {
            _relative(checked.path, root): [item._asdict() for item in checked.assumed]
            for checked in checked_files
            if checked.assumed
        },
        "files": [file_data(checked, root) for checked in checked_files],
        "findings": [finding_data(finding, checked, root) for checked, finding in findings],
        "summary": {
            "files": len(checked_files),
            "errors": sum(finding.severity == "error" for finding in open_findings),
            "warnings": sum(finding.severity == "warning" for finding in open_findings),
            "infos": sum(finding.severity == "info" for finding in open_findings),
            "suppressed": len(findings) - len(open_findings),
            "fixable": sum(any(fix.safety == "safe" for fix in finding.fixes) for finding in open_findings),
        },
    }


def file_data(checked: Checked, root: str) -> dict[str, Any]:
    subject = checked.subjects[0] if checked.subjects else None
    data: dict[str, Any] = {
        "path": _relative(checked.path, root),
        "format": checked.document.format if checked.is_recipe else None,
        "framework": subject.section.framework if subject else None,
        "framework_version": subject.version if subject else None,
        "target": None,
        "legal_world_sizes": None,
        "memory": None,
        "time": None,
        "not_modelled": [],
        "unreadable": checked.unreadable,
    }
    if subject is None:
        return data
    target = subject.target
    data["target"] = {"gpu": target.gpu, "world_size": target.world_size, "gpus_per_node": target.gpus_per_node}
    if subject.section.framework != "megatron":
        data["not_modelled"] = [f"framework {subject.section.framework}"]
        return data
    data["not_modelled"] = list(subject.run.not_modelled) if subject.run else ["the recipe is incomplete"]
    if target.world_size is None:
        data["legal_world_sizes"] = subject.legal_world_sizes
    data["memory"] = memory_data(subject)
    data["time"] = time_data(subject)
    return data


def memory_data(subject: Subject) -> dict[str, Any] | None:
    """The `memory` object of design 4.3; None when there is no ledger."""
    ledger = subject.ledger
    if ledger is None:
        return None
    capacity = subject.accelerator.visible_hbm_bytes if subject.accelerator is not None else None
    fits = None if capacity is None else ledger.fits(capacity)
    reason = None
    if capacity is None:
        reason = "no GPU kind is known"
    elif fits is None:
        reason = "the capacity lies inside the band of some rank"
    return {
        "fits": fits,
        "reason": reason,
        "capacity_bytes": capacity,
        "worst_rank": ledger.worst,
        "ranks": [rank.as_json() for rank in ledger.ranks],
    }


def time_data(subject: Subject) -> dict[str, Any] | None:
    """The `time` object of design 4.3; None when nothing can be projected."""
    projection = subject.projection
    return None if projection is None else projection.as_json()


def finding_data(finding: Finding, checked: Checked, root: str) -> dict[str, Any]:
    place = finding.place
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "catalogue_ids": list(finding.catalogue),
        "message": finding.message,
        "notes": list(finding.notes),
        "path": _relative(place.path, root) if place else _relative(checked.path, root),
        "key_path": [str(part) for part in finding.key_path],
        "span": None if place is None else span_data(place, checked),
        "related": [
            {"path": _relative(other.path, root), "span": span_data(other, checked), "message": other.message}
            for other in finding.related
        ],
        "fingerprint": fingerprint(finding, checked, root),
        "suppressed": finding.suppressed,
        "fixes": fixes_data(finding, checked, root),
    }


def fixes_data(finding: Finding, checked: Checked, root: str) -> list[dict[str, Any]]:
    from primus_lint.tune.rewrite import fix_edits

    out = []
    for fix in finding.fixes:
        edits = fix_edits(fix, finding, checked)
        out.append(
            {
                "title": fix.title,
                "safety": fix.safety,
                "edits": [{"path": _relative(checked.path, root), **edit} for edit in edits],
            }
        )
    return out


def span_data(place: Place, checked: Checked) -> dict[str, int]:
    source = checked.document.sources.get(place.path)
    if source is None or place.span is None:
        line, column = max(place.line, 1), max(place.column, 1)
        return {
            "line": line, "column": column, "end_line": line, "end_column": column, "byte_start": 0, "byte_end": 0
        }  # fmt: skip
    end_line, end_column = source.position(place.span[1])
    return {
        "line": place.line,
        "column": place.column,
        "end_line": end_line,
        "end_column": end_column,
        "byte_start": source.byte_offset(place.span[0]),
        "byte_end": source.byte_offset(place.span[1]),
    }


def fingerprint(finding: Finding, checked: Checked, root: str) -> str:
    """Stable under edits elsewhere: rule, file, key path and the value of the key, not the line."""
    value = finding.section.get(finding.keys[0]) if finding.section is not None and finding.keys else None
    text = "\x00".join(
        [finding.code, _relative(checked.path, root), ".".join(str(part) for part in finding.key_path), repr(value)]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _relative(path: str, root: str) -> str:
    if not os.path.isabs(path):
        path = os.path.abspath(path) if os.path.exists(path) else path
    if os.path.isabs(path):
        relative = os.path.relpath(path, root)
        return relative.replace(os.sep, "/")
    return path.replace(os.sep, "/")
