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
RETRIES = 2
WAIT_S = 1.0  # before the first retry; doubled after each
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
    """A call that brought no usable reply. `final`: another call would not either."""

    def __init__(self, message: str, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


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
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        return f"no agent: {parts.scheme or 'the URL'}://{parts.hostname or '?'} is no base URL of the form https://host/v1"
    key = env.get("PRIMUS_LINT_AGENT_KEY") or (env.get("OPENAI_API_KEY") if told else None) or ""
    if key and parts.scheme == "http" and parts.hostname not in LOCAL:
        return f"no agent: a key is not sent over plain http to {parts.hostname}"
    return Endpoint(url, model, key)


def call(where: Endpoint, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """POST one request; the reply as an object. Raises CallError: for a reply that is none, too long, too late, or an
    error of the server (tried again when it may pass)."""
    import time

    wait = WAIT_S
    deadline = time.monotonic() + timeout_s
    for attempt in range(RETRIES + 1):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return _once(where, body, left)
        except CallError as error:
            if error.final or attempt == RETRIES or time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)
        wait *= 2
    raise CallError("no reply in time", final=True)


def _once(where: Endpoint, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    import http.client
    import threading
    import time

    deadline = time.monotonic() + timeout_s
    parts = urlsplit(where.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if where.key:
        headers["Authorization"] = f"Bearer {where.key}"
    # the socket's timeout is per read: a server that drips bytes is cut off as a whole
    alarm = threading.Timer(timeout_s, _cut, (connection,))
    alarm.daemon = True
    alarm.start()
    try:
        connection.request("POST", parts.path + "/chat/completions", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        data = b""
        while len(data) <= LARGEST_REPLY and (piece := response.read1(1 << 16)):
            data += piece
            if time.monotonic() > deadline:
                raise CallError("no reply in time", final=True)
        status = response.status
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        raise CallError(f"no reply from {where.host}: {type(error).__name__}") from None
    finally:
        alarm.cancel()
        connection.close()
    if len(data) > LARGEST_REPLY:
        raise CallError(f"the reply is longer than {LARGEST_REPLY:,} bytes", final=True)
    if status != 200:
        passing = status in (408, 429) or status >= 500
        raise CallError(f"{where.host} answers with status {status}", final=not passing)
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        raise CallError("the reply is no JSON") from None
    if not isinstance(reply, dict):
        raise CallError("the reply is no JSON object")
    return reply


def _cut(connection: Any) -> None:
    """Close a connection that is being read."""
    import contextlib
    import socket

    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
