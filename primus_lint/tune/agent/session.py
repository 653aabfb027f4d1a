"""A session with a language model: it calls typed tools, the tools answer with exact scores, budgets end it.

Every proposal passes the same firewall before it is scored: known keys that may change, values of the right kind, the
safety class that is allowed, the rules of the framework, then memory, then time. Nothing that the model says is written
or run; what it finds enters the candidates like anything else that the search found.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune import safety
from primus_lint.tune.agent import facts, firewall, messages
from primus_lint.tune.agent.endpoint import CallError, Endpoint, call
from primus_lint.tune.agent.trials import Log, Trial
from primus_lint.tune.explain import Neighbour, sensitivity
from primus_lint.tune.keys import TUNED
from primus_lint.tune.rescore import Candidate
from primus_lint.tune.search import Result, unrelated_errors
from primus_lint.tune.what_if import with_changes

if TYPE_CHECKING:
    from primus_lint.pipeline import Subject

MAX_TOKENS = 4096  # of one reply
KEPT_MESSAGES = 60  # the beginning and the newest; older ones are in the trials
FAILURES = 3  # replies in a row that bring nothing


class Budget(NamedTuple):
    """Limits of one session."""

    calls: int = 20
    tokens: int = 200_000
    seconds: float = 600.0


class Session:
    """One session on one recipe after its search."""

    def __init__(self, subject: Subject, result: Result, where: Endpoint, budget: Budget, log: Log) -> None:
        self.subject = subject
        self.result = result
        self.where = where
        self.budget = budget
        self.log = log
        self.given = dict(subject.lowered.namespace.given)
        self.excused = unrelated_errors(subject)
        self.calls = 0
        self.tokens = 0
        self.start = time.monotonic()
        self.messages: list[dict[str, Any]] = []
        self.finished = ""

    def first_request(self) -> dict[str, Any]:
        """The request that opens the session: what `--agent-dry-run` shows."""
        if not self.messages:
            history = [
                {"changes": {key: facts.told(v) for key, v in c.changes.items()}, **_figures(c)}
                for c in self.result.best[:8]
            ]
            seen = self.log.earlier()
            task = facts.task(self.subject, self.result.space, history, self.budget._asdict())
            if seen:
                told = [{key: facts.told(value) for key, value in changes.items()} for changes in seen[-50:]]
                task["tried_in_earlier_sessions"] = told
            self.messages = [
                {"role": "system", "content": facts.SYSTEM},
                {"role": "user", "content": json.dumps(task, sort_keys=True)},
            ]
        return self.request()

    def request(self) -> dict[str, Any]:
        return {
            "model": self.where.model,
            "messages": self.shortened(),
            "tools": messages.schema(),
            "tool_choice": "auto",
            "max_tokens": MAX_TOKENS,
        }

    def shortened(self) -> list[dict[str, Any]]:
        """The conversation without its middle when it grows long; never begins with the answer to a call left out."""
        if len(self.messages) <= KEPT_MESSAGES:
            return self.messages
        tail = self.messages[-(KEPT_MESSAGES - 2) :]
        while tail and tail[0]["role"] == "tool":
            tail = tail[1:]
        return [*self.messages[:2], *tail]

    def run(self) -> list[Candidate]:
        """Talk until a budget or the model ends it; the candidates found, legal and fitting."""
        for changes in self.log.earlier():
            self.evaluate(changes, again=True)
        self.first_request()
        failures = 0
        while not self.finished:
            self.finished = self.spent()
            if self.finished:
                break
            try:
                reply = self.ask()
            except CallError as error:
                self.log.write("error", text=str(error))
                failures += 1
                if error.final or failures == FAILURES:
                    self.finished = str(error)
                continue
            if isinstance(reply, str) or not self.answer(reply.choices[0].message):
                failures += 1
                text = reply if isinstance(reply, str) else "no tool was called"
                self.log.write("error", text=text)
                self.messages.append({"role": "user", "content": f"{text}; call a tool"})
                if failures == FAILURES:
                    self.finished = f"{failures} replies in a row brought nothing: {text}"
                continue
            failures = 0
        self.log.write("end", text=self.finished, calls=self.calls, tokens=self.tokens)
        return [trial.candidate for trial in self.log.trials if trial.candidate is not None]

    def spent(self) -> str:
        """Which budget is used up; "" while none is."""
        if self.calls >= self.budget.calls:
            return f"{self.calls} calls made"
        if self.tokens >= self.budget.tokens:
            return f"{self.tokens:,} tokens used"
        return f"{self.budget.seconds:.0f} s are over" if self.left_s() <= 0 else ""

    def left_s(self) -> float:
        return self.budget.seconds - (time.monotonic() - self.start)

    def ask(self) -> messages.Reply | str:
        """One call; a checked reply, or what is wrong with it. Raises CallError."""
        body = self.request()
        self.log.write("request", messages=body["messages"][-4:])
        self.calls += 1
        data = call(self.where, body, self.left_s())
        self.log.write("reply", reply=data)
        reply = messages.reply(data)
        if isinstance(reply, messages.Reply) and reply.usage is not None and reply.usage.total_tokens:
            self.tokens += reply.usage.total_tokens
        else:  # a server that does not count: about four characters a token
            self.tokens += (len(json.dumps(body)) + len(json.dumps(data))) // 4
        return reply

    def answer(self, message: messages.Message) -> bool:
        """Run the tools that a message calls; whether there was one."""
        calls = message.tool_calls or []
        kept: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
        if calls:
            kept["tool_calls"] = [
                {"id": each.id, "type": "function",
                 "function": {"name": each.function.name, "arguments": _text(each.function.arguments)}}
                for each in calls
            ]  # fmt: skip
        self.messages.append(kept)
        for each in calls:
            checked = messages.arguments(each.function.name, each.function.arguments)
            outcome = {"error": checked} if isinstance(checked, str) else self.use(checked)
            self.messages.append({"role": "tool", "tool_call_id": each.id, "content": json.dumps(outcome)})
        return bool(calls)

    def use(self, tool: messages.Strict) -> dict[str, Any]:
        """The outcome of one tool."""
        if isinstance(tool, messages.Evaluate):
            return self.evaluate(dict(tool.changes))
        if isinstance(tool, messages.Compare):
            return self.compare(tool.first, tool.second)
        if isinstance(tool, messages.Explain):
            return self.explain(tool.trial)
        if isinstance(tool, messages.Write):
            self.log.notes.append(tool.text)
            self.log.write("note", text=tool.text)
            return {"kept": len(self.log.notes)}
        assert isinstance(tool, messages.Finish)
        self.finished = "the model has finished"
        return {"finished": True}

    def evaluate(self, changes: dict[str, Any], again: bool = False) -> dict[str, Any]:
        """Score a proposal; `again`: of an earlier session, which is not logged anew."""
        known = self.log.known(changes)
        if known is not None:
            return {"trial": known, "already_tried": True, **self.log.trials[known].outcome}
        wrong = self.firewall(changes)
        trial = Trial(changes, {"rejected": wrong}) if wrong else self.score(changes)
        if again:
            self.log.trials.append(trial)
            return trial.outcome
        return {"trial": self.log.add(trial), **trial.outcome}

    def firewall(self, changes: dict[str, Any]) -> str:
        """Why a proposal is not even looked at; "" when it may be."""
        pins = self.result.space.pins
        assert self.subject.run is not None
        for key, value in changes.items():
            if key not in TUNED:
                return f"{key[:80]} may not change"
            if not pins.allows(key):
                return f"{key} is kept as it is"
            wrong = firewall.wrong_kind(key, value, self.subject.run)
            if wrong:
                return f"{key}: {wrong}"
        if not pins.within(changes):
            return "outside the limits that were given"
        kind = safety.class_of_all(changes.items(), self.given, self.subject.run.model)
        if kind == safety.DISPLAY or (kind == safety.UNSAFE and not pins.unsafe):
            return f"{kind}: it would change numerics, compatibility or what is trained"
        return ""

    def score(self, changes: dict[str, Any]) -> Trial:
        """Legality, memory, then time, by the scalar path."""
        try:
            return self._score(changes)
        except firewall.SENSELESS as error:  # values of the right kind that make no sense together
            return Trial(changes, {"rejected": f"it cannot be scored ({type(error).__name__})"})

    def _score(self, changes: dict[str, Any]) -> Trial:
        different = {key: value for key, value in changes.items() if self.given.get(key) != value}
        other = with_changes(self.subject, different)
        broken = [f for f in other.conditions if f.severity == "error" and f.code not in self.excused]
        if broken:
            return Trial(changes, {"illegal": broken[0].name, "rules": sorted({f.name for f in broken})})
        ledger = other.ledger
        if ledger is None:
            return Trial(changes, {"rejected": "there is no memory account of it"})
        peak, capacity = int(ledger.worst_rank.device_high_bytes), self.result.objective.capacity_bytes
        if peak > capacity:
            return Trial(changes, {"does_not_fit": {"peak_gib": round(peak / 2**30, 2), "limit_gib": round(capacity / 2**30, 2),
                                                    "pipeline_rank": ledger.worst_rank.pp_rank}})  # fmt: skip
        projection = other.projection
        if projection is None:
            return Trial(changes, {"rejected": "it cannot be projected"})
        errors = tuple(f for f in other.conditions if f.severity == "error")
        candidate = Candidate(different, float(projection.iteration_s), ledger, projection, errors)
        best = self.result.best[0].iteration_s if self.result.best else None
        outcome = _figures(candidate)
        if best is not None:
            outcome["against_best"] = f"{best / candidate.iteration_s - 1:+.2%} tokens/s"
        return Trial(changes, outcome, candidate)

    def compare(self, first: int, second: int) -> dict[str, Any]:
        trials = self.log.trials
        if not (0 <= first < len(trials) and 0 <= second < len(trials)):
            return {"error": f"there are trials 0 to {len(trials) - 1}"}
        a, b = trials[first], trials[second]
        keys = sorted({*a.changes, *b.changes})
        return {
            "arguments": {
                key: [a.changes.get(key), b.changes.get(key)]
                for key in keys
                if a.changes.get(key) != b.changes.get(key)
            },
            "first": a.outcome,
            "second": b.outcome,
        }

    def explain(self, number: int) -> dict[str, Any]:
        if not 0 <= number < len(self.log.trials):
            return {"error": f"there are trials 0 to {len(self.log.trials) - 1}"}
        candidate = self.log.trials[number].candidate
        if candidate is None:
            return {"error": "that one does not run", **self.log.trials[number].outcome}
        near: list[Neighbour] = sensitivity(self.subject, candidate, self.result)
        return {
            **_figures(candidate),
            "one_step_away": [
                {"changes": {key: facts.told(v) for key, v in each.changes.items()},
                 "gain": None if each.gain is None else f"{each.gain:+.1%}", "why": each.why}
                for each in near
            ],
        }  # fmt: skip


def _figures(candidate: Candidate) -> dict[str, Any]:
    return facts.figures(candidate.iteration_s, candidate.peak_bytes, candidate.projection)


def _text(given: str | dict[str, Any]) -> str:
    return given if isinstance(given, str) else json.dumps(given)
