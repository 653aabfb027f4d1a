"""A bug of ours is "could not check" (2), never "findings" (1): a gate must not read a crash as a verdict."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint import __main__
from primus_lint.source.text import SourceText

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("words", [["examples"], ["check", "examples"], ["rules", "--format", "json"]])
def test_a_crash_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], repo: Path, words: list[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    from primus_lint.cli import group, run

    monkeypatch.setattr(run, "run_check", broken)
    monkeypatch.setattr(group.LazyGroup, "get_command", broken)
    monkeypatch.setattr("sys.argv", ["primus-lint", *words])
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "a bug" in said and "internal error" in said


def test_a_crash_over_one_recipe_is_told_with_its_name_and_the_others_are_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from primus_lint import pipeline
    from primus_lint.cli import run

    judge = pipeline.check_source

    def broken(source: SourceText, *rest: Any) -> pipeline.Checked:
        if "clean" in source.path:
            raise RuntimeError("a bug")
        return judge(source, *rest)

    monkeypatch.setattr(pipeline, "check_source", broken)
    assert run.run_check((str(ROOT / "examples"),), {}) == 2
    said = capsys.readouterr()
    assert "a bug" in said.err and "internal error" in said.err and "clean-llama3.1_8B.yaml was not checked" in said.err
    assert "hbm-overflow" in said.out  # of another recipe


def shell(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.quote(sys.executable)} -m primus_lint {words}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", line], cwd=folder, env=env, text=True, capture_output=True, check=False)


def test_closed_streams_leave_the_verdict(repo: Path) -> None:
    """`>&-` and `2>&-`: what nobody reads is not written, and the exit status is what it is with them."""
    for closed, output in ((">&-", "stderr"), ("2>&-", "stdout")):
        done = shell(repo, f"configs/oom-llama3.1_70B.yaml {closed}")
        assert done.returncode == 1 and "Traceback" not in getattr(done, output)
        assert shell(repo, f"nowhere.yaml {closed}").returncode == 2
    done = shell(repo, "- <&-")
    assert done.returncode == 2 and "empty-file" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", ["configs/oom-llama3.1_70B.yaml", "hardware", "rules", "explain hbm-overflow"])
def test_a_full_disk_is_told_in_words(repo: Path, words: str) -> None:
    done = shell(repo, f"{words} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "primus-lint: the output cannot be written: No space left on device\n"


def test_a_reader_that_leaves_is_no_finding(repo: Path) -> None:
    """1 would be a verdict."""
    for words in ("rules", "rules --format json"):
        done = shell(repo, f"{words} | true; exit ${{PIPESTATUS[0]}}")
        assert done.returncode == 2 and done.stderr == ""


@pytest.mark.parametrize("words", [["configs"], ["project", "configs/clean-llama3.1_8B.yaml"]])
def test_an_interrupt_is_no_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], repo: Path, words: list[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("primus_lint.pipeline.check_source", interrupted)
    monkeypatch.setattr("sys.argv", ["primus-lint", *words])
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    assert stopped.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_working_directory_that_is_gone(repo: Path) -> None:
    path = repo / "configs/clean-llama3.1_8B.yaml"
    (repo / "gone").mkdir()
    done = subprocess.run(
        ["bash", "-c", f"cd gone && rmdir ../gone && {shlex.quote(sys.executable)} -m primus_lint {path}"],
        cwd=repo, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "working directory" in done.stderr and "Traceback" not in done.stderr


def test_batch_in_a_process_of_its_own(repo: Path) -> None:
    """It ends as it should: its answers are all that is written."""
    (repo / "ask.jsonl").write_text('{"id": 1, "framework": "megatron", "model": "llama3.1-8b", "args": {}}\n')
    for words in ("batch ask.jsonl", "batch - < ask.jsonl"):
        done = shell(repo, words)
        assert done.returncode == 1 and done.stderr == "" and done.stdout.count("\n") == 1  # the recipe is illegal
    done = shell(repo, "batch ask.jsonl --output nowhere/out.jsonl")
    assert done.returncode == 2 and "nowhere/out.jsonl: No such file" in done.stderr
    done = shell(repo, "configs/oom-llama3.1_70B.yaml --update-baseline --baseline=nowhere/b.json")
    assert done.returncode == 2 and "nowhere/b.json: No such file" in done.stderr and "Traceback" not in done.stderr
