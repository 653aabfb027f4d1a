"""`--fix`: repair what has a finding, then rewrite what does not fit, or what is slower than the band can explain.

Two steps on one text, each re-read and judged again by the same rules before the next: (1) the fixes that rules
offer, (2) the search at the same world size and global batch. Nothing is returned that is not better than the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.finding import Change
from primus_lint.source.text import SourceText
from primus_lint.tune import checkpoint
from primus_lint.tune.keys import FSDP2, MEGATRON_FSDP, PIPELINE_KEYS
from primus_lint.tune.propose import Proposal, Rules, propose, same_score

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from primus_lint.pipeline import Checked, Options
    from primus_lint.readers.document import Section
    from primus_lint.rules.finding import Finding, Fix
    from primus_lint.settings import Settings
    from primus_lint.tune.certificate import Certificate
    from primus_lint.tune.rescore import Candidate

__all__ = ["FixResult", "Proposal", "Rules", "fix_source"]

MAX_ROUNDS = 10
MEMORY, LEGAL_NOWHERE = "M", "P128"  # rules that other errors silence: a family, and one
BEYOND = frozenset(("recompute_layer_ids", FSDP2, MEGATRON_FSDP, *PIPELINE_KEYS))  # tried after a search, see `propose`
ROUNDS = 3


class FixResult:
    """What became of one file. `source` is the new text (the old one when nothing changed)."""

    __slots__ = (
        "after", "applied", "before", "candidate", "messages", "outside", "proposals", "refused", "runners_up", "source",
    )  # fmt: skip

    def __init__(self, before: Checked, source: SourceText) -> None:
        self.before = before
        self.after = before
        self.source = source
        self.applied: list[str] = []  # titles of what was done
        self.messages: list[str] = []  # what could not be done, and why
        self.refused: dict[tuple[str, str], str] = {}  # (rule, title of its fix) -> why it was not made
        self.outside: dict[str, str] = {}  # key that a fix cannot change -> where its value comes from
        self.candidate: Candidate | None = None
        self.runners_up: list[Candidate] = []
        self.proposals: list[Proposal] = []  # one for each section that was searched

    @property
    def certificate(self) -> Certificate | None:
        """Of the last search."""
        results = [proposal.result for proposal in self.proposals if proposal.result is not None]
        return results[-1].certificate if results else None

    @property
    def changed(self) -> bool:
        before = self.before.document.source
        return before is None or self.source.data != before.data


def fix_source(source: SourceText, options: Options, settings: Settings | None, how: Rules) -> FixResult:
    """Repair and tune one file in memory."""
    from primus_lint.pipeline import check_source

    result = FixResult(check_source(source, options, settings), source)
    if result.before.unreadable or not result.before.is_recipe:
        return result
    for _ in range(ROUNDS):
        _repair(result, options, settings, how)
        repaired = result.source
        for index in range(len(result.after.subjects)):
            _search(result, index, options, settings, how)
        if result.source is repaired:
            break
        # what was written may let a rule offer something that was beside the point before
        searched = result.source
        _repair(result, options, settings, how)
        beyond = result.candidate is not None and set(result.candidate.changes) & BEYOND
        if result.source is searched and not beyond:  # from what lies beyond its space a search may go farther
            break
    left = [(finding, fix) for finding in result.after.findings if finding.suppressed is None for fix in finding.fixes]
    for finding, fix in left:
        why = result.refused.get((finding.code, fix.title))
        if why is not None:
            result.messages.append(f"{finding.name}: not fixed ({fix.title}): {why}")
    return result


def _repair(result: FixResult, options: Options, settings: Settings | None, how: Rules) -> None:
    """Apply the fixes of findings one by one; each must make its finding vanish without a new error."""
    refused: set[tuple[str, str]] = set()
    for _ in range(MAX_ROUNDS):
        step = next(
            (
                (finding, fix)
                for finding in result.after.findings
                if finding.suppressed is None and finding.severity != "info"
                for fix in finding.fixes
                if _allowed(fix, how) and (finding.code, fix.title) not in refused
            ),
            None,
        )
        if step is None:
            return
        finding, fix = step
        if not _apply(result, finding, fix, options, settings, how):
            refused.add((finding.code, fix.title))


def _allowed(fix: Fix, how: Rules) -> bool:
    safe = fix.safety == "safe" or (fix.safety == "unsafe" and how.unsafe)
    within = all(
        change.op != "set" or change.value in how.limits.get(change.key, (change.value,)) for change in fix.changes
    )
    return safe and within and not any(change.key in how.keep for change in fix.changes)


def _apply(
    result: FixResult, finding: Finding, fix: Fix, options: Options, settings: Settings | None, how: Rules
) -> bool:
    """Apply one fix when the re-read file is free of its finding, has no new error, and keeps what memory there was to
    spare. Returns whether it was."""
    if finding.section is None:
        return False
    hangs = {key: result.outside[key] for key in finding.keys if key in result.outside}
    if hangs and finding.severity == "error":
        result.refused[finding.code, fix.title] = _said(hangs)
        return False
    outside = _outside(result, finding.section, fix.changes, options)
    checked = _rewritten(result, fix.changes, finding.section.name, options, settings)
    if checked is None:
        if outside:
            result.refused[finding.code, fix.title] = _said(outside)
            result.outside |= outside
        return False
    old = _errors(result.after)
    new = _errors(checked)
    gone = _count(checked, finding.code) < _count(result.after, finding.code)
    worse = (code for code, each in new.items() if len(each) > len(old.get(code, ())))
    more = next((new[code][0] for code in worse if not _hidden(code, result.after)), None)
    why = None
    if more is not None:
        why = f"it would give error[{more.name}] {more.message}"
    elif not gone:
        why = _said(outside) or "the finding would remain"
        result.outside |= outside
    elif not _as_roomy(result.after, checked, how, finding.severity):
        why = "the memory to spare would be gone"
    if why is not None:
        result.refused[finding.code, fix.title] = why
        return False
    result.after = checked
    assert checked.document.source is not None
    result.source = checked.document.source
    result.applied.append(f"{fix.title} ({finding.name})")
    return True


def _outside(result: FixResult, section: Section, changes: Iterable[Change], options: Options) -> dict[str, str]:
    """Changed keys that no edit of the file can change, and where their values come from: `--set`, or the environment."""
    found: dict[str, str] = {}
    stated = dict(options.set_values)
    for change in changes:
        origin = section.origin(change.key)
        value = None if origin is None else result.after.document.env_used.get(origin.variable or "")
        if change.key in stated:
            found[change.key] = f"--set {change.key}={stated[change.key]}"
        elif origin is not None and value is not None:
            found[change.key] = f"{origin.variable}={value}"
    return found


def _said(outside: dict[str, str]) -> str:
    return "; ".join(f"{key} comes from {place}, not from the file" for key, place in outside.items())


def _errors(checked: Checked) -> dict[str, list[Finding]]:
    """Errors by their rule, also of rules that are not selected: a repair does not make another mistake."""
    by_code: dict[str, list[Finding]] = {}
    for findings in (checked.findings, *_conditions(checked)):
        for code, same in _by_code(findings).items():
            if len(same) > len(by_code.get(code, ())):
                by_code[code] = same
    return by_code


def _hidden(code: str, before: Checked) -> bool:
    """Whether an error would not have been seen before: an illegal recipe has no account of its memory, and is legal at no
    world size anyway. What takes the other error away does not make this one."""
    if code[0] == MEMORY:
        return any(not subject.computable for subject in before.subjects)
    return code == LEGAL_NOWHERE and any(map(_by_code, _conditions(before)))


def _conditions(checked: Checked) -> list[list[Finding]]:
    return [subject.conditions for subject in checked.subjects if subject.modelled]


def _by_code(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.severity == "error" and finding.suppressed is None:
            by_code.setdefault(finding.code, []).append(finding)
    return by_code


def _as_roomy(before: Checked, after: Checked, how: Rules, severity: str) -> bool:
    """Whether every section that was sure to fit (with the headroom that is asked for) still is; and where headroom is
    what is looked for, whether none needs more, unless for an error."""
    for old, new in zip(before.subjects, after.subjects, strict=False):
        if old.ledger is None or new.ledger is None or old.accelerator is None:
            continue
        capacity = int(old.accelerator.visible_hbm_bytes * (1 - how.min_headroom))
        if old.ledger.fits(capacity) is True and new.ledger.fits(capacity) is not True:
            return False
        more = new.ledger.worst_rank.device_high_bytes > old.ledger.worst_rank.device_high_bytes
        if how.objective == "memory-headroom" and severity != "error" and more:
            return False
    return True


def _count(checked: Checked, code: str) -> int:
    return sum(finding.code == code for finding in checked.findings if finding.suppressed is None)


def _rewritten(
    result: FixResult, changes: Any, section_name: str, options: Options, settings: Settings | None
) -> Checked | None:
    """The file with some keys changed, read and judged again; None when it cannot be written."""
    from primus_lint.pipeline import check_source
    from primus_lint.source.rewrite import Edited
    from primus_lint.tune.rewrite import rewrite

    document = result.after.document
    section = next((section for section in document.sections if section.name == section_name), None)
    if section is None:
        return None
    edited = rewrite(changes, section, document)
    if not isinstance(edited, Edited):
        text = edited if isinstance(edited, str) else edited.message
        if text not in result.messages:
            result.messages.append(text)
        return None
    if edited.text == result.source.text:
        return None
    data = result.source.encode(edited.text)
    return check_source(SourceText.from_bytes(result.source.path, data), options, settings)


def _search(result: FixResult, index: int, options: Options, settings: Settings | None, how: Rules) -> None:
    """Search for a better recipe of one section and write it when it is one."""
    subject = result.after.subjects[index]
    proposal = propose(subject, how)
    if proposal.candidates or len(result.proposals) <= index:
        result.proposals[index : index + 1] = [proposal]
    if not proposal.candidates:
        if proposal.reason and (proposal.broken or proposal.result is None):
            result.messages.append(proposal.reason)
        return
    said = len(result.messages)
    for candidate in proposal.candidates:
        changes = _changes(proposal, candidate)
        checked = _rewritten(result, changes, subject.section.name, options, settings)
        if checked is None or not same_score(checked.subjects[index], candidate):
            continue
        if _errors(checked).keys() - _errors(result.after).keys():
            continue
        result.after = checked
        assert checked.document.source is not None
        result.source = checked.document.source
        result.candidate = candidate
        result.runners_up = [other for other in proposal.candidates if other is not candidate][:5]
        result.applied.append(proposal.reason)
        run = proposal.subject.run
        given = proposal.subject.lowered.namespace.given
        line = None if run is None else checkpoint.say(candidate.changes, given, run.model)
        if line is not None:
            result.messages.append(line)
        return
    if len(result.messages) == said:
        changes = _changes(proposal, proposal.candidates[0])
        why = _said(_outside(result, subject.section, changes, options))
        why = why or "the rewritten file would not score as it does"
        result.messages.append(f"a better recipe was found but not written: {why}")


def _changes(proposal: Proposal, candidate: Candidate) -> list[Change]:
    """What a candidate changes, in the keys of the section."""
    return [Change("set", proposal.names.get(key, key), value) for key, value in candidate.changes.items()]
