"""GitHub annotations and summary, GitLab Code Quality, JUnit, Markdown: each parsed as its reader would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.report.conftest import CLEAN, ILLEGAL, OOM, SLOW

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Workflow commands as the runner reads them: level, properties, message."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        if match is not None:
            properties = dict(part.split("=", 1) for part in match[2].split(","))
            found.append((match[1], {key: undo(value) for key, value in properties.items()}, undo(match[3])))
    return found


def undo(text: str) -> str:
    for code, char in (("%3A", ":"), ("%2C", ","), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, char)
    return text


def many(repo: Path, number: int) -> None:
    """Copies of the recipe that runs out of memory, no two of them with the same figures."""
    text = (repo / OOM).read_text()
    for index in range(number):
        (repo / "configs" / f"many{index}.yaml").write_text(
            text.replace("micro_batch_size: 4", f"micro_batch_size: {index + 4}")
        )


def test_annotations_point_at_the_value(repo: Path, lint: Any) -> None:
    [found] = commands(lint("--output-format", "github", OOM).stdout)
    level, properties, message = found
    assert level == "error" and properties["file"] == OOM and properties["title"] == "hbm-overflow (M101)"
    line = (repo / OOM).read_text().splitlines()[int(properties["line"]) - 1]
    assert line[int(properties["col"]) - 1 : int(properties["endColumn"]) - 1] == "4"
    assert "out of memory" in message and "\nledger: " in message


def test_errors_come_first_and_the_last_line_counts_what_is_left(
    repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(repo, 11)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    result = lint("--output-format", "github", "configs")
    found = commands(result.stdout)
    levels = [level for level, _, _ in found]
    assert levels == sorted(levels, key=("error", "warning", "notice").index)
    assert levels.count("error") == 10
    errors = json.loads(lint("--output-format", "json", "configs").stdout)["summary"]["errors"]
    assert errors > 10
    assert result.stdout.splitlines()[-1].startswith(f"{errors - 10} more not shown as annotations")
    assert len(commands(lint("--output-format", "github", CLEAN).stdout)) == 0


def test_findings_of_one_cause_are_one_annotation(repo: Path, lint: Any) -> None:
    text = (repo / OOM).read_text()
    for index in range(4):
        (repo / "configs" / f"same{index}.yaml").write_text(text)
    found = commands(lint("--output-format", "github", "configs").stdout)
    assert sum("hbm-overflow" in properties["title"] for _, properties, _ in found) == 1
    assert "in 5 files: " in found[0][2]
    alone = commands(lint("--output-format", "github", "--no-group", "configs").stdout)
    assert sum("hbm-overflow" in properties["title"] for _, properties, _ in alone) == 5


def test_it_is_the_default_in_actions_and_writes_the_summary(
    repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = repo / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert len(commands(lint("configs").stdout)) >= 3
    text = summary.read_text()
    assert text.startswith("before\n### primus-lint: ")
    assert OOM in text and "out of memory" in text
    assert "error[hbm-overflow]" in lint("configs", "--output-format", "text").stdout


def test_gitlab(repo: Path, lint: Any) -> None:
    issues = json.loads(lint("--output-format", "gitlab", "configs").stdout)
    assert {frozenset(issue) for issue in issues} == {
        frozenset(("description", "check_name", "fingerprint", "severity", "location"))
    }
    prints = [issue["fingerprint"] for issue in issues]
    assert len(set(prints)) == len(prints)
    assert {issue["severity"] for issue in issues} <= {"info", "minor", "major", "critical", "blocker"}
    for issue in issues:
        lines = (repo / issue["location"]["path"]).read_text().splitlines()
        assert 1 <= issue["location"]["lines"]["begin"] <= len(lines)
    assert json.loads(lint("--output-format", "gitlab", CLEAN).stdout) == []


def test_gitlab_fingerprints_differ_where_rule_and_key_agree(repo: Path, lint: Any) -> None:
    """Two findings of one rule without a key: only their number tells them apart."""
    (repo / "twice.yaml").write_text(
        (repo / CLEAN).read_text().replace(
            "lr: 3.0e-4", "lr: 3.0e-4 # primus-lint: ignore[hbm-tight] no\n      # primus-lint: ignore[hbm-tight] no"
        )
    )  # fmt: skip
    issues = json.loads(lint("--output-format", "gitlab", "--gpu", "mi300x", "--nodes", "1", "twice.yaml").stdout)
    unused = [issue["fingerprint"] for issue in issues if issue["check_name"] == "unused-suppression"]
    assert len(unused) == len(set(unused)) == 2


def test_junit(repo: Path, lint: Any) -> None:
    (repo / "broken.yaml").write_text("modules:\n  pre_trainer:\n   a: 1\n  b\n")
    (repo / ILLEGAL).write_text(
        '# primus-lint: file-ignore[layers-divide-pipeline] a < b & "c"\n' + (repo / ILLEGAL).read_text()
    )
    root = ElementTree.fromstring(lint("--output-format", "junit", ".").stdout)
    assert root.tag == "testsuites"
    for node in (root, *root.findall("testsuite")):
        cases = list(node.iter("testcase"))
        assert int(node.get("tests", -1)) == len(cases) > 0
        for kind, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(node.get(count, -1)) == sum(case.find(kind) is not None for case in cases)
    suites = {suite.get("name"): suite for suite in root}
    [passed] = suites[CLEAN]
    assert list(passed) == []
    assert suites["broken.yaml"].find("testcase/error") is not None
    skipped = suites[ILLEGAL].find("testcase/skipped")
    assert skipped is not None and skipped.get("message") == 'a < b & "c"'
    failure = suites[OOM].find("testcase/failure")
    assert failure is not None and failure.get("type") == "error" and f"{OOM}:13:" in (failure.text or "")


def test_markdown(repo: Path, lint: Any) -> None:
    text = lint("--output-format", "markdown", "configs").stdout
    rows = [line for line in text.splitlines() if line.startswith("| `configs/")]
    assert len(rows) == 4
    assert next(row for row in rows if OOM in row).count("out of memory") == 1
    assert re.search(r"\| 9,\d{3} \|$", next(row for row in rows if CLEAN in row))
    assert "```diff" in text and "-      recompute_granularity: full" in text
    assert text.count("<details>") == text.count("</details>") == 5


def test_markdown_fits_into_a_comment(repo: Path, lint: Any) -> None:
    many(repo, 150)
    text = lint("--output-format", "markdown", "configs").stdout
    assert len(text) < 65_536
    assert re.search(r"\n\d+ more causes are not shown here\.", text)
    assert text.count("<details>") == text.count("</details>") > 10


def test_words_of_a_recipe_are_no_markup(repo: Path, lint: Any) -> None:
    (repo / "odd.yaml").write_text((repo / CLEAN).read_text().replace("train_iters: 5000", "train_itres: <b>|`x`"))
    text = lint("--output-format", "markdown", "odd.yaml").stdout
    assert "<b>|" not in text.split("```")[0]


def test_formats_and_outputs_go_in_pairs(repo: Path, lint: Any) -> None:
    result = lint(
        "--output-format", "concise", "--output-format", "sarif", "--output", "a.sarif", "--output-format", "gitlab",
        "--output", "a.json", SLOW,
    )  # fmt: skip
    assert result.stdout.startswith(f"{SLOW}:34:")
    assert json.loads((repo / "a.sarif").read_text())["version"] == "2.1.0"
    assert isinstance(json.loads((repo / "a.json").read_text()), list)
    assert lint("--output", "b.json", "--output-format", "json", SLOW).stdout == ""
    assert json.loads((repo / "b.json").read_text())["version"] == 1
    assert lint("--output", "b", "--output", "c", SLOW).exit_code == 2


@pytest.mark.parametrize("form", ["text", "concise", "json", "sarif", "github", "gitlab", "junit", "markdown", "html"])
def test_bytes_that_are_no_utf8_come_out_as_text(
    repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    data = (repo / CLEAN).read_bytes().replace(b"train_iters: 5000", b"train_itres: caf\xe9 # \xff")
    (repo / "latin.yaml").write_bytes(data)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repo / "summary.md"))
    lint("--output-format", form, "--output", "out", "latin.yaml")
    text = (repo / "out").read_text(encoding="utf-8")
    assert "not-utf8" in text or "not UTF-8" in text
    assert "\\udc" not in text
    assert lint("--output-format", form, "latin.yaml").stdout == text
