"""A local server that speaks the chat protocol from a script: good, malformed, slow and failing replies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


class Script:
    """Replies in order; the last one is repeated. `requests` holds what came in, with its headers."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []


def tools(*calls: tuple[str, Any], tokens: int | None = 100, content: str | None = None) -> Step:
    """A reply that calls tools; arguments that are a text are sent as they stand."""

    def step(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        called = [
            {"id": f"call{index}", "type": "function", "extra": 1,
             "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}}
            for index, (name, given) in enumerate(calls)
        ]  # fmt: skip
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if called:
            message["tool_calls"] = called
        data: dict[str, Any] = {"id": "x", "choices": [{"index": 0, "message": message}]}
        if tokens is not None:
            data["usage"] = {"total_tokens": tokens}
        send(handler, 200, json.dumps(data).encode())

    return step


def raw(data: bytes, status: int = 200, **headers: str) -> Step:
    """A reply of these bytes."""
    return lambda handler, body: send(handler, status, data, **headers)


def slow(seconds: float) -> Step:
    """Nothing for a while."""

    def step(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        time.sleep(seconds)

    return step


def drip(seconds: float) -> Step:
    """One byte at a time: no read ever waits long, the whole never ends."""

    def step(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.02)
        except OSError:
            pass

    return step


def send(handler: BaseHTTPRequestHandler, status: int, data: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The base URL of a server that plays the script."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.paths.append(self.path)
            script.headers.append(dict(self.headers))
            script.requests.append(body)
            step = script.steps[min(len(script.requests), len(script.steps)) - 1]
            step(self, body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
