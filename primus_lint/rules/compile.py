"""Compile the rule catalogue: `rules/**/*.yaml` -> one JSON of facts and one Python source of conditions.

Runs when the wheel is built and, in a checkout, whenever a rule is newer than the compiled copy. The Python source is
what a cold `check` imports; the JSON is read only when a finding has to be worded.
"""

from __future__ import annotations

import json
import os
from typing import Any

from primus_lint.rules import expr
from primus_lint.rules.templates import STAGES, template_expressions

SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("certain", "derived", "estimate")
SAFETIES = ("safe", "unsafe", "display-only")
FAMILIES = "SKPBLECRNOXMTDUZ"  # Z: rules of one's own (`rule-paths`)
_FIELDS = {
    "code", "name", "severity", "confidence", "stage", "order", "frameworks", "versions", "catalogue", "when", "require",
    "forbid", "check", "keys", "at", "message", "legal", "labels", "fix", "what", "why", "see", "examples", "since",
    "profile", "aliases", "group", "notes", "suppressible", "told_by",
    "stock",
}  # fmt: skip


class RuleError(ValueError):
    """A rule file that is not well formed. The message names the file."""


def rule_files(root: str) -> list[str]:
    """All rule files below `root`, sorted."""
    found = []
    for folder, _, files in os.walk(root):
        for name in files:
            if name.endswith(".yaml") and name[:1] in FAMILIES and name[1:2].isdigit():
                found.append(os.path.join(folder, name))
    return sorted(found)


def not_rule_files(root: str) -> list[str]:
    """YAML below a folder of rules that is passed over for its name, sorted."""
    taken = set(rule_files(root))
    files = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return sorted(file for file in files if file.endswith((".yaml", ".yml")) and file not in taken)


