"""Commands that a page shows, run for their real output.

A fenced block of language `run` holds lines that start with `$ `; each is run by bash in the page's scratch folder and
replaced by itself and what it prints (both streams); lines of a block `run wide` do not wrap. The scratch folder is a git repository with a copy of `examples/`,
kept for the whole page; its clock stands still, so that a page is the same every time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BLOCK = re.compile(r"^```run( wide)?\n(.*?)^```$", re.M | re.S)
_CLOCK = "2026-01-05T09:00:00+00:00"


class CommandFailed(Exception):
    """A command of a page ended as it should not."""


def expand(markdown: str) -> str:
    """The page with the output of its commands. Raises CommandFailed."""
    if not _BLOCK.search(markdown):
        return markdown
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(folder)
        return _BLOCK.sub(lambda match: scratch.block(match[2], bool(match[1])), markdown)


class Scratch:
    """A folder with the example repository, and `primus-lint` and git in it."""

    def __init__(self, folder: str) -> None:
        self.home = os.path.join(folder, "home")
        self.work = os.path.join(folder, "recipes")
        shutil.copytree(os.path.join(ROOT, "examples"), self.work)
        os.makedirs(self.home)
        tool = os.path.join(self.home, "primus-lint")
        with open(tool, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{sys.executable}" -m primus_lint "$@"\n')
        os.chmod(tool, 0o755)
        self.environment = {
            "PATH": self.home + os.pathsep + os.environ.get("PATH", ""), "HOME": self.home, "PYTHONPATH": ROOT,
            "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "you", "GIT_AUTHOR_EMAIL": "you@example.org", "GIT_AUTHOR_DATE": _CLOCK,
            "GIT_COMMITTER_NAME": "you", "GIT_COMMITTER_EMAIL": "you@example.org", "GIT_COMMITTER_DATE": _CLOCK,
        }  # fmt: skip
        self.run("git init -q -b main . && git add . && git commit -q -m 'Recipes'")

    def run(self, command: str) -> tuple[int, str]:
        """Exit status and both streams of a command."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.work, env=self.environment, timeout=300,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout.decode("utf-8", "replace").replace(self.work + os.sep, "")

    def block(self, text: str, wide: bool = False) -> str:
        """A block with the output behind every command. `$ command  # exit N` says how it must end (default 0)."""
        lines = []
        for line in text.splitlines():
            if not line.startswith("$ "):
                raise CommandFailed(f"not a command: {line!r}")
            command, _, status = line[2:].partition("  # exit ")
            code, output = self.run(command)
            if code != int(status or 0):
                raise CommandFailed(f"{command!r} ended with {code}:\n{output}")
            lines.append(f"$ {command}")
            if "Traceback (most recent call last)" in output:
                raise CommandFailed(f"{command!r} broke:\n{output}")
            lines += output.rstrip("\n").split("\n") if output.strip() else []
            if code:
                lines.append(f"(exit status {code})")
        return ("```{ .console .wide }\n" if wide else "```console\n") + "\n".join(lines) + "\n```"
