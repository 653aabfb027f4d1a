"""A bug of ours is "could not check" (2), never "findings" (1): a gate must not read a crash as a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_lint import __main__


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
