"""What `primus-lint --fix` does: rewrite in place, diff on standard output, summary on standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from primus_lint.cli import common
from primus_lint.cli.common import say

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.bundle import Tuned
    from primus_lint.subject import Subject
    from primus_lint.tune.fix import FixResult


def run_fix(files: tuple[str, ...], values: dict[str, Any]) -> int:
    """Fix all files; the exit status. Text read from standard input goes to standard output instead of the diff."""
    from primus_lint.cli.run import fail_on
    from primus_lint.source.diff import unified_diff
    from primus_lint.tune.fix import fix_source
    from primus_lint.tune.job import rules_of

    options, how = common.make_options(values), rules_of(values)
    only_diff = bool(values.get("diff"))
    if not only_diff:
        common.refuse_what_if(values, "--diff")
    checked: list[Checked] = []
    results: list[FixResult] = []
    failed: list[str] = []
    changed = False
    for path, named, source, settings in common.sources(files, values, failed):
        try:
            result = fix_source(source, options, settings, how)
        except Exception:  # a bug of ours: the other files are repaired all the same
            common.internal_error(f"{path} was not repaired")
            failed.append(path)
            continue
        if not result.before.is_recipe:
            if named:
                common.say_findings(result.before)  # why it cannot be read
                if not result.before.findings:
                    say(f"primus-lint: {path}: {common.no_recipe(source)}")
                failed.append(path)
            continue
        checked.append(result.after)
        results.append(result)
        changed |= result.changed
        if path == "-" and not only_diff:
            sys.stdout.buffer.write(result.source.data)
        elif result.changed:
            name = os.path.relpath(source.path).replace(os.sep, "/")
            color = common.use_color(sys.stdout)
            sys.stdout.write(unified_diff(source.text, result.source.text, name, color=color))
            if not only_diff:
                try:
                    common.replace_file(path, result.source.data, source.data)
                except OSError as error:
                    say(f"primus-lint: {path}: {error.strerror or error}")
                    failed.append(path)
                    continue
        report(result, only_diff)
    if values.get("formats"):
        write_fix_reports(results, values)
    status = common.exit_code(checked, bool(failed), fail_on(checked, values))
    return 1 if only_diff and changed and status == 0 else status


def write_fix_reports(results: list[FixResult], values: dict[str, Any]) -> None:
    """The requested formats: the files as they are now, the diffs, and the recipes that the search weighed."""
    from primus_lint.cli.run import fail_on, write_reports
    from primus_lint.report.bundle import Report
    from primus_lint.source.diff import unified_diff

    report = Report([result.after for result in results], common.repository_root(common.working_directory()))
    report.fail_on = fail_on(report.checked, values)
    for result in results:
        old, path = result.before.document.source, result.after.path
        if old is not None and result.changed:
            name = os.path.relpath(path).replace(os.sep, "/")
            report.diffs[path] = unified_diff(old.text, result.source.text, name)
        if result.candidate is not None:
            report.tuned[path] = weighed(result)
    write_reports(report, values)


def weighed(result: FixResult) -> list[Tuned]:
    """The recipe as it was, the one chosen, and the next best."""
    from primus_lint.report.bundle import Tuned

    points = []
    before = result.before.subjects[0]
    if before.ledger is not None and before.projection is not None:
        peak, rate = before.ledger.worst_rank.device_high_bytes, before.projection.tokens_per_s_per_gpu
        points.append(Tuned("before", float(rate), int(peak), "as it was"))
    for kind, candidate in [("chosen", result.candidate), *(("other", other) for other in result.runners_up)]:
        if candidate is not None:
            peak, rate = candidate.ledger.worst_rank.device_high_bytes, candidate.projection.tokens_per_s_per_gpu
            words = said(candidate.changes) or "as it was"
            points.append(Tuned(kind, float(rate), int(peak), words))
    return points


def said(changes: dict[str, Any]) -> str:
    """Changed keys with their values as YAML writes them."""
    from primus_lint.rules.engine import words

    return ", ".join(f"{key} {words(value)}" for key, value in changes.items())


def report(result: FixResult, only_diff: bool = False) -> None:
    """What was done and why it is better, on standard error."""
    path = result.before.path
    for finding in result.after.findings:
        if finding.severity == "error" and finding.suppressed is None:
            say(f"{path}: remains: error[{finding.name}] {finding.message}")
    for text in result.messages:
        say(f"{path}: {text}")
    if not result.applied:
        reasons = [
            proposal.reason
            for proposal in result.proposals
            if proposal.reason and proposal.result is not None and not proposal.candidates
        ]
        say(f"{path}: unchanged{': ' if reasons else ''}{'; '.join(dict.fromkeys(reasons))}")
        _certificate(result)
        return
    for title in result.applied:
        say(f"{path}: {'would apply' if only_diff else 'applied'}: {title}")
    for before, after in zip(result.before.subjects, result.after.subjects, strict=False):
        _compare(before, after)
    _certificate(result)
    for other in result.runners_up[:3]:
        say(f"  next: {other.iteration_s:.3f} s a step with {said(other.changes) or 'nothing changed'}")


def _certificate(result: FixResult) -> None:
    """What the last search looked at, and what took the rest away."""
    certificate = result.certificate
    if certificate is not None:
        removed = sorted(certificate.removed.items(), key=lambda pair: -pair[1])[:6]
        say(
            f"  searched {certificate.space:,} recipes in {certificate.seconds:.1f} s: {certificate.legal:,} scored, "
            f"{certificate.bounded:,} out by their bound, {certificate.fitting:,} of the fast ones fit, "
            f"{certificate.rescored} rescored exactly; {certificate.statement()}; removed by "
            + (", ".join(f"{name} {number:,}" for name, number in removed) or "nothing")
        )


def _compare(before: Subject, after: Subject) -> None:
    from primus_lint.units import gib

    for name, subject in (("before", before), ("after", after)):
        if not subject.has_figures:
            return
        ledger, projection = subject.ledger, subject.projection
        if ledger is None:
            say(f"  {name}: no memory: {'; '.join(subject.no_memory)}")
            continue
        capacity = subject.accelerator.visible_hbm_bytes if subject.accelerator else None
        ranks = ", ".join(
            f"rank {rank.pp_rank}{f' ({rank.dp} data-parallel rank)' if rank.dp != 'all' else ''} "
            f"{gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}"
            f"{' OVER' if capacity and rank.device_low_bytes > capacity else ''}"
            for rank in ledger.ranks
        )
        speed = "" if projection is None else f"; {projection.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
        if subject.fits is False:
            speed = "; does not run, so it has no speed"
        say(f"  {name}: {ranks}{speed}")
