"""The report as JSON: report-v1 (design 4.4; schema in schemas/report-v1.json). Lines and columns are 1-based."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from primus_lint import __version__
from primus_lint.report.fixes import byte_edits
from primus_lint.report.places import fingerprints, path_of, relative, span_data

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject


def write(out: TextIO, report: Report) -> None:
    json.dump(data(report), out, indent=1, ensure_ascii=False)
    out.write("\n")


def data(report: Report) -> dict[str, Any]:
    """The whole report as plain data. Paths are relative to the repository."""
    prints = fingerprints(report)
    shown, counts = report.shown(), report.counts()
    return {
        "version": 1,
        "tool": {"name": "primus-lint", "version": __version__},
        "assumed": {
            relative(checked.path, report.root): [
                {"what": item.what, "value": item.value, "source": report.words(item.source)}
                for item in checked.assumed
            ]
            for checked in report.checked
            if checked.assumed
        },
        "files": [file_data(checked, report.root) for checked in report.checked],
        "findings": [finding_data(finding, checked, report, prints) for checked, finding in report.all()],
        "summary": {
            "files": len(report.checked),
            "unreadable": [relative(checked.path, report.root) for checked in report.checked if checked.unreadable],
            "errors": counts["error"],
            "warnings": counts["warning"],
            "infos": counts["info"],
            "causes": len(report.groups),
            "suppressed": len(report.all()) - len(shown),
            "fixable": sum(any(fix.safety == "safe" for fix in finding.fixes) for _, finding in shown),
            "base": base_data(report),
            "baseline": None if report.baseline is None else report.baseline.as_json(),
        },
    }


def report(checked_files: list[Checked], root: str) -> dict[str, Any]:
    """`data` of some checked files alone."""
    from primus_lint.report.bundle import Report

    return data(Report(checked_files, root))


def base_data(report: Report) -> dict[str, Any] | None:
    """What `--base` compared: every changed file before and after; None without `--base`."""
    if report.base is None:
        return None
    return {
        "revision": report.base,
        "files": [
            {"path": relative(comparison.path, report.root), **comparison.as_json()}
            for comparison in report.comparisons
        ],
    }


def file_data(checked: Checked, root: str) -> dict[str, Any]:
    subject = checked.subjects[0] if checked.subjects else None
    data: dict[str, Any] = {
        "path": relative(checked.path, root),
        "format": checked.document.format if checked.is_recipe else None,
        "framework": subject.section.framework if subject else None,
        "framework_version": known_version(subject) if subject else None,
        "target": None,
        "legal_world_sizes": None,
        "memory": None,
        "time": None,
        "abstained": {"memory": None, "time": None},
        "not_modelled": [],
    }
    if subject is None:
        return data
    target = subject.target
    data["target"] = {"gpu": target.gpu, "world_size": target.world_size, "gpus_per_node": target.gpus_per_node}
    data["not_modelled"] = list(subject.not_modelled)
    data["abstained"] = abstained_data(subject)
    if not subject.modelled:
        return data
    if target.world_size is None:
        data["legal_world_sizes"] = subject.legal_world_sizes if subject.grid_known else None
    data["memory"] = memory_data(subject)
    data["time"] = time_data(subject)
    return data


def memory_data(subject: Subject) -> dict[str, Any] | None:
    """The `memory` object of design 4.3; None when there is no ledger."""
    ledger = subject.ledger
    if ledger is None:
        return None
    capacity = subject.accelerator.visible_hbm_bytes if subject.accelerator is not None else None
    reason = None
    if capacity is None:
        reason = "no GPU kind is known"
    elif subject.fits is None:
        reason = "the capacity lies inside the band of some rank"
    return {
        "fits": subject.fits,
        "reason": reason,
        "capacity_bytes": capacity,
        "worst_rank": ledger.worst,
        "ranks": [rank.as_json() for rank in ledger.ranks],
        "host": host_data(subject),
    }


def host_data(subject: Subject) -> dict[str, Any] | None:
    """Host memory of the fullest node; None when the ledger has none, or no memory of such a node is known."""
    found = subject.host_memory
    if found is None:
        return None
    return {
        "node": found.node,
        "capacity_bytes": found.capacity_bytes,
        "training_bytes": found.used.training_bytes,
        "saving_bytes": found.used.saving_bytes,
        "items": found.used.items,
    }


def known_version(subject: Subject) -> str | None:
    """The version of the framework whose conditions or keys are known; None of one that is not known."""
    from primus_lint.readers.tables import DEFAULT_VERSIONS

    framework = subject.section.framework
    return subject.version if framework in ("megatron", "torchtitan") else DEFAULT_VERSIONS.get(framework)


def abstained_data(subject: Subject, only: str | None = None) -> dict[str, list[str] | None]:
    """Why `memory` and `time` are null, each null when there is an account (or nobody asked for it)."""
    return {
        "memory": (list(subject.no_memory) or None) if only in (None, "memory") else None,
        "time": (list(subject.no_time) or None) if only in (None, "time") else None,
    }


def time_data(subject: Subject) -> dict[str, Any] | None:
    """The `time` object of design 4.3 with the verdict on memory; None when nothing can be projected."""
    projection = subject.projection
    return None if projection is None else {"fits": subject.fits, **projection.as_json()}


def finding_data(finding: Finding, checked: Checked, report: Report, prints: dict[int, str]) -> dict[str, Any]:
    place, root = finding.place, report.root
    path = relative(checked.path, root)
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "catalogue_ids": list(finding.catalogue),
        "message": finding.message,
        "path": relative(path_of(finding, checked), root),
        "key_path": [str(part) for part in finding.key_path],
        "span": None if place is None else span_data(place, checked),
        "related": [
            {"path": relative(other.path, root), "span": span_data(other, checked), "message": other.message}
            for other in finding.related
        ],
        "fingerprint": prints[id(finding)],
        "suppressed": finding.suppressed,
        "fixes": [
            {"title": fix.title, "safety": fix.safety, "edits": byte_edits(fix, finding, checked, path)}
            for fix in finding.fixes
        ],
    }
