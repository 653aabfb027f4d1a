"""`python -m primus_lint` and the console script."""

from __future__ import annotations

import errno
import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run the command line; exits with 0 (clean), 1 (findings) or 2 (could not check, a bug of ours included)."""
    open_streams()
    try:
        try:
            run()
        finally:
            if not sys.stdout.closed:
                sys.stdout.flush()  # while an error can still be told
    except BrokenPipeError:  # the reader of the output has left
        give_up()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno not in FULL:
            crash()
        sys.stderr.write(f"primus-lint: the output cannot be written: {error.strerror}\n")
        give_up()
    except Exception:
        crash()


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def open_streams() -> None:
    """A standard stream that the caller has closed is an empty one."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def give_up() -> NoReturn:
    """End where the output cannot be written any more; nothing is flushed into it at exit."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.exit(2)


def crash() -> NoReturn:
    from primus_lint.cli.common import internal_error

    internal_error("nothing that was not reported above was checked")
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
    known = not words or words[0][:1] == "-" or os.path.lexists(words[0])  # else click looks for a slip
    if known and (not words or words[0] not in COMMANDS) and "_PRIMUS_LINT_COMPLETE" not in os.environ:
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
