"""Where the language model is, and one call to it over HTTP (the chat protocol that OpenAI-compatible servers speak).

The URL comes from the command line, then the environment (PRIMUS_LINT_AGENT_URL, OPENAI_BASE_URL), then the settings. A
settings file travels with a repository, so the key of another service is never sent where one says: OPENAI_API_KEY goes
to a URL from the command line or the environment alone, PRIMUS_LINT_AGENT_KEY to any. No key leaves unencrypted, except to
this machine, and redirects are not followed.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from primus_lint.settings import Settings

LARGEST_REPLY = 1 << 20  # bytes
CALL_S = 180.0  # for one reply
RETRIES = 3
WAIT_S = 1.0  # before the first retry, unless the server says how long; doubled after each
LOCAL = ("localhost", "127.0.0.1", "::1")


class Endpoint(NamedTuple):
    """`key` is "" when there is none to send."""

    url: str
    model: str
    key: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""


class CallError(Exception):
    """A call that brought no usable reply. `wait_s`: when to try again; None: not at all."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def endpoint(values: dict[str, Any], settings: Settings | None) -> Endpoint | str:
    """The endpoint that is configured, or what is missing, in words."""
    env = os.environ
    told = values.get("agent_url") or env.get("PRIMUS_LINT_AGENT_URL") or env.get("OPENAI_BASE_URL")
    url = str(told or (settings.agent_url if settings is not None else None) or "").rstrip("/")
    model = values.get("agent_model") or env.get("PRIMUS_LINT_AGENT_MODEL")
    model = str(model or (settings.agent_model if settings is not None else None) or "")
    if not url or not model:
        return (
            "no agent: set PRIMUS_LINT_AGENT_URL and PRIMUS_LINT_AGENT_MODEL (or --agent-url and --agent-model, or agent-url "
            "and agent-model in the settings), and PRIMUS_LINT_AGENT_KEY if the endpoint wants a key"
        )
    host, scheme = _host(url)
    if not host:
        return "no agent: the URL is no base URL of the form https://host/v1 (without a user, a password or a query)"
    key = env.get("PRIMUS_LINT_AGENT_KEY") or (env.get("OPENAI_API_KEY") if told else None) or ""
    if key and scheme == "http" and host not in LOCAL:
        return f"no agent: a key is not sent over plain http to {host}"
    if not key.isascii() or not key.isprintable():
        return "no agent: the key holds characters that no HTTP header can"
    return Endpoint(url, model, key)


def _host(url: str) -> tuple[str, str]:
    """Host and scheme of a base URL; "" for one that is none."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.port != 0 and not (parts.query or parts.fragment)
        return (parts.hostname or "" if good and "@" not in parts.netloc else ""), parts.scheme
    except ValueError:  # a port that is none, brackets without an address
        return "", ""


def call(where: Endpoint, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """POST one request; the reply as an object. Errors that may pass are tried again. Raises CallError: no reply in time,
    none that is an object, one that is too long, or an error of the server."""
    import time

    wait_s, deadline = WAIT_S, time.monotonic() + timeout_s
    for attempt in range(RETRIES + 1):
        try:
            return _once(where, body, min(CALL_S, deadline - time.monotonic()))
        except CallError as error:
            if error.wait_s is None or attempt == RETRIES:
                raise
            pause_s = max(error.wait_s, wait_s)
            if time.monotonic() + pause_s >= deadline:
                raise
        time.sleep(pause_s)
        wait_s *= 2
    raise AssertionError("unreachable")


def _once(where: Endpoint, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """One exchange, in a thread of its own: the time holds for the whole of it, whatever a server does in between."""
    import threading

    outcome: list[dict[str, Any] | CallError] = []

    def work() -> None:
        try:
            outcome.append(_exchange(where, body, timeout_s))
        except CallError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(max(timeout_s, 0.0))
    if not outcome:
        raise CallError("no reply in time", 0.0)
    if isinstance(outcome[0], CallError):
        raise outcome[0]
    return outcome[0]


def _exchange(where: Endpoint, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    import http.client
    import time
    import urllib.error
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            """Nowhere else: the key is for this host."""

    deadline = time.monotonic() + timeout_s
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "primus-lint"}
    if where.key:
        headers["Authorization"] = f"Bearer {where.key}"
    request = urllib.request.Request(where.url + "/chat/completions", json.dumps(body).encode(), headers)
    # what goes to this machine goes there directly; else the proxies of the environment hold
    direct = [urllib.request.ProxyHandler({})] if where.host in LOCAL else []
    try:
        with urllib.request.build_opener(Stay, *direct).open(request, timeout=max(timeout_s, 0.01)) as response:
            data = b""
            while len(data) <= LARGEST_REPLY and time.monotonic() < deadline and (piece := response.read1(1 << 16)):
                data += piece
            status = response.status
    except urllib.error.HTTPError as error:
        passing = error.code in (408, 409, 429) or error.code >= 500
        said = error.headers.get("Retry-After", "") if passing else ""
        error.close()
        wait_s = float(said) if said.isdecimal() else 0.0
        raise CallError(f"{where.host} answers with status {error.code}", wait_s if passing else None) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CallError(f"no reply from {where.host}: {type(error).__name__}", 0.0) from None
    if status != 200:
        raise CallError(f"{where.host} answers with status {status}")
    if len(data) > LARGEST_REPLY:
        raise CallError(f"the reply is longer than {LARGEST_REPLY:,} bytes")
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        raise CallError("the reply is no JSON", 0.0) from None
    if not isinstance(reply, dict):
        raise CallError("the reply is no JSON object", 0.0)
    return reply
