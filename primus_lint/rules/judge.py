"""All findings of one file: reading problems, conditions, checks in code; then located, filtered and sorted."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from primus_lint.rules import catalogue
from primus_lint.rules.finding import Finding, Place
from primus_lint.rules.locate import locate
from primus_lint.rules.verify import keep_working_fixes

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.pipeline import Checked
    from primus_lint.readers.document import LocatedProblem
    from primus_lint.settings import Settings
    from primus_lint.subject import Subject


def judge(checked: Checked, settings: Settings | None = None) -> list[Finding]:
    """Findings of a checked file in the order in which they are shown. Suppressed ones are marked, not dropped."""
    from primus_lint.rules.select import kept
    from primus_lint.rules.suppress import suppress

    findings = [of_problem(problem) for problem in checked.document.problems]
    for finding in findings:
        finding.place = finding.place or Place(checked.path, 1, 1)
    for subject in () if checked.document.fatal else checked.subjects:  # of half a recipe nothing else is sure
        found = findings_of(subject)
        if subject.section.own_flags or not subject.section.whole:
            unsure(found, subject)
        for finding in found:
            locate(finding, subject)
            findings.append(finding)
    if checked.document.format == "shell" and len(checked.subjects) > 1:
        findings = _once(findings)
    chosen = [f for f in findings if kept(f.code, f.name, f.severity, checked.path, settings)]
    tellers = {id(finding): _teller(finding, chosen) for finding in findings}
    everything, findings = findings, [finding for finding in chosen if tellers[id(finding)] is None]
    if settings is not None:
        override(findings, checked, settings)
    findings += suppress(findings, checked, settings)
    for subject in checked.subjects:
        shown = {f.name for f in findings if f.section is subject.section and f.suppressed is None}
        subject.shown_as = {
            finding.name: teller.name if teller is not None else f"{finding.name} (not shown)"
            for finding in everything
            if finding.section is subject.section and finding.name not in shown
            for teller in (tellers[id(finding)],)
        }
    findings.sort(key=_order)
    return findings


_SAVES_MEMORY = re.compile("offload|swap|recompute|reuse|checkpoint-activations|memory")


def unsure(findings: list[Finding], subject: Subject) -> None:
    """Take back by one severity what holds for Megatron-LM's own programs only, for a program that knows flags which
    they do not: choices and layers may be its own (`stock`), it may save memory, and it may set what the command leaves
    out. That it does so is plain where an error is about nothing but missing arguments."""
    given = subject.section.values
    if subject.modelled:
        _ = subject.computable  # it asks for errors: decided before a severity changes
    sets_its_own = not subject.section.whole or any(
        f.severity == "error" and f.keys and not any(key in given for key in f.keys) for f in findings
    )
    saves_memory = any(_SAVES_MEMORY.search(flag) for flag in subject.section.own_flags)
    for finding in findings:
        keys = [key in given for key in finding.keys]
        stock = bool((catalogue.facts().get(finding.code) or {}).get("stock"))
        missing = bool(keys) and (not all(keys) if sets_its_own else not any(keys) and finding.severity == "error")
        if stock or missing or (saves_memory and finding.code[0] == "M"):
            finding.severity = {"error": "warning"}.get(finding.severity, "info")
            finding.notes += ("the program has flags of its own, and may set, allow or save what Megatron-LM does not",)


def _once(findings: list[Finding]) -> list[Finding]:
    """Of what several commands of one script share, one finding: the text that it points at is the same."""
    first: dict[tuple[str, str, Place | None], Finding] = {}
    for finding in findings:
        first.setdefault((finding.code, finding.message, finding.place), finding)
    return list(first.values())


def _order(finding: Finding) -> tuple[int, int, int, str]:
    """Errors that stop the program in the order in which it meets them, then the rest by severity and place."""
    severity = ("error", "warning", "info").index(finding.severity)
    return severity, finding.stage, finding.order, finding.code


def _teller(finding: Finding, findings: list[Finding]) -> Finding | None:
    """Another finding that says the same of a key of this one: its rule is in the rule's `told_by`, or it says that the
    number which this one calculates with is none (2.5 micro batches)."""
    rule = catalogue.facts().get(finding.code) or {}
    tellers = rule.get("told_by") or ()
    calculates = bool(rule.get("names")) and finding.section is not None
    return next(
        (
            other
            for other in findings
            if (other.section is finding.section or finding.section is None)
            and set(other.keys) & set(finding.keys)
            and (other.code in tellers or (calculates and _no_such_number(other)))
        ),
        None,
    )


def _no_such_number(finding: Finding) -> bool:
    """Whether a finding refuses a number for its type."""
    if finding.code != "K142" or finding.section is None:
        return False
    return any(isinstance(finding.section.get(key), float) for key in finding.keys)


def settle(checked: Checked, finding: Finding) -> None:
    """Take a finding about several files into the file that it points at, as if its rules had found it there."""
    from primus_lint.rules.select import kept
    from primus_lint.rules.suppress import mark

    settings = checked.settings
    if not kept(finding.code, finding.name, finding.severity, checked.path, settings):
        return
    locate(finding, checked.subjects[0])
    if settings is not None:
        override([finding], checked, settings)
    mark([finding], checked)
    checked.findings.append(finding)
    checked.findings.sort(key=_order)


def override(findings: list[Finding], checked: Checked, settings: Settings) -> None:
    """Give findings the severity that the settings want. What keeps a file from being read stays an error."""
    from primus_lint.rules.select import severity_of

    if not any(layer.severity for layer in settings.layers):
        return
    for subject in () if checked.document.fatal else checked.subjects:
        if subject.modelled:
            _ = subject.computable  # it asks for errors: decided before a severity changes
    for finding in findings:
        if not (checked.unreadable and finding.severity == "error"):
            finding.severity = severity_of(finding.code, finding.name, finding.severity, settings)


def of_problem(problem: LocatedProblem) -> Finding:
    """A reading problem as a finding; the rule of the same name gives code and severity."""
    code = catalogue.codes_by_name().get(problem.code)
    rule = catalogue.facts().get(code or "")
    severity = rule["severity"] if rule else ("error" if problem.fatal else "warning")
    if problem.fatal:
        severity = "error"
    finding = Finding(
        code or "S999",
        problem.code,
        severity,
        problem.message,
        catalogue=tuple(rule["catalogue"]) if rule else (),
        keys=(str(problem.key_path[-1]),) if problem.key_path else (),
        place=Place(problem.path, problem.line, problem.column, problem.span),
        related=tuple(
            Place(path, line, column, None, text)
            for path, line, column, text in problem.related
            if (path, line, column) != (problem.path, problem.line, problem.column)
        ),
    )
    finding.key_path = problem.key_path
    return finding


def findings_of(subject: Subject) -> list[Finding]:
    """Findings of one section: conditions first, then the checks in code that its state allows."""
    found: list[Finding] = []
    if subject.modelled:
        found += subject.conditions
        keep_working_fixes(found, subject)
    for entry in catalogue.applicable(subject.framework, subject.version):
        module = entry.module
        if module in ("", "args", "document", "siblings") or (module == "base" and subject.before is None):
            continue
        if module in ("memory", "throughput", "derived") and not subject.computable:
            continue
        if subject.wanted is not None and not subject.wanted(entry):
            continue
        found += run_check(entry, subject)
    return found


def check_function(check: str) -> Callable[..., Any]:
    """`module:function` of `rules/checks/`, or of a module that an installed package offers under that name in the entry
    point group `primus_lint.checks`. Raises RuleError."""
    module_name, _, function_name = check.partition(":")
    try:
        module = importlib.import_module(f"primus_lint.rules.checks.{module_name}")
    except ModuleNotFoundError as error:
        if error.name != f"primus_lint.rules.checks.{module_name}":
            raise
        module = _offered(module_name)
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None:
        from primus_lint.rules.compile import RuleError

        raise RuleError(f"check: {check!r} names no function that is there (entry point group primus_lint.checks)")
    return function


def _offered(name: str) -> Any:
    from importlib.metadata import entry_points

    for point in entry_points(group="primus_lint.checks"):
        if point.name == name:
            return point.load()
    return None


def run_check(entry: catalogue.Entry, subject: Subject) -> list[Finding]:
    """Run one check in code. Its parameters name the passes that it needs; a pass nobody names is not computed."""
    assert entry.check is not None
    function = check_function(entry.check)
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
    passes: dict[str, Any] = {}
    for name in wanted:
        if name == "rule":
            passes[name] = catalogue.Rule(entry.code)
        elif name == "subject":
            passes[name] = subject
        else:
            passes[name] = getattr(subject, name)
            if passes[name] is None and name in ("run", "ledger", "projection", "accelerator"):
                return []
    return list(function(**passes))
