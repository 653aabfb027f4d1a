"""A session with a language model: it calls typed tools, the tools answer with exact scores, budgets end it.

Every proposal passes the same firewall before it is scored: known keys that may change, values of the right kind, the
safety class that is allowed, the rules of the framework, then memory, then time. What the model finds enters the
candidates like anything else that the search found.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune.agent import facts, messages
from primus_lint.tune.agent.endpoint import CallError, Endpoint, call
from primus_lint.tune.agent.tools import Tools, figures

if TYPE_CHECKING:
    from primus_lint.subject import Subject
    from primus_lint.tune.agent.trials import Log, Trial
    from primus_lint.tune.rescore import Candidate
    from primus_lint.tune.search import Result

REPLY_TOKENS = 8192  # of one reply at most
CHARACTERS = 3  # of a token, about: what a request costs is not known before it is sent
KEPT_MESSAGES = 60  # the beginning and the newest; what was found is told again
FAILURES = 3  # replies in a row that bring nothing
HISTORY = 8  # of the search
EARLIER = 40  # trials that are told again


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
        self.tools = Tools(subject, result, log)
        self.calls = 0
        self.tokens = 0
        self.start = time.monotonic()
        self.messages: list[dict[str, Any]] = []
        self.finished = ""

    def first_request(self) -> dict[str, Any]:
        """The request that opens the session: what `--agent-dry-run` shows. Trials of earlier sessions are scored again
        first."""
        if not self.messages:
            for changes in self.log.earlier():
                if self.left_s() > 0:
                    self.tools.evaluate(changes, again=True)
            history = [
                {"changes": {key: facts.told(value) for key, value in each.changes.items()}, **figures(each)}
                for each in self.result.best[:HISTORY]
            ]
            task = facts.task(self.subject, self.result.space, history, self.budget._asdict())
            if self.log.trials or self.log.notes:
                task["earlier_sessions"] = self.found()
            self.messages = [
                {"role": "system", "content": facts.SYSTEM},
                {"role": "user", "content": json.dumps(task, sort_keys=True)},
            ]
            self.log.write("messages", messages=self.messages)
        return self.request()

    def request(self) -> dict[str, Any]:
        body = {
            "model": self.where.model,
            "messages": self.shortened(),
            "tools": messages.schema(),
            "tool_choice": "auto",
        }
        left = self.budget.tokens - self.tokens - _tokens(body)
        return {**body, "max_tokens": max(min(REPLY_TOKENS, left), 1)}

    def shortened(self) -> list[dict[str, Any]]:
        """The conversation without its middle when it grows long: what was found in it stands instead. Never begins with
        the answer to a call left out."""
        if len(self.messages) <= KEPT_MESSAGES:
            return self.messages
        tail = self.messages[-(KEPT_MESSAGES - 3) :]
        while tail and tail[0]["role"] == "tool":
            tail = tail[1:]
        middle = {"role": "user", "content": json.dumps({"so_far": self.found()}, sort_keys=True)}
        return [*self.messages[:2], middle, *tail]

    def found(self) -> dict[str, Any]:
        """The trials that run, the fastest first, then the newest of the others; and what was noted."""

        def place(pair: tuple[int, Trial]) -> tuple[float, int]:
            number, trial = pair
            return (float("inf") if trial.candidate is None else trial.candidate.iteration_s), -number

        rows = sorted(enumerate(self.log.trials), key=place)[:EARLIER]
        return {
            "trials": [
                {"trial": number, "changes": {k: facts.told(v) for k, v in trial.changes.items()}, **trial.outcome}
                for number, trial in rows
            ],
            "notes": self.log.notes[-EARLIER:],
        }

    def run(self) -> list[Candidate]:
        """Talk until a budget or the model ends it; the candidates found, legal and fitting."""
        self.first_request()
        failures = 0
        while not self.finished:
            body = self.request()
            self.finished = self.spent(body)
            if self.finished:
                break
            try:
                reply = self.ask(body)
            except CallError as error:
                self.finished = str(error)
                break
            wrong = reply if isinstance(reply, str) else self.answer(reply.choices[0].message)
            failures = failures + 1 if wrong else 0
            if wrong:
                self.say({"role": "user", "content": f"{wrong}; call a tool"})
            if failures == FAILURES:
                self.finished = f"{failures} replies in a row brought nothing: {wrong}"
        self.log.write("end", text=self.finished, calls=self.calls, tokens=self.tokens)
        return self.tools.candidates

    def spent(self, body: dict[str, Any]) -> str:
        """Which budget is used up, or would be by this request alone; "" while none is."""
        if self.calls >= self.budget.calls:
            return f"{self.calls} calls made"
        if self.tokens + _tokens(body) >= self.budget.tokens:
            return f"{self.tokens:,} tokens used, the next request would be too many"
        return f"{self.budget.seconds:.0f} s are over" if self.left_s() <= 0 else ""

    def left_s(self) -> float:
        return self.budget.seconds - (time.monotonic() - self.start)

    def ask(self, body: dict[str, Any]) -> messages.Reply | str:
        """One call; a checked reply, or what is wrong with it. Raises CallError."""
        self.calls += 1
        data = call(self.where, body, self.left_s())
        self.log.write("reply", reply=data)
        reply = messages.reply(data)
        if isinstance(reply, messages.Reply) and reply.usage is not None and reply.usage.total_tokens:
            self.tokens += reply.usage.total_tokens
        else:  # a server that does not count
            self.tokens += _tokens(body) + _tokens(data)
        return reply

    def answer(self, message: messages.Message) -> str:
        """Run the tools that a message calls; what is wrong with it, "" when it called one."""
        calls = [
            {"id": each.id or f"call_{self.calls}_{index}", "type": "function",
             "function": {"name": each.function.name, "arguments": each.function.text}}
            for index, each in enumerate(message.tool_calls or ())
        ]  # fmt: skip
        if not calls:
            self.say({"role": "assistant", "content": message.text or "(nothing)"})
            return "no tool was called"
        self.say({"role": "assistant", "content": message.text, "tool_calls": calls})
        for each, sent in zip(message.tool_calls or (), calls, strict=True):
            if self.left_s() <= 0:
                outcome: dict[str, Any] = {"error": "the time is over"}
            else:
                outcome = self.tools.use(each.function.name, each.function.arguments)
            if outcome.get("finished"):
                self.finished = "the model has finished"
            self.say({"role": "tool", "tool_call_id": sent["id"], "content": json.dumps(outcome)})
        return ""

    def say(self, message: dict[str, Any]) -> None:
        """Add a message to the conversation (and to the log)."""
        self.messages.append(message)
        if message["role"] != "assistant":  # a reply is logged as it came
            self.log.write("messages", messages=[message])


def _tokens(data: dict[str, Any]) -> int:
    """About how many tokens a request or reply has (rather too many)."""
    return len(json.dumps(data)) // CHARACTERS
