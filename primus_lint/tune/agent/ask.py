"""The agent as the command line asks for it: `--agent`, `--agent-dry-run`, its budgets, its log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.settings import Settings
    from primus_lint.subject import Subject
    from primus_lint.tune.rescore import Candidate
    from primus_lint.tune.search import Result


def asked(values: dict[str, Any], settings: Settings | None, say: Callable[[str], None]) -> Any:
    """The agent that the options ask for, as `Rules.agent` wants it; None when it is not asked for, or not configured
    (which is said)."""
    if not values.get("agent") and not values.get("agent_dry_run"):
        return None
    from primus_lint.tune.agent.endpoint import Endpoint, endpoint

    where = endpoint(values, settings)
    if isinstance(where, str):
        if not values.get("agent_dry_run"):
            say(where)
            return None
        say(f"{where}; what would be sent is shown all the same")
        where = Endpoint("", "(no model)", "")
    found = where

    def run(subject: Subject, result: Result) -> list[Candidate]:
        return session(subject, result, found, values, say)

    return run


def session(
    subject: Subject, result: Result, where: Any, values: dict[str, Any], say: Callable[[str], None]
) -> list[Candidate]:
    """One session (or its first request, shown and not sent); the candidates that it found."""
    from primus_lint.tune.agent.session import Budget, Session
    from primus_lint.tune.agent.trials import Log, fingerprint

    budget = Budget(
        int(values.get("agent_calls") or Budget().calls),
        int(values.get("agent_tokens") or Budget().tokens),
        float(values.get("agent_seconds") or Budget().seconds),
    )
    dry = bool(values.get("agent_dry_run"))
    log = Log(values.get("trials") or "trials.jsonl", fingerprint(subject), (where.key,), dry)
    talk = Session(subject, result, where, budget, log)
    try:
        if dry:
            say(f"would be sent to {where.url or '(no endpoint)'}/chat/completions:")
            say(json.dumps(talk.first_request(), indent=1))
            return []
        found = talk.run()
    except OSError as error:
        say(f"no agent: the log {log.path} cannot be used: {error.strerror or error}")
        return []
    best = min((each.iteration_s for each in found), default=None)
    against = ""
    if best is not None and result.best:
        against = f"; its best is {result.best[0].iteration_s / best - 1:+.2%} against the search"
    say(
        f"agent: {len(log.trials)} trials, {len(found)} legal and fitting, {talk.calls} calls, {talk.tokens:,} tokens{against}; "
        f"ended: {talk.finished}; log: {log.path}"
    )
    return found
