"""`python -m primus_lint` and the console script."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run the command line; exits with 0 (clean), 1 (findings) or 2 (could not check, a bug of ours included)."""
    try:
        run()
    except BrokenPipeError:  # the reader of the output has left
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (so that nothing is flushed into the pipe at exit)
        sys.exit(2)
    except Exception:
        import traceback

        traceback.print_exc()
        sys.stderr.write("primus-lint: internal error: nothing that was not reported above was checked\n")
        sys.exit(2)


def leave(status: int) -> NoReturn:
    """End without freeing every object first, as mypy does: a seventh of a cold check. All files are closed by now."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run() -> None:
    from primus_lint.cli.options import COMMANDS, plain

    words = sys.argv[1:]
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3000))
    if words and words[0] == "check":
        words = words[1:]
    if (not words or words[0] not in COMMANDS) and "_PRIMUS_LINT_COMPLETE" not in os.environ:
        parsed = plain(words)
        if parsed is not None:
            from primus_lint.cli.common import UsageError
            from primus_lint.cli.run import run_check

            gc.set_threshold(200_000)  # looking for cycles costs a tenth of a run and finds none: 80 MB on 350 files
            with suppress(UsageError):  # click words it
                leave(run_check(*parsed))
    from primus_lint.cli.group import cli

    cli(prog_name="primus-lint")


if __name__ == "__main__":
    main()
