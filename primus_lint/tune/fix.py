"""`--fix`: repair what has a finding, then rewrite what does not fit, or what is slower than the band can explain.

Two steps on one text, each re-read and judged again by the same rules before the next: (1) the fixes that rules
offer, (2) the search at the same world size and global batch. Nothing is returned that is not better than the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.finding import Change
from primus_lint.source.text import SourceText

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked, Options, Subject
    from primus_lint.rules.finding import Finding, Fix
    from primus_lint.settings import Settings
    from primus_lint.tune.search import Candidate, Certificate

MAX_ROUNDS = 10
MAX_WORLD_FACTOR = 64  # how far to look for a world size at which a recipe fits


class Rules:
    """How a fix may go: which safety classes, what it may touch, what it must gain."""

    __slots__ = ("keep", "min_gain", "minimal", "tune", "unsafe")

    def __init__(
        self,
        *,
        unsafe: bool = False,
        tune: bool = True,
        minimal: bool = False,
        min_gain: float = 0.03,
        keep: frozenset[str] = frozenset(),
    ) -> None:
        self.unsafe = unsafe
        self.tune = tune
        self.minimal = minimal
        self.min_gain = min_gain
        self.keep = keep


class FixResult:
    """What became of one file. `source` is the new text (the old one when nothing changed)."""

    __slots__ = ("after", "applied", "before", "candidate", "certificate", "messages", "runners_up", "source")

    def __init__(self, before: Checked, source: SourceText) -> None:
        self.before = before
        self.after = before
        self.source = source
        self.applied: list[str] = []  # titles of what was done
        self.messages: list[str] = []  # what could not be done, and why
        self.candidate: Candidate | None = None
        self.runners_up: list[Candidate] = []
        self.certificate: Certificate | None = None

    @property
    def changed(self) -> bool:
        before = self.before.document.source
        return before is None or self.source.data != before.data


def fix_source(source: SourceText, options: Options, settings: Settings | None, how: Rules) -> FixResult:
    """Repair and tune one file in memory."""
    from primus_lint.pipeline import check_source

    result = FixResult(check_source(source, options, settings), source)
    if result.before.unreadable or not result.before.is_recipe or result.before.document.doc is None:
        return result
    _repair(result, options, settings, how)
    for index in range(len(result.after.subjects)):
        _search(result, index, options, settings, how)
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
        if not _apply(result, finding, fix, options, settings):
            refused.add((finding.code, fix.title))


def _allowed(fix: Fix, how: Rules) -> bool:
    safe = fix.safety == "safe" or (fix.safety == "unsafe" and how.unsafe)
    return safe and not any(change.key in how.keep for change in fix.changes)


def _apply(result: FixResult, finding: Finding, fix: Fix, options: Options, settings: Settings | None) -> bool:
    """Apply one fix when the re-read file is free of its finding and has no new error. Returns whether it was."""
    if finding.section is None:
        return False
    checked = _rewritten(result, fix.changes, finding.section.name, options, settings)
    if checked is None:
        return False
    old = _errors(result.after)
    new = _errors(checked)
    gone = _count(checked, finding.code) < _count(result.after, finding.code)
    if not gone or any(new[code] > old.get(code, 0) for code in new):
        return False
    result.after = checked
    assert checked.document.source is not None
    result.source = checked.document.source
    result.applied.append(f"{fix.title} ({finding.name})")
    return True


def _errors(checked: Checked) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in checked.findings:
        if finding.severity == "error" and finding.suppressed is None:
            counts[finding.code] = counts.get(finding.code, 0) + 1
    return counts


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
    if subject.section.framework != "megatron" or subject.run is None:
        return
    accelerator = subject.accelerator
    if accelerator is None or subject.target.world_size is None:
        if how.tune or _needs_search(subject):
            result.messages.append("no search: it needs a GPU kind and a world size (--gpu, --nodes)")
        return
    from primus_lint.ledger import ledger

    if not ledger(subject.run, accelerator) and subject.run.parallel.stages is not None:
        result.messages.append("no search: memory is not modelled for this recipe")
        return
    broken = _needs_search(subject)
    if not broken and not how.tune:
        return
    from primus_lint.tune.search import search
    from primus_lint.tune.space import Pins

    minimal = how.minimal or (broken and not how.tune)
    best, certificate = search(subject, accelerator, pins=Pins(how.keep), fewest_changes=minimal)
    result.certificate = certificate
    if not best:
        if broken:
            result.messages.append(_nothing_fits(subject))
        return
    if not broken and (minimal or not _worth_it(subject, best[0], how)):
        return
    for candidate in best:
        if not candidate.changes:
            return  # the recipe as it stands is the best
        if not broken and not _worth_it(subject, candidate, how):
            return
        changes = [Change("set", key, value) for key, value in candidate.changes.items()]
        checked = _rewritten(result, changes, subject.section.name, options, settings)
        if checked is None or not _same_score(checked.subjects[index], candidate):
            continue
        result.after = checked
        assert checked.document.source is not None
        result.source = checked.document.source
        result.candidate = candidate
        result.runners_up = [other for other in best if other is not candidate][:5]
        result.applied.append("the fewest changes that fit" if minimal else "the fastest recipe that fits")
        return


def _needs_search(subject: Subject) -> bool:
    """Illegal, or some rank is not sure to fit."""
    from primus_lint.tune.space import TUNED

    errors = [f for f in subject.conditions if f.severity == "error" and set(f.keys) & set(TUNED)]
    if errors:
        return True
    accelerator = subject.accelerator
    if accelerator is None or subject.ledger is None:
        return False
    return subject.ledger.fits(accelerator.visible_hbm_bytes) is False


def _worth_it(subject: Subject, candidate: Candidate, how: Rules) -> bool:
    """Whether the gain exceeds the wanted one and the band of the comparison.

    The errors of one class of operations (products, attention, each kind of communication) come from the same rates
    in both recipes, so they cancel but for the difference of the class's share: the band of the difference is the sum
    over the classes of |spread after - spread before|.
    """
    now = subject.projection
    if now is None:
        return False
    saved_s = float(now.iteration_s) - candidate.iteration_s
    before, after = now.spreads_s, candidate.projection.spreads_s
    band_s = sum(abs(float(after.get(kind, 0.0)) - float(before.get(kind, 0.0))) for kind in {*before, *after})
    return saved_s > max(how.min_gain * candidate.iteration_s, band_s)


def _same_score(subject: Subject, candidate: Candidate) -> bool:
    """The re-read file scores what the search said, to the byte and to the last digit."""
    if subject.ledger is None or subject.projection is None:
        return False
    mine = [rank.device_high_bytes for rank in subject.ledger.ranks]
    theirs = [rank.device_high_bytes for rank in candidate.ledger.ranks]
    return mine == theirs and float(subject.projection.iteration_s) == candidate.iteration_s


def _nothing_fits(subject: Subject) -> str:
    """No recipe of the space fits: the smallest world size at which one does."""
    world = subject.target.world_size
    assert world is not None
    smallest = smallest_world(subject)
    if smallest is None:
        return (
            f"no legal recipe of the space fits on {world:,} GPUs, nor on any size looked at up to "
            f"{world * MAX_WORLD_FACTOR:,} at this global batch"
        )
    return (
        f"no legal recipe of the space fits on {world:,} GPUs; the smallest world size at which one does is "
        f"{smallest:,} GPUs ({smallest // subject.target.gpus_per_node} nodes) at this global batch"
    )


def smallest_world(subject: Subject) -> int | None:
    """The smallest larger number of whole nodes at which some recipe of the space fits: doubling, then bisection."""
    from primus_lint.tune.search import search

    per_node = subject.target.gpus_per_node
    accelerator = subject.accelerator
    assert subject.target.world_size is not None and accelerator is not None
    world = int(subject.target.world_size)

    def fits(size: int) -> bool:
        best, _ = search(subject.at_world(size), accelerator, memory_only=True, best=1)
        return bool(best)

    low, high = world, world * 2
    while not fits(high):
        low, high = high, high * 2
        if high > world * MAX_WORLD_FACTOR:
            return None
    step = max((high - low) // 8, per_node)
    step -= step % per_node
    for size in range(low + max(step, per_node), high, max(step, per_node)):
        if fits(size):
            return size
    return high
