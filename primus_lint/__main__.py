"""`python -m primus_lint` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; exits with 0 (clean), 1 (findings) or 2 (could not check)."""
    from primus_lint.cli import cli

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3000))
    cli(prog_name="primus-lint")


if __name__ == "__main__":
    main()
