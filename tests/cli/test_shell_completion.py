"""Shell completion, as the generated script asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def ask(words: str, position: int, mode: str = "bash_complete") -> list[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_PRIMUS_LINT_COMPLETE": mode,
        "COMP_WORDS": words,
        "COMP_CWORD": str(position),
    }
    command = [sys.executable, "-m", "primus_lint"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str) -> None:
    assert any("_PRIMUS_LINT_COMPLETE" in line for line in ask("", 0, f"{shell}_source"))


@pytest.mark.parametrize(
    ("words", "position", "wanted"),
    [
        ("primus-lint expl", 1, "plain,explain"),  # a command
        ("primus-lint examples", 1, "file,examples"),  # or a file for check
        ("primus-lint --output-f", 1, "plain,--output-format"),  # or an option of check
        ("primus-lint recipe.yaml --gpu mi35", 3, "plain,mi355x"),
        ("primus-lint check --profile re", 3, "plain,recommended"),
        ("primus-lint check exam", 2, "file,exam"),
        ("primus-lint explain --rank", 2, "plain,--rank"),
    ],
)
def test_words(words: str, position: int, wanted: str) -> None:
    assert wanted in ask(words, position)


def test_nothing_is_checked_meanwhile() -> None:
    assert all(line.startswith("plain,rul") or line == "file,rul" for line in ask("primus-lint rul", 1))
