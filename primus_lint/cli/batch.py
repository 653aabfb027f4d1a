"""`primus-lint batch`: one JSON object a line in, one a line out, in the same order."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import BinaryIO

import click


@click.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--only", type=click.Choice(["legality", "memory", "time"]), help="Compute only this part.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write here instead of standard output.")
def command(file: str, only: str | None, output: str | None) -> None:
    """Evaluate recipes given as JSON lines (FILE, or `-` for standard input).

    A line that cannot be evaluated gets `"ok": false` with a reason and never stops the others. Exit status: 0 when
    every line was evaluated, 1 when some recipe is illegal or does not fit, 2 when some line could not be evaluated.
    """
    from primus_lint.evaluate import evaluate

    try:
        stream: BinaryIO = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
    try:
        sink = open(output, "w", encoding="utf-8") if output else nullcontext(sys.stdout)  # noqa: SIM115
    except OSError as error:
        raise click.UsageError(f"{output}: {error.strerror}") from None
    status = 0
    with stream, sink as out:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                request = json.loads(line)
            except (ValueError, RecursionError) as error:
                answer = evaluate(None, only)
                answer["error"] = f"line {number} is no JSON object: {error}"
            else:
                answer = evaluate(request, only)
            out.write(json.dumps(answer, separators=(",", ":"), default=str) + "\n")
            if not answer["ok"]:
                status = 2
            elif status == 0 and (answer["legal"] is False or (answer.get("memory") or {}).get("fits") is False):
                status = 1
    sys.exit(status)
