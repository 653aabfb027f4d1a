"""Noise control: grouping by cause, baseline, bulk suppressions, severity overrides, statistics, timing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_lint.settings import forget_settings
from tests.report.conftest import CLEAN, ILLEGAL, OOM, SLOW

BASELINE = ".primus-lint-baseline.json"
INERT = "norm_epsilon: 1.0e-6"  # a key that the ordinary model never reads: the same sentence in every file


def spread(repo: Path, number: int) -> list[str]:
    """Copies of the clean recipe with one inert key."""
    text = (repo / CLEAN).read_text()
    names = []
    for index in range(number):
        name = f"configs/copy{index}.yaml"
        (repo / name).write_text(text.replace("      weight_decay: 0.1", f"      weight_decay: 0.1\n      {INERT}"))
        names.append(name)
    return names


def open_names(data: dict[str, Any]) -> list[str]:
    return [finding["name"] for finding in data["findings"] if finding["suppressed"] is None]


def test_one_sentence_in_three_files_is_said_once(repo: Path, lint: Any, report: Any) -> None:
    names = spread(repo, 4)
    text = lint(*names[:3]).stdout
    assert text.count("warning[key-without-effect]") == 1
    assert "K121  3 files" in text and f"in: {names[0]}:" in text
    assert lint(*names[:2]).stdout.count("warning[key-without-effect]") == 2
    assert lint("--no-group", *names).stdout.count("warning[key-without-effect]") == 4
    assert f"{names[2]}:" in text and "and 1 more" in lint(*names).stdout
    assert "4 findings of 1 cause" in lint(*names).stdout
    summary = report(*names)["summary"]
    assert (summary["warnings"], summary["causes"]) == (4, 1)
    assert lint("--output-format", "concise", *names).stdout.count("key-without-effect") == 4


def test_a_defect_of_a_preset_is_one_finding_with_its_users(repo: Path, lint: Any) -> None:
    text = (repo / ILLEGAL).read_text().replace("pipeline_model_parallel_size: 8", "pipeline_model_parallel_size: 4")
    for name in ("one", "two"):
        (repo / "configs" / f"{name}.yaml").write_text(text)
    out = lint("configs/one.yaml", "configs/two.yaml").stdout
    assert out.count("warning[preset-key-without-effect]") == 1
    assert "--> primus/configs/models/megatron/qwen2.5_base.yaml:23:" in out
    assert "its users: configs/one.yaml:10, configs/two.yaml:10" in out


def test_the_corpus_is_grouped(corpus_words: list[str], report: Any) -> None:
    """known-defects.csv counts 159 experiments with an inert norm_epsilon: one or a few causes, not 159 findings."""
    summary = report(*corpus_words)["summary"]
    assert summary["causes"] * 2 < summary["errors"] + summary["warnings"] + summary["infos"]


def test_a_baseline_accepts_by_key_and_value_not_by_line(repo: Path, lint: Any, report: Any) -> None:
    assert lint("--baseline", "configs").exit_code == 2  # there is none yet
    result = lint("--update-baseline", "configs")
    assert result.exit_code == 0
    found = len(report("configs")["findings"])
    assert found >= 4 and f"accepted findings: {found}" in result.stderr
    assert lint("--baseline", "configs").exit_code == 0
    (repo / OOM).write_text("\n# moved\n" + (repo / OOM).read_text())
    assert lint("--baseline", "configs").exit_code == 0
    text = (repo / OOM).read_text()
    (repo / OOM).write_text(text.replace("micro_batch_size: 4", "micro_batch_size: 8"))
    data = report("--baseline", "configs")
    assert open_names(data) == ["hbm-overflow"]
    [unused] = data["summary"]["baseline"]["unused"]
    assert (unused["path"], unused["rule"], unused["count"]) == (OOM, "hbm-overflow", 1)
    assert "no longer needed: hbm-overflow in " + OOM in lint("--baseline", "configs").stdout


def test_a_baseline_only_shrinks(repo: Path, lint: Any) -> None:
    lint("--update-baseline", OOM)
    text = (repo / BASELINE).read_text()
    result = lint("--update-baseline", OOM, ILLEGAL)
    assert result.exit_code == 1 and "new findings: 3" in result.stderr
    assert (repo / BASELINE).read_text() == text
    (repo / OOM).write_text(
        (repo / OOM)
        .read_text()
        .replace(
            "micro_batch_size: 4",
            "micro_batch_size: 4\n      recompute_granularity: full\n      recompute_method: uniform\n      recompute_num_layers: 1",
        )
    )
    assert "hbm-overflow" not in lint("--output-format", "concise", OOM).stdout
    result = lint("--update-baseline", OOM)
    assert "empty now, removed" in result.stderr
    assert not (repo / BASELINE).exists()


def test_a_partial_run_wipes_nothing(repo: Path, lint: Any) -> None:
    lint("--update-baseline", "configs")
    text = (repo / BASELINE).read_text()
    for words in ([CLEAN], ["configs", "--select", "P"], [SLOW]):
        lint("--update-baseline", *words)
        assert (repo / BASELINE).read_text() == text
        assert "no longer needed" not in lint("--baseline", *words).stdout
    (repo / OOM).unlink()
    lint("--update-baseline", CLEAN)
    left = json.loads((repo / BASELINE).read_text())["files"]
    assert set(left) == {ILLEGAL, SLOW}


def test_a_baseline_counts(repo: Path, lint: Any, report: Any) -> None:
    lint("--update-baseline", OOM)
    data = json.loads((repo / BASELINE).read_text())
    data["files"][OOM][0]["count"] = 3
    (repo / BASELINE).write_text(json.dumps(data))
    assert report("--baseline", OOM)["summary"]["baseline"]["unused"][0]["count"] == 2
    lint("--update-baseline", OOM)
    assert json.loads((repo / BASELINE).read_text())["files"][OOM][0]["count"] == 1


def test_what_is_unreadable_is_never_accepted(repo: Path, lint: Any) -> None:
    (repo / "broken.yaml").write_text("modules:\n  pre_trainer:\n   a: 1\n  b\n")
    assert lint("--update-baseline", "broken.yaml").exit_code == 2
    assert not (repo / BASELINE).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": [{}]}}'])
def test_a_baseline_that_cannot_be_read_exits_with_2(repo: Path, lint: Any, text: str) -> None:
    (repo / "other.json").write_text(text)
    result = lint("--baseline=other.json", CLEAN)
    assert result.exit_code == 2 and "other.json" in result.stderr


def test_a_baseline_is_found_from_a_subfolder(repo: Path, lint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lint("--update-baseline", OOM)
    monkeypatch.chdir(repo / "configs")
    assert lint("--baseline", Path(OOM).name).exit_code == 0


def test_add_ignores_writes_comments_that_change_nothing(repo: Path, lint: Any, report: Any) -> None:
    before = {name: (repo / name).read_text() for name in (OOM, ILLEGAL, SLOW, CLEAN)}
    (repo / SLOW).write_bytes(before[SLOW].replace("\n", "\r\n").encode())
    result = lint("--add-ignores", "known since June", "configs")
    assert result.exit_code == 0, result.output
    for name, text in before.items():
        after = (repo / name).read_text()
        assert yaml.safe_load(after) == yaml.safe_load(text)
        kept = [line for line in after.splitlines() if "primus-lint: ignore" not in line]
        assert kept == text.splitlines()
    assert (repo / SLOW).read_bytes().count(b"\n") == (repo / SLOW).read_bytes().count(b"\r\n")
    data = report("configs")
    assert open_names(data) == []
    assert {finding["suppressed"] for finding in data["findings"]} == {"known since June"}
    text = (repo / OOM).read_text()
    assert "      # primus-lint: ignore[hbm-overflow] known since June\n      micro_batch_size: 4" in text
    lint("--add-ignores", "again", "configs")
    assert (repo / OOM).read_text() == text


def test_add_ignores_leaves_block_scalars_alone(repo: Path, lint: Any) -> None:
    """A finding whose line lies within a scalar of several lines gets its comment at the top of the file."""
    text = (
        (repo / CLEAN)
        .read_text()
        .replace("      weight_decay: 0.1", '      weight_decay: 0.1\n      data_path: "a\n        b ${X:-c}"')
    )
    (repo / "block.yaml").write_text(text)
    before = yaml.safe_load(text)
    lint("--add-ignores", "odd", "block.yaml")
    assert yaml.safe_load((repo / "block.yaml").read_text()) == before


def test_add_ignores_does_not_suppress_what_is_wrong_with_a_suppression(repo: Path, lint: Any, report: Any) -> None:
    stale = "      # primus-lint: ignore[tp-divides-heads] stale\n      hidden_dropout: 0.1  # primus-lint: ignore[B999] no\n"
    text = (repo / CLEAN).read_text() + stale
    (repo / CLEAN).write_text(text)
    found = open_names(report(CLEAN))
    assert {"unused-suppression", "unknown-rule-in-suppression"} <= set(found)
    lint("--add-ignores", "odd", CLEAN)
    assert (repo / CLEAN).read_text() == text
    assert open_names(report(CLEAN)) == found


def settings(repo: Path, text: str) -> None:
    (repo / "primus-lint.toml").write_text(text + "\n" + (repo / "primus-lint.toml").read_text())
    forget_settings()


def test_severities_can_be_overridden(repo: Path, lint: Any, report: Any) -> None:
    settings(
        repo, '[severity]\nhbm-overflow = "warning"\nT = "error"\nT101 = "info"\nlayers-divide-pipeline = "info"\n'
    )
    data = report("configs")
    found = {finding["name"]: finding["severity"] for finding in data["findings"]}
    assert found["hbm-overflow"] == "warning"
    assert found["recompute-without-need"] == "info"  # the code is more specific than its prefix
    assert found["layers-divide-pipeline"] == "info"
    assert lint(OOM).exit_code == 0 and lint(OOM, "--fail-on", "warning").exit_code == 1
    # An illegal recipe has no memory account, whatever its error is called.
    assert next(file for file in data["files"] if file["path"] == ILLEGAL)["memory"] is None


def test_what_keeps_a_file_from_being_read_stays_an_error(repo: Path, lint: Any, report: Any) -> None:
    settings(repo, '[severity]\nS = "info"\n')
    (repo / "configs" / "broken.yaml").write_text("modules:\n  pre_trainer:\n   a: 1\n  b\n")
    assert lint("configs/broken.yaml").exit_code == 2
    assert report("configs/broken.yaml")["findings"][0]["severity"] == "error"


def test_a_wrong_severity_is_a_problem_of_the_settings(repo: Path, lint: Any) -> None:
    settings(repo, '[severity]\nhbm-overflow = "fatal"\n')
    result = lint(OOM)
    assert result.exit_code == 2 and "hbm-overflow" in result.stderr and "error or warning or info" in result.stderr


def test_statistics(repo: Path, lint: Any, report: Any) -> None:
    names = spread(repo, 4)
    out = lint("--statistics", *names, SLOW).stdout.splitlines()
    row = next(line for line in out if "key-without-effect" in line).split()
    assert row == ["4", "4", "1", "K121", "warning", "key-without-effect"]
    assert next(line for line in out if "recompute-without-need" in line).endswith("[*]")  # --fix helps
    assert "5 findings of 2 causes" in out[-1]


def test_timing_names_stages_and_rules_and_leaves_no_trace(repo: Path, lint: Any) -> None:
    from primus_lint import pipeline

    read = vars(pipeline)["read"]
    result = lint("--timing", "--quiet", CLEAN, OOM)
    rows = {
        tuple(line.split()[3:]): line.split()
        for line in result.stderr.splitlines()
        if " ms " in line and "CPU" not in line
    }
    for stage in ("read", "lower", "ledger", "projection", "report"):
        assert (stage,) in rows
    assert rows["read",][2] == "2"  # two files
    assert sum(len(row) == 2 and row[0][1:].isdigit() for row in rows) >= 5  # rules by code and name
    assert "CPU" in result.stderr.splitlines()[-1]
    assert vars(pipeline)["read"] is read
    assert result.stdout == lint("--quiet", CLEAN, OOM).stdout


def test_one_cause_is_not_told_twice(repo: Path, report: Any) -> None:
    text = (repo / CLEAN).read_text()
    assert "global_batch_size: " in text
    path = repo / "configs/small.yaml"
    path.write_text(re.sub(r"global_batch_size: \d+", "global_batch_size: 3", text))
    names = open_names(report("configs/small.yaml"))
    assert "global-batch-divides" in names
    assert "one-micro-batch-at-least" not in names  # broken as well: the same batch, too small


def test_ignores_can_be_ignored(repo: Path, lint: Any, report: Any) -> None:
    lint("--add-ignores", "known", OOM)
    assert open_names(report(OOM)) == []
    assert open_names(report("--no-ignores", OOM)) == ["hbm-overflow"]
    assert lint("--no-ignores", OOM).exit_code == 1


def test_a_suppression_is_unused_only_where_its_rule_ran(repo: Path, report: Any) -> None:
    path = repo / CLEAN
    path.write_text(
        path.read_text().replace("modules:", "# primus-lint: file-ignore[hbm-overflow] the big node\nmodules:", 1)
    )
    assert open_names(report(CLEAN)) == ["unused-suppression"]
    assert open_names(report("--ignore", "M", CLEAN)) == []


def test_files_without_findings_are_counted_or_shown_with_verbose(repo: Path, lint: Any) -> None:
    names = spread(repo, 6)
    brief, verbose = lint(*names).stdout, lint("-v", *names).stdout
    assert "6 files: fit (memory and speed of each: --verbose)" in brief and "tokens/s/GPU" not in brief
    assert verbose.count("tokens/s/GPU") == 6
