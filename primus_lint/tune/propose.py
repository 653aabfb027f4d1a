"""What the search proposes for one section of a file: a recipe worth writing, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from primus_lint.subject import Subject
    from primus_lint.tune.rescore import Candidate
    from primus_lint.tune.search import Result
    from primus_lint.tune.sweep import Single
    from primus_lint.tune.whole import Scored


class Rules:
    """How a fix may go: which safety classes, what it may touch, what it looks for and what it must gain.

    `min_gain` and `min_headroom` are shares; `limits` maps keys to the values that they may take.
    """

    __slots__ = (
        "agent",
        "budget_s",
        "front",
        "keep",
        "limits",
        "min_gain",
        "min_headroom",
        "minimal",
        "objective",
        "reach",
        "tune",
        "unsafe",
    )

    def __init__(
        self,
        *,
        unsafe: bool = False,
        tune: bool = True,
        minimal: bool = False,
        min_gain: float = 0.03,
        keep: frozenset[str] = frozenset(),
        limits: Mapping[str, tuple[Any, ...]] | None = None,
        objective: str = "tokens",
        min_headroom: float = 0.0,
        reach: float | None = None,
        budget_s: float = float("inf"),
        front: bool = False,
        agent: Callable[[Subject, Result], list[Candidate]] | None = None,
    ) -> None:
        self.unsafe = unsafe
        self.tune = tune
        self.minimal = minimal
        self.min_gain = min_gain
        self.keep = keep
        self.limits = dict(limits or {})
        self.objective = objective
        self.min_headroom = min_headroom
        self.reach = reach
        self.budget_s = budget_s
        self.front = front
        self.agent = agent  # asks a language model for more candidates after the search


class Proposal:
    """`candidates`: recipes worth writing, the preferred first (empty: leave the recipe as it is); `reason` says why
    there are none, or what the candidates are; `broken`: the recipe as it stands does not start or is not sure to fit."""

    __slots__ = ("broken", "candidates", "names", "reason", "result", "singles", "subject")

    def __init__(self, subject: Subject, broken: bool = False) -> None:
        self.subject = subject
        self.names: dict[str, str] = {}  # key of a candidate -> key of the section, where they differ
        self.broken = broken
        self.candidates: list[Candidate] = []
        self.reason = ""
        self.result: Result | Scored | None = None
        self.singles: list[Single] = []  # one change at a time, where that is to be shown


def propose(subject: Subject, how: Rules) -> Proposal:
    """Search for a better recipe of one section."""
    names: dict[str, str] = {}
    if subject.section.framework == "megatron_bridge" and subject.run is not None:
        from primus_lint.tune.bridge import searched_as

        subject, how, names = searched_as(subject, how)
    proposal = Proposal(subject)
    proposal.names = names
    if subject.section.framework == "torchtitan" and subject.computable and subject.projection is not None:
        return _of_all(proposal, how)
    if subject.section.framework != "megatron" or subject.run is None:
        if how.tune:
            why = (
                "; ".join(subject.no_time) or f"only recipes of Megatron are tuned, not of {subject.section.framework}"
            )
            proposal.reason = f"no search: {why}"
        return proposal
    accelerator = subject.accelerator
    if accelerator is None or subject.target.world_size is None:
        if how.tune or needs_search(subject, how):
            proposal.reason = "no search: it needs a GPU kind and a world size (--gpu, --nodes)"
        return proposal
    from primus_lint.ledger.build import abstain

    reasons = [reason for reason in abstain(subject.run) if subject.run.parallel.stages is not None]
    if reasons:
        proposal.reason = f"no search: {reasons[0]}"
        return proposal
    proposal.broken = broken = needs_search(subject, how)
    if not broken and (not how.tune or how.minimal):
        return proposal
    from primus_lint.tune.layer_ids import by_layer
    from primus_lint.tune.pipelines import other_pipelines
    from primus_lint.tune.search import Pins, search, unrelated_errors
    from primus_lint.tune.shardings import other_shardings
    from primus_lint.tune.simplify import simplify
    from primus_lint.tune.sweep import climb, sweep

    minimal = how.minimal or not how.tune
    pins = Pins(how.keep, how.limits, how.unsafe)
    reached = pins, accelerator.visible_hbm_bytes * (1 - how.min_headroom), unrelated_errors(subject)
    if how.front:
        proposal.singles = sweep(subject, *reached)
    # a search that may end early starts from what single steps lead to
    seeds = climb(subject, *reached) if how.budget_s < float("inf") and not minimal else []
    result = search(
        subject, accelerator, pins=pins, kind="minimal" if minimal else how.objective, min_headroom=how.min_headroom,
        budget_s=how.budget_s, reach=how.reach, front=how.front, seeds=seeds,
    )  # fmt: skip
    if not minimal:
        for others in (by_layer, other_pipelines, other_shardings):
            result = with_ideas(result, others(subject, result, unrelated_errors(subject)))
    if how.agent is not None and not minimal:
        result = with_ideas(result, how.agent(subject, result))
    if names:  # what lies beyond the keys that the recipe function takes cannot be written
        result = result._replace(best=_written(subject, result.best, names))
        proposal.singles = _written(subject, proposal.singles, names)
    proposal.result = result
    if not result.best:
        proposal.reason = nothing_fits(subject, how) if broken else "no recipe of the space is legal and fits"
        return proposal
    best = list(result.best)
    if not minimal and how.objective != "memory-headroom" and best[0].changes:
        fewer = [simplify(subject, result, unrelated_errors(subject))]
        best[:0] = _written(subject, fewer, names) if names else fewer
    if not best[0].changes:
        proposal.reason = "nothing of the space is better than the recipe as it stands"
        if best[0].errors:
            broken_rules = dict.fromkeys(finding.name for finding in best[0].errors)
            proposal.reason += f", and nothing of it cures {', '.join(broken_rules)}"
        return proposal
    chosen = [c for c in best if c.changes and (broken or worth_it(subject, c, how))]
    if not chosen:
        gain = gain_of(subject, best[0])
        proposal.reason = "no change is worth writing"
        if gain is not None:
            proposal.reason += f": the best gains {gain:.1%}" if gain > 0 else ": nothing in the space is faster"
        if gain is not None and gain > how.min_gain and subject.projection is not None:
            from primus_lint.tune.ties import band_s

            band = band_s(subject.projection, best[0].projection) / best[0].iteration_s
            proposal.reason += f", less than the band of the comparison ({band:.1%})"
        return proposal
    proposal.candidates = chosen
    proposal.reason = "the fewest changes that fit" if minimal else TITLES[how.objective]
    return proposal


def _written(subject: Subject, found: list[Any], names: dict[str, str]) -> list[Any]:
    """Candidates or single changes as a Megatron-Bridge recipe has them, without those that it cannot."""
    from primus_lint.tune.bridge import writable

    stated = [each._replace(changes=writable(subject, each.changes)) for each in found]
    return [each for each in stated if each.changes.keys() <= names.keys()]


def _of_all(proposal: Proposal, how: Rules) -> Proposal:
    """The proposal of a search that scores every recipe of its space."""
    from primus_lint.tune.whole import whole

    subject, minimal = proposal.subject, how.minimal or not how.tune
    proposal.broken = broken = needs_search(subject, how)
    if not broken and minimal:
        return proposal
    proposal.result = result = whole(subject, how)
    if not result.best:
        proposal.reason = f"no legal recipe of the space fits on {subject.target.world_size:,} GPUs"
        return proposal
    proposal.candidates = [each for each in result.best if each.changes and (broken or worth_it(subject, each, how))]
    if proposal.candidates and result.best[0].changes:
        proposal.reason = "the fewest changes that fit" if minimal else TITLES[how.objective]
        return proposal
    proposal.candidates = []
    gain = gain_of(subject, result.best[0])
    proposal.reason = "no change is worth writing: " + (
        f"the best gains {gain:.1%}" if gain is not None and gain > 0 else "nothing in the space is faster"
    )
    return proposal


TITLES = {
    "tokens": "the fastest recipe that fits",
    "cost": "the cheapest recipe that fits",
    "memory-headroom": "the recipe with the most headroom that is not slower",
}


def with_ideas(result: Result, ideas: list[Candidate]) -> Result:
    """The outcome of a search with further candidates, in the order of its objective."""
    from primus_lint.tune.rescore import order

    objective = result.objective
    names = {candidate.name for candidate in result.best}
    slowest = objective.seconds_limit if objective.kind == "memory-headroom" else float("inf")
    more = [each for each in ideas if each.name not in names and each.iteration_s <= slowest]
    return result._replace(best=sorted([*result.best, *more], key=lambda each: order(objective, each)))


def needs_search(subject: Subject, how: Rules) -> bool:
    """Illegal, or some rank is not sure to fit (with the headroom that is asked for)."""
    from primus_lint.tune import whole
    from primus_lint.tune.keys import TUNED

    tuned = {*TUNED, *whole.KEYS}
    if any(finding.severity == "error" and set(finding.keys) & tuned for finding in subject.conditions):
        return True
    accelerator = subject.accelerator
    if accelerator is None or subject.ledger is None:
        return False
    capacity = accelerator.visible_hbm_bytes
    if subject.ledger.fits(capacity) is False:
        return True
    return how.min_headroom > 0 and subject.ledger.fits(int(capacity * (1 - how.min_headroom))) is not True


def gain_of(subject: Subject, candidate: Candidate) -> float | None:
    """Share of tokens/s that a candidate gains over the recipe as it stands; None when that one does not run."""
    now, accelerator = subject.projection, subject.accelerator
    if now is None or accelerator is None or subject.ledger is None:
        return None
    if subject.ledger.fits(accelerator.visible_hbm_bytes) is False:
        return None
    return float(now.iteration_s) / candidate.iteration_s - 1


def worth_it(subject: Subject, candidate: Candidate, how: Rules) -> bool:
    """Whether the gain exceeds the wanted one and the band of the comparison."""
    now = subject.projection
    if now is None or subject.ledger is None:
        return False
    if how.objective == "memory-headroom":
        before = int(subject.ledger.worst_rank.device_high_bytes)
        return before - candidate.peak_bytes > how.min_gain * before
    from primus_lint.tune.ties import band_s

    saved_s = float(now.iteration_s) - candidate.iteration_s
    return saved_s > max(how.min_gain * candidate.iteration_s, band_s(now, candidate.projection))


def same_score(subject: Subject, candidate: Candidate) -> bool:
    """The re-read file scores what the search said, to the byte and to the last digit."""
    if subject.ledger is None or subject.projection is None:
        return False
    mine = [rank.device_high_bytes for rank in subject.ledger.ranks]
    theirs = [rank.device_high_bytes for rank in candidate.ledger.ranks]
    return mine == theirs and float(subject.projection.iteration_s) == candidate.iteration_s


def nothing_fits(subject: Subject, how: Rules) -> str:
    """No recipe of the space fits: the smallest world size at which one does."""
    from primus_lint.tune.search import Pins
    from primus_lint.tune.smallest import MAX_FACTOR, smallest_world

    world, accelerator = subject.target.world_size, subject.accelerator
    assert world is not None and accelerator is not None
    smallest = smallest_world(subject, accelerator, Pins(how.keep, how.limits, how.unsafe), how.min_headroom)
    if smallest is None:
        return (
            f"no legal recipe of the space fits on {world:,} GPUs, nor on any larger number of whole nodes up to "
            f"{world * MAX_FACTOR:,} GPUs at this global batch"
        )
    return (
        f"no legal recipe of the space fits on {world:,} GPUs; the smallest world size at which one does is "
        f"{smallest:,} GPUs ({smallest // subject.target.gpus_per_node} nodes) at this global batch"
    )