def load_rule(path: str) -> dict[str, Any]:
    """Read and check one rule file. Raises RuleError."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open(path, encoding="utf-8") as file:
        try:
            rule = yaml.load(file, Loader=loader)
        except yaml.YAMLError as error:
            raise RuleError(f"{path}: {error}") from None
    if not isinstance(rule, dict):
        raise RuleError(f"{path}: a rule is a mapping")

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise RuleError(f"{path}: {what}")

    unknown = set(rule) - _FIELDS
    need(not unknown, f"unknown fields {sorted(unknown)}")
    for field in ("code", "name", "severity", "what", "why", "message"):
        need(isinstance(rule.get(field), str) and bool(rule[field].strip()), f"{field} is missing")
    need(rule["severity"] in SEVERITIES, f"severity must be one of {SEVERITIES}")
    need(rule.setdefault("confidence", "certain") in CONFIDENCES, f"confidence must be one of {CONFIDENCES}")
    need(rule.setdefault("stage", "none") in STAGES, f"stage must be one of {STAGES}")
    rule.setdefault("order", 500)
    rule.setdefault("frameworks", ["megatron", "primus-megatron"])
    rule.setdefault("catalogue", [])
    rule.setdefault(
        "profile", "legal" if rule["severity"] == "error" and rule["confidence"] == "certain" else "recommended"
    )
    bodies = [field for field in ("require", "forbid", "check") if rule.get(field) is not None]
    need(len(bodies) == 1, "exactly one of require, forbid and check")
    used: list[str] = []
    try:
        for field in ("when", "require", "forbid"):
            if rule.get(field) is not None:
                rule[field] = str(rule[field])
                used += [name for name in expr.names(expr.parse(rule[field])) if name not in used]
        if rule.get("legal") is not None:
            expr.parse(str(rule["legal"]))
        for template in [rule["message"], *(rule.get("labels") or {}).values()]:
            for piece in template_expressions(template):
                expr.parse(piece)
        fixes = rule.get("fix")
        fixes = [] if fixes is None else fixes if isinstance(fixes, list) else [fixes]
        for fix in fixes:
            need(fix.get("safety") in SAFETIES, f"fix safety must be one of {SAFETIES}")
            need(isinstance(fix.get("title"), str), "a fix needs a title")
            need(bool(fix.get("set") or fix.get("drop") or fix.get("rename")), "a fix needs set, drop or rename")
            for text in (fix.get("set") or {}).values():
                expr.parse(str(text))
            if fix.get("when") is not None:
                expr.parse(str(fix["when"]))
        rule["fix"] = fixes
    except expr.ExpressionError as error:
        raise RuleError(f"{path}: {error}") from None
    rule["names"] = used
    return rule


def compile_rules(root: str, extra: list[str] | None = None) -> tuple[list[dict[str, Any]], str, str]:
    """Rules of `root` (and of more folders) -> (facts, Python source of the scalar form, of the array form).

    Raises RuleError for a malformed rule or a code or name that stands twice.
    """
    rules = [load_rule(path) for folder in [root, *(extra or [])] for path in rule_files(folder)]
    seen: dict[str, str] = {}
    for rule in rules:
        for label in (rule["code"], rule["name"], *rule.get("aliases", ())):
            if label in seen:
                raise RuleError(f"{label!r} names two rules: {seen[label]} and {rule['name']}")
            seen[label] = rule["name"]
    rules.sort(key=lambda rule: (STAGES.index(rule["stage"]), rule["order"], rule["code"]))
    scalar = ["from primus_lint.rules.functions import *  # generated: do not edit", "TABLE = []"]
    array = ["from primus_lint.rules import arrays as A  # generated: do not edit", "TABLE = []"]
    scalar[0] = scalar[0].replace("import *", "import FUNCTIONS") + "\nglobals().update(FUNCTIONS)"
    array.insert(1, "from primus_lint.rules.functions import FUNCTIONS\nglobals().update(FUNCTIONS)")
    for index, rule in enumerate(rules):
        if rule.get("check") is not None:
            continue
        when = rule.get("when")
        body = rule["require"] if rule.get("require") is not None else rule["forbid"]
        for lines, source, negate, both in (
            (scalar, expr.scalar_source, "not {}", "{} and {}"),
            (array, expr.array_source, "A.not_({})", "A.all_of(lambda: {}, lambda: {})"),
        ):
            text = source(expr.parse(body))
            if rule.get("require") is not None:
                text = negate.format(text)
            if when is not None:
                text = both.format(source(expr.parse(when)), f"({text})")
            lines.append(f"def r{index}(v): return {text}")
    for lines in (scalar, array):
        for index, rule in enumerate(rules):
            versions = rule.get("versions") or {}
            function = f"r{index}" if rule.get("check") is None else "None"
            lines.append(
                f"TABLE.append(({rule['code']!r}, {tuple(rule['frameworks'])!r}, {versions.get('since')!r}, "
                f"{versions.get('until')!r}, {STAGES.index(rule['stage'])}, {tuple(rule['names'])!r}, {function}, "
                f"{rule.get('check')!r}, {rule['severity']!r}, {rule['name']!r}, {rule['profile']!r}))"
            )
    former = {label: rule["code"] for rule in rules for label in rule.get("aliases", ())}
    scalar.append(f"FORMER = {former!r}")
    return rules, "\n".join(scalar) + "\n", "\n".join(array) + "\n"


def _wording(rule: dict[str, Any]) -> dict[str, Any]:
    """The part of a rule that a finding is worded from."""
    from primus_lint.rules.catalogue import WORDING

    return {field: value for field, value in rule.items() if field in WORDING}


def write_compiled(root: str, data: str) -> None:
    """Write the compiled catalogue into the folder `data` (each file atomically)."""
    rules, scalar, array = compile_rules(root)
    os.makedirs(data, exist_ok=True)
    for name, text in (
        ("rules.json", json.dumps(rules, separators=(",", ":"))),
        ("rules_wording.txt", "".join(f"{rule['code']}\t{json.dumps(_wording(rule))}\n" for rule in rules)),
        ("rules_scalar.py", scalar),
        ("rules_array.py", array),
    ):
        path = os.path.join(data, name)
        with open(path + f".{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + f".{os.getpid()}", path)
