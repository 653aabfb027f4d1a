"""The typed tools of a language model, and what each answers. All it can do is propose and look: nothing that it says is
written or run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tune.agent import facts, firewall, messages
from primus_lint.tune.agent.trials import Log, Trial
from primus_lint.tune.explain import sensitivity
from primus_lint.tune.rescore import Candidate
from primus_lint.tune.search import Result, unrelated_errors
from primus_lint.tune.what_if import different, with_changes

if TYPE_CHECKING:
    from primus_lint.ledger.result import RankMemory
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

ITEMS = 8  # largest parts of memory that are told
GIB = 2**30


class Tools:
    """The tools on one recipe after its search; every proposal becomes a trial of `log`."""

    def __init__(self, subject: Subject, result: Result, log: Log) -> None:
        self.subject = subject
        self.result = result
        self.log = log
        self.excused = unrelated_errors(subject)
        self.given = dict(subject.lowered.namespace.given)

    def use(self, name: str, given: str | dict[str, Any]) -> dict[str, Any]:
        """The outcome of one call; an error in words when it is none."""
        tool = messages.arguments(name, given)
        if isinstance(tool, str):
            return {"error": tool}
        try:
            if isinstance(tool, messages.Evaluate):
                return self.evaluate(dict(tool.changes))
            if isinstance(tool, messages.Compare):
                return self.compare(tool.first, tool.second)
            if isinstance(tool, messages.Explain):
                return self.explain(tool.trial)
        except firewall.SENSELESS as error:
            return {"error": f"it cannot be computed ({type(error).__name__})"}
        if isinstance(tool, messages.Write):
            self.log.notes.append(tool.text)
            self.log.write("note", text=tool.text)
            return {"kept": len(self.log.notes)}
        return {"finished": True}

    def evaluate(self, changes: dict[str, Any], again: bool = False) -> dict[str, Any]:
        """Score a proposal; `again`: of an earlier session, which is not logged anew."""
        known = self.log.known(changes)
        if known is not None:
            return {"trial": known, "already_tried": True, **self.log.trials[known].outcome}
        wrong = firewall.refused(changes, self.subject, self.result.space.pins)
        trial = Trial(changes, {"rejected": wrong}) if wrong else self.score(changes)
        return {"trial": self.log.add(trial, again), **trial.outcome}

    def score(self, changes: dict[str, Any]) -> Trial:
        """Legality, memory, then time, by the scalar path."""
        try:
            return self._score(changes)
        except firewall.SENSELESS as error:  # values of the right kind that make no sense together
            return Trial(changes, {"rejected": f"it cannot be scored ({type(error).__name__})"})

    def _score(self, changes: dict[str, Any]) -> Trial:
        changed = different(self.given, changes)
        other = with_changes(self.subject, changed)
        errors = tuple(f for f in other.conditions if f.severity == "error")
        broken = [f for f in errors if f.code not in self.excused]
        if broken:
            return Trial(changes, self.illegal(broken, other))
        ledger, objective = other.ledger, self.result.objective
        if ledger is None:
            return Trial(changes, {"rejected": "there is no memory account of it"})
        if int(ledger.worst_rank.device_high_bytes) > objective.capacity_bytes:
            return Trial(changes, {"does_not_fit": memory(ledger.worst_rank, objective.capacity_bytes)})
        projection = other.projection
        if projection is None:
            return Trial(changes, {"rejected": "it cannot be projected"})
        candidate = Candidate(changed, float(projection.iteration_s), ledger, projection, errors)
        outcome = figures(candidate)
        if self.result.best:
            gain = self.result.best[0].iteration_s / candidate.iteration_s - 1
            outcome["against_best"] = f"{gain:+.2%} tokens/s"
        return Trial(changes, outcome, candidate)

    def illegal(self, broken: list[Finding], other: Subject) -> dict[str, Any]:
        """Which rules a proposal breaks: their published texts (never the message, which may quote the file) and the
        values that they look at."""
        from primus_lint.rules.catalogue import documents

        first = broken[0]
        given = other.lowered.namespace.given
        text = documents().get(first.code, {})
        return {
            "illegal": first.name,
            "what": text.get("what", ""),
            "why": text.get("why", ""),
            "values": {key: facts.told(given.get(key)) for key in first.keys},
            "other_rules": sorted({finding.name for finding in broken} - {first.name}),
        }

    def compare(self, first: int, second: int) -> dict[str, Any]:
        trials = self.log.trials
        if not (0 <= first < len(trials) and 0 <= second < len(trials)):
            return self.no_such_trial()
        a, b = trials[first], trials[second]
        different = {
            key: [a.changes.get(key), b.changes.get(key)]
            for key in sorted({*a.changes, *b.changes})
            if a.changes.get(key) != b.changes.get(key)
        }
        return {"arguments": different, "first": a.outcome, "second": b.outcome}

    def explain(self, number: int) -> dict[str, Any]:
        if not 0 <= number < len(self.log.trials):
            return self.no_such_trial()
        candidate = self.log.trials[number].candidate
        if candidate is None:
            return {"error": "that one does not run", **self.log.trials[number].outcome}
        near = [
            {
                "changes": {key: facts.told(value) for key, value in each.changes.items()},
                "gain": None if each.gain is None else f"{each.gain:+.1%}",
                "why": each.why,
            }
            for each in sensitivity(self.subject, candidate, self.result)
        ]
        worst = memory(candidate.ledger.worst_rank, self.result.objective.capacity_bytes)
        return {**figures(candidate), "memory": worst, "one_step_away": near}

    def no_such_trial(self) -> dict[str, Any]:
        return {"error": f"there are {len(self.log.trials)} trials, numbered from 0"}

    @property
    def candidates(self) -> list[Candidate]:
        """What was found that is legal and fits."""
        return [trial.candidate for trial in self.log.trials if trial.candidate is not None]


def figures(candidate: Candidate) -> dict[str, Any]:
    return facts.figures(candidate.iteration_s, candidate.peak_bytes, candidate.projection)


def memory(rank: RankMemory, capacity_bytes: float) -> dict[str, Any]:
    """What the heaviest rank holds."""
    largest = sorted(rank.items.items(), key=lambda pair: -int(pair[1].bytes))[:ITEMS]
    return {
        "peak_gib": round(int(rank.device_high_bytes) / GIB, 2),
        "limit_gib": round(capacity_bytes / GIB, 2),
        "pipeline_rank": rank.pp_rank,
        "largest_parts_gib": {name: round(int(item.bytes) / GIB, 2) for name, item in largest if item.bytes},
    }
