"""SARIF 2.1.0: results with stable fingerprints, provenance as related locations and code flows, fixes as replacements."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TextIO

from primus_lint import __version__
from primus_lint.report.fixes import splices
from primus_lint.report.places import fingerprints, relative, span_data

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Report
    from primus_lint.rules.finding import Finding, Fix, Place

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
PROJECT = "https://github.com/primus-lint/primus-lint"
# Where paths start: the repository, or the Primus release whose presets ship with primus-lint (not in the repository).
ROOTS = {
    "%SRCROOT%": "the root of the checked repository",
    "PRIMUSROOT": "a checkout of the Primus release whose presets primus-lint ships",
}


def write(out: TextIO, report: Report) -> None:
    json.dump(log(report), out, indent=1, ensure_ascii=False)
    out.write("\n")


def log(report: Report) -> dict[str, Any]:
    """The whole log. Nothing in it depends on the machine or the time."""
    prints = fingerprints(report)
    used = list(dict.fromkeys(finding.code for _, finding in report.all()))
    rules = [rule_data(code, report) for code in used]
    results = [result(checked, finding, report, used, prints) for checked, finding in report.all()]
    unreadable = [checked for checked in report.checked if checked.unreadable]
    run = {
        "tool": {
            "driver": {
                "name": "primus-lint",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": PROJECT,
                "rules": rules,
            }
        },
        "invocations": [
            {
                "executionSuccessful": not unreadable,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": f"{relative(checked.path, report.root)} could not be checked"},
                        "locations": [{"physicalLocation": {"artifactLocation": artifact(checked.path, report)}}],
                    }
                    for checked in unreadable
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {name: {"description": {"text": text}} for name, text in ROOTS.items()},
        "artifacts": [{"location": artifact(checked.path, report)} for checked in report.checked],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def rule_data(code: str, report: Report) -> dict[str, Any]:
    """A reporting descriptor; help is Markdown."""
    from primus_lint.rules.catalogue import documents

    rule = documents().get(code)
    if rule is None:  # a finding about suppressions or settings, not of the catalogue
        name = next(finding.name for _, finding in report.all() if finding.code == code)
        return {"id": code, "name": name, "shortDescription": {"text": name.replace("-", " ")}}
    what, why = " ".join(rule["what"].split()), " ".join(rule["why"].split())
    markdown = f"**{what}**\n\n{why}\n"
    for fix in rule["fix"]:
        markdown += f"\n- fix ({fix['safety']}): {worded(fix['title'])}"
    if rule.get("see"):
        markdown += "\n\nSee " + ", ".join(f"`{item}`" for item in rule["see"])
    return {
        "id": code,
        "name": rule["name"],
        "shortDescription": {"text": what},
        "fullDescription": {"text": why},
        "help": {"text": f"{what} {why}", "markdown": markdown},
        "defaultConfiguration": {"level": LEVELS[rule["severity"]]},
        "properties": {"precision": PRECISION[rule["confidence"]], "tags": ["training-recipe", *rule["catalogue"]]},
    }


def worded(template: str) -> str:
    """A title without the expressions in its braces: a name alone stays, anything longer is a value computed for the recipe."""
    return re.sub(r"\{([^{}]*)\}", lambda match: f"`{match[1]}`" if match[1].isidentifier() else "…", template)


PRECISION = {"certain": "very-high", "derived": "high", "estimate": "medium"}  # GitHub's words


def result(
    checked: Checked, finding: Finding, report: Report, used: list[str], prints: dict[int, str]
) -> dict[str, Any]:
    place = finding.place
    own = place is not None and place.path == checked.path
    data: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": used.index(finding.code),
        "level": LEVELS[finding.severity],
        "message": {"text": finding.message + "".join(f"\n{note}" for note in finding.notes)},
        "locations": [location(place, checked, report) if own and place else whole(checked, finding, report)],
        "partialFingerprints": {"primusLint/v1": prints[id(finding)]},
        "properties": {"confidence": finding.confidence, "name": finding.name},
    }
    related = list(finding.related) if own or place is None else [place, *finding.related]
    if related:
        data["relatedLocations"] = [
            {"id": number, **location(other, checked, report, other.message or "set here")}
            for number, other in enumerate(related)
        ]
    flow = code_flow(checked, finding, report)
    if flow is not None:
        data["codeFlows"] = [flow]
    fixes = [item for fix in finding.fixes if (item := fix_data(fix, finding, checked, report)) is not None]
    if fixes:
        data["fixes"] = fixes
    if finding.suppressed is not None:
        from primus_lint.rules.baseline import REASON

        kind = "external" if finding.suppressed == REASON else "inSource"
        data["suppressions"] = [{"kind": kind, "status": "accepted", "justification": finding.suppressed}]
    return data


def artifact(path: str, report: Report) -> dict[str, str]:
    """A location relative to the repository, or to Primus for a preset that is not on disk."""
    import os
    from urllib.parse import quote

    inside = os.path.exists(path) or not path.startswith("primus/configs/")
    return {"uri": quote(relative(path, report.root)), "uriBaseId": "%SRCROOT%" if inside else "PRIMUSROOT"}


def location(place: Place, checked: Checked, report: Report, message: str = "") -> dict[str, Any]:
    span = span_data(place, checked)
    region: dict[str, Any] = {
        "startLine": span["line"],
        "startColumn": span["column"],
        "endLine": span["end_line"],
        "endColumn": span["end_column"],
    }
    source = checked.document.sources.get(place.path)
    if source is not None and place.span is not None:
        region["snippet"] = {"text": source.text[place.span[0] : place.span[1]].encode("utf-8", "replace").decode()}
    data: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artifact(place.path, report), "region": region},
    }
    return {**data, "message": {"text": message}} if message else data


def whole(checked: Checked, finding: Finding, report: Report) -> dict[str, Any]:
    """The file as such, for what has no place in it."""
    return {
        "physicalLocation": {"artifactLocation": artifact(checked.path, report), "region": {"startLine": 1}},
        **({"logicalLocations": [{"fullyQualifiedName": key, "kind": "member"}]} if (key := _key(finding)) else {}),
    }


def _key(finding: Finding) -> str:
    return ".".join(str(part) for part in finding.key_path)


def code_flow(checked: Checked, finding: Finding, report: Report) -> dict[str, Any] | None:
    """How the key got its value: every layer that set it, the weakest first; None when one layer alone did."""
    from primus_lint.rules.finding import Place

    value = finding.section.values.get(finding.keys[0]) if finding.section is not None and finding.keys else None
    steps = [origin for origin in value.origins if origin.path and origin.line > 0] if value is not None else []
    if len(steps) < 2:
        return None
    locations = []
    for origin in reversed(steps):
        text = f"{finding.keys[0]} = {origin.value!r} ({origin.layer})"
        place = Place(str(origin.path), origin.line, origin.column, origin.span)
        locations.append({"location": location(place, checked, report, text)})
    return {"threadFlows": [{"locations": locations}]}


def fix_data(fix: Fix, finding: Finding, checked: Checked, report: Report) -> dict[str, Any] | None:
    """A fix as replacements; None when it has no edit of this file."""
    source, edits = checked.document.source, splices(fix, finding, checked)
    if source is None or not edits:
        return None
    replacements = []
    for splice in edits:
        line, column = source.position(splice.start)
        end_line, end_column = source.position(splice.end)
        region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
        replacements.append({"deletedRegion": region, "insertedContent": {"text": splice.text}})
    change = {"artifactLocation": artifact(checked.path, report), "replacements": replacements}
    return {"description": {"text": f"{fix.title} ({fix.safety})"}, "artifactChanges": [change]}
