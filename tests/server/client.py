"""A language client over a real process: JSON-RPC with Content-Length headers, written by hand on purpose (the server's
own library is not its witness)."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}  # the package of this checkout, whatever is installed
WAIT_S = 60  # a hung server fails the test; no test asserts a time


class Client:
    """Starts `primus-lint server` in a folder and talks to it. `transcript` keeps every message with its direction."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.transcript: list[tuple[str, dict[str, Any]]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "primus_lint", "server", *words],
            cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.kept: list[dict[str, Any]] = []  # messages that nobody waited for yet
        self.next_id = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not length:
                self.inbox.put({"closed": True})
                return
            message = json.loads(stream.read(length))
            self.transcript.append(("server", message))
            self.inbox.put(message)

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.transcript.append(("client", message))
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: Any) -> Any:
        self.next_id += 1
        self.send({"id": self.next_id, "method": method, "params": params})
        answer = self.wait(lambda message: message.get("id") == self.next_id and "method" not in message)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def wait(self, wanted: Any) -> dict[str, Any]:
        """The first message, kept or to come, that `wanted` accepts."""
        for message in self.kept:
            if wanted(message):
                self.kept.remove(message)
                return message
        while True:
            try:
                message = self.inbox.get(timeout=WAIT_S)
            except queue.Empty:
                raise AssertionError(f"no such message came; the last ones: {self.transcript[-6:]}") from None
            if "closed" in message:
                assert self.process.stderr is not None
                raise AssertionError("the server ended:\n" + self.process.stderr.read().decode())
            if wanted(message):
                return message
            self.kept.append(message)

    def wait_method(self, method: str) -> dict[str, Any]:
        return self.wait(lambda message: message.get("method") == method)

    # -- the steps of an editor ------------------------------------------------------------------------------------
    def start(self, capabilities: dict[str, Any] | None = None, options: Any = None) -> dict[str, Any]:
        result = self.request(
            "initialize",
            {"processId": None, "rootUri": self.folder.as_uri(), "capabilities": capabilities or {},
             "initializationOptions": options},
        )  # fmt: skip
        self.notify("initialized", {})
        return dict(result)

    def open(self, path: Path, text: str | None = None, language: str = "yaml") -> list[dict[str, Any]]:
        """Open a file; its diagnostics."""
        content = path.read_text() if text is None else text
        document = {"uri": path.as_uri(), "languageId": language, "version": 1, "text": content}
        self.notify("textDocument/didOpen", {"textDocument": document})
        return self.diagnostics(path)

    def change(self, path: Path, text: str, version: int) -> list[dict[str, Any]]:
        document = {"uri": path.as_uri(), "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        return self.diagnostics(path)

    def diagnostics(self, path: Path, count: int | None = None) -> list[dict[str, Any]]:
        """The next diagnostics published for a file; with `count` the next so many: what a busy server still has to say
        about a former text comes first."""

        def wanted(message: dict[str, Any]) -> bool:
            if message.get("method") != "textDocument/publishDiagnostics" or message["params"]["uri"] != path.as_uri():
                return False
            return count is None or len(message["params"]["diagnostics"]) == count

        return list(self.wait(wanted)["params"]["diagnostics"])

    def hover(self, path: Path, line: int, character: int) -> str:
        result = self.request("textDocument/hover", at(path, line, character))
        return "" if result is None else str(result["contents"]["value"])

    def complete(self, path: Path, line: int, character: int) -> list[dict[str, Any]]:
        return list(self.request("textDocument/completion", at(path, line, character)) or [])

    def actions(self, path: Path, place: dict[str, Any], **context: Any) -> list[dict[str, Any]]:
        params = {"textDocument": {"uri": path.as_uri()}, "range": place, "context": {"diagnostics": [], **context}}
        return list(self.request("textDocument/codeAction", params) or [])

    def stop(self) -> int:
        """Shut down as an editor does; the exit status."""
        self.request("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def at(path: Path, line: int, character: int) -> dict[str, Any]:
    return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}


def apply_edits(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after edits of the protocol, as an editor applies them (UTF-16 columns)."""
    lines = text.split("\n")
    data = text.encode("utf-16-le")

    def offset(position: dict[str, int]) -> int:
        before = "".join(line + "\n" for line in lines[: position["line"]])
        return len(before.encode("utf-16-le")) + 2 * position["character"]

    for edit in sorted(edits, key=lambda edit: offset(edit["range"]["start"]), reverse=True):
        start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
        data = data[:start] + edit["newText"].encode("utf-16-le") + data[end:]
    return data.decode("utf-16-le")


def find(text: str, piece: str) -> tuple[int, int]:
    """Line and UTF-16 column of the first place of a piece of text."""
    before = text[: text.index(piece)]
    return before.count("\n"), len(before.rpartition("\n")[2].encode("utf-16-le")) // 2
