"""Run the scripts of ../shared/oracle on many recipes: import torch and Megatron once, fork one child per question.

As a program it reads a JSON list of questions from stdin and writes one JSON answer a line, in order of completion:
{"id": N, "answer": {...}} or {"id": N, "error": "..."}. A question is {"id", "script", "name", "model", "argv"}:
`script` a module of ../shared/oracle with a `main`, `model` a row for its MODELS table under `name`, `argv` its
command line; `positions: "learned_absolute"` builds the model with learned positions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle"
PACKAGES = ("torch", "megatron.core", "transformer_engine")


def why_not() -> str | None:
    """Why the oracle cannot be asked here; None when it can."""
    if not ORACLE.is_dir():
        return "../shared/oracle is not at hand"
    import importlib.util

    for name in PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            return f"{name} is not installed (extra `oracle`)"
    return None


def ask(questions: list[dict[str, Any]], jobs: int = 2) -> list[dict[str, Any]]:
    """Answers in the order of the questions. One parent process per layer implementation."""
    answers: dict[int, dict[str, Any]] = {}
    by_kind: dict[bool, list[dict[str, Any]]] = {}
    for number, question in enumerate(questions):
        local = "--impl local" in question["argv"]
        by_kind.setdefault(local, []).append({**question, "id": number})
    for group in by_kind.values():
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "ORACLE_JOBS": str(jobs)}
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve())],
            input=json.dumps(group), capture_output=True, text=True, env=env, check=False,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            if line.startswith('{"id"'):
                found = json.loads(line)
                answers[found["id"]] = found
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
    return [answers.get(number, {"error": "no answer"}) for number in range(len(questions))]


def _child(question: dict[str, Any], path: str) -> None:
    """Run one script's main with its output in a file. Never returns."""
    import importlib

    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    import common

    if question.get("model"):
        common.MODELS[question["name"]] = question["model"]
    if question.get("positions"):
        from megatron.core.models.gpt import GPTModel

        init = GPTModel.__init__

        def build(self: Any, *args: Any, **kwargs: Any) -> None:
            kwargs["position_embedding_type"] = question["positions"]
            kwargs["max_sequence_length"] = question.get("max_positions", kwargs.get("max_sequence_length"))
            init(self, *args, **kwargs)

        GPTModel.__init__ = build
    module = importlib.import_module(question["script"])
    sys.argv = [question["script"], *question["argv"].split()]
    try:
        module.main()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def _parse(text: str) -> dict[str, Any]:
    """The last JSON object of a script's output; the printed tensor table beside it."""
    answer: dict[str, Any] = {}
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            answer = json.loads(line)
            break
    else:
        tail = [line for line in text.strip().splitlines() if line.strip()]
        return {"error": tail[-1][:300] if tail else "no output"}
    modules: dict[str, list[list[Any]]] = {}
    current = ""
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 2 and parts[0].replace(",", "").isdigit() and parts[1].startswith("model"):
            current = parts[1]
            modules[current] = []
        elif current and len(parts) >= 3 and line.startswith("      ") and parts[0].replace(",", "").isdigit():
            modules[current].append([int(parts[0].replace(",", "")), parts[1], " ".join(parts[2:])])
    return {"answer": answer, "tensors": modules}


def _serve() -> None:
    sys.path.insert(0, str(ORACLE))
    questions = json.load(sys.stdin)
    local = "--impl local" in questions[0]["argv"]
    import common  # noqa: F401

    if not local:
        import te_stub

        te_stub.install()
        import megatron.core.distributed
        import megatron.core.models.gpt
        import megatron.core.optimizer  # noqa: F401
    else:
        sys.modules["transformer_engine"] = None  # type: ignore[assignment]
    jobs = int(os.environ.get("ORACLE_JOBS", "2"))
    running: dict[int, tuple[int, str]] = {}

    def reap() -> None:
        pid, _ = os.wait()
        number, path = running.pop(pid)
        text = Path(path).read_text(errors="replace")
        os.unlink(path)
        print(json.dumps({"id": number, **_parse(text)}), flush=True)

    for question in questions:
        while len(running) >= jobs:
            reap()
        handle, path = tempfile.mkstemp(prefix="oracle-")
        os.close(handle)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _child(question, path)
        running[pid] = (question["id"], path)
    while running:
        reap()


if __name__ == "__main__":
    _serve()
