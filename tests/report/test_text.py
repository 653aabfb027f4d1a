"""The layout of text output, as snapshots (figures are masked: other tests hold them); colours; what is quiet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from primus_lint.report.excerpt import excerpt
from tests.report.conftest import CLEAN, ILLEGAL, OOM, SLOW
from tests.report.test_noise import spread


def masked(text: str) -> str:
    """Every figure that the ledger or the projection computes becomes `#`: places, marks and words stay."""
    text = re.sub(r"-?\d[\d,]*\.\d+ (GiB|MiB)", r"# \1", text)
    text = re.sub(r"[+-]?\d[\d,.]*( ?%)", r"#\1", text)
    return re.sub(r"[+-]?\d[\d,.]* (tokens/s/GPU|TFLOP/s/GPU|s\b|ms\b)", r"# \1", text)


@pytest.mark.parametrize("name", [CLEAN, ILLEGAL, OOM, SLOW])
def test_one_file(repo: Path, lint: Any, snapshot: SnapshotAssertion, name: str) -> None:
    assert masked(lint(name).stdout) == snapshot


def test_many_files(repo: Path, lint: Any, snapshot: SnapshotAssertion) -> None:
    assert masked(lint(*spread(repo, 5), OOM).stdout) == snapshot


def test_marks_stand_under_the_value(repo: Path, lint: Any) -> None:
    lines = lint(OOM).stdout.splitlines()
    at = next(index for index, line in enumerate(lines) if "micro_batch_size: 4" in line)
    assert lines[at].index("4 #") == lines[at + 1].index("^")


def test_quiet_shows_findings_only(repo: Path, lint: Any) -> None:
    assert lint("-q", CLEAN).stdout == ""
    assert "tokens/s" not in lint("-q", SLOW).stdout.split("fix (safe)")[1]


def test_colours_change_nothing_else(repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = lint(OOM).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = lint(OOM).output
    if "\x1b[" in coloured:  # click's test runner may strip them
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert lint(OOM).stdout == plain


def test_a_place_far_to_the_right_is_shown_with_its_marks() -> None:
    line = "torchrun " + "--flag value " * 40 + "--lr nan --weight-decay 0.1"
    start = line.index("nan")
    shown = excerpt(line, start, 3)
    assert shown.line.startswith("...") and shown.line[shown.indent : shown.indent + 3] == "nan" and shown.marks == 3
    near = excerpt(line, 9, 6)
    assert near.line == line[:160] and (near.indent, near.marks) == (9, 6)


@pytest.mark.parametrize(
    ("line", "place", "indent", "marks"),
    [
        ("key:\tvalue", "value", 5, 5),
        ('"模型":  日本語 x', "日本語", 9, 6),  # wide characters take two columns
        ("e\u0301te\u0301: 1", "1", 5, 1),  # combining ones take none
        ("a: \x1b[31m red", "red", 9, 3),
    ],
)
def test_marks_stand_under_what_they_mark(line: str, place: str, indent: int, marks: int) -> None:
    shown = excerpt(line, line.index(place), len(place))
    assert (shown.indent, shown.marks) == (indent, marks)
    assert shown.line.isprintable()


@pytest.mark.parametrize("form", ["text", "concise"])
def test_a_file_cannot_write_to_the_terminal(repo: Path, lint: Any, form: str) -> None:
    path = repo / CLEAN
    path.write_text(path.read_text().replace("cosine", '"\\e[31mred\\a"  # \x85 \u2028'))
    result = lint("--output-format", form, CLEAN)
    assert "?[31mred?" in result.stdout
    assert not {"\x1b", "\x07", "\x85", "\u2028"} & set(result.stdout)
