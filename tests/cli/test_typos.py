"""What a slip of the user's own hand leads to: it is said, where it is, and never lets a recipe pass unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

CLEAN = "configs/clean-llama3.1_8B.yaml"
OOM = "configs/oom-llama3.1_70B.yaml"
SLOW = "configs/slow-mixtral_8x7B.yaml"
TARGET = ("--gpu", "mi300x", "--nodes", "1")


def findings(result: Any) -> list[dict[str, Any]]:
    data: dict[str, Any] = json.loads(result.stdout)
    return list(data["findings"])


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_misspelt_modules_is_no_reason_to_pass_over_a_file(repo: Path, lint: Any) -> None:
    edit(repo / CLEAN, "modules:", "moduls:")
    result = lint("--output-format", "json", *TARGET, "configs")
    assert result.exit_code == 2
    [found] = [item for item in findings(result) if item["name"] == "modules-missing"]
    assert "did you mean modules?" in found["message"]
    assert (repo / CLEAN).read_text().splitlines()[found["span"]["line"] - 1].startswith("moduls:")


def test_files_that_are_no_experiments_stay_unread(repo: Path, lint: Any) -> None:
    (repo / "other").mkdir()
    (repo / "other" / "a.yaml").write_text("work_group: a\nuser_name: b\nexp: c\ndatasets:\n  x: 1\n")
    (repo / "other" / "b.yaml").write_text("module:\n  x: 1\n")
    assert lint("--output-format", "json", "other").exit_code == 0


def test_misspelt_overrides_are_told_once_and_renamed(repo: Path, lint: Any) -> None:
    before = (repo / CLEAN).read_bytes()
    edit(repo / CLEAN, "overrides:", "overides:")
    result = lint("--output-format", "json", *TARGET, CLEAN)
    assert result.exit_code == 1
    [found] = [item for item in findings(result) if item["name"] == "unknown-key"]
    assert found["severity"] == "error"
    assert "did you mean overrides?" in found["message"]
    text = (repo / CLEAN).read_bytes()
    assert text[found["span"]["byte_start"] : found["span"]["byte_end"]] == b"overides"
    assert lint("fix", "--no-tune", *TARGET, CLEAN).exit_code == 0
    assert (repo / CLEAN).read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[target]]\nfiles = "*"\ngpu = "mi300x"\n', "did you mean `targets`?"),
        ('[[targets]]\nfiles = "*"\nnode = 1\n', "did you mean `nodes`?"),
        ('framework-version = "zzz"\n', "`framework-version` wants a known version"),
    ],
)
def test_settings_with_a_slip_cannot_be_used(repo: Path, lint: Any, text: str, said: str) -> None:
    (repo / "primus-lint.toml").write_text(text)
    result = lint(OOM)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gpu=mi300x node=4", "did you mean nodes=?"),
        ("gpu=mi300x nodes=two", "nodes wants a whole number above 0"),
        ("gpu=mi300x nodes=0", "nodes wants a whole number above 0"),
        ("gpu=mi300x nodes=1 foo=1", "there are gpu, nodes, world_size, gpus_per_node"),
        ("gpu=", "gpu wants the name of a device"),
    ],
)
def test_a_word_of_the_target_comment_that_says_nothing(repo: Path, lint: Any, words: str, said: str) -> None:
    text = (repo / CLEAN).read_text()
    (repo / CLEAN).write_text(f"# primus-lint: target {words}\n{text}")
    result = lint("--isolated", "--output-format", "json", CLEAN)
    assert result.exit_code == 1
    [found] = [item for item in findings(result) if item["name"] == "target-comment"]
    assert said in found["message"]
    assert found["span"]["line"] == 1


@pytest.mark.parametrize("comment", ["target gpu=mi300x, nodes=1", "target: gpu=mi300x nodes=1"])
def test_commas_and_a_colon_are_fine_in_a_target_comment(repo: Path, lint: Any, comment: str) -> None:
    (repo / OOM).write_text(f"# primus-lint: {comment}\n" + (repo / OOM).read_text())
    result = lint("--isolated", "--output-format", "json", OOM)
    assert {item["name"] for item in findings(result)} >= {"hbm-overflow"}
    assert "target-comment" not in result.stdout


def test_a_suppression_is_not_unused_where_its_rule_had_nothing_to_judge_by(repo: Path, lint: Any) -> None:
    comment = "# primus-lint: file-ignore[slow-dispatcher, hbm-overflow] x\n"
    (repo / CLEAN).write_text(comment + (repo / CLEAN).read_text())
    assert "unused-suppression" not in lint("--isolated", CLEAN).stdout
    assert "unused-suppression" in lint("--isolated", *TARGET, CLEAN).stdout


@pytest.mark.parametrize(
    "comment",
    ["ignor[hbm-overflow] x", "ignore", "ignore [hbm-overflow] x", "Ignore[hbm-overflow] x", "ignore[hbm-overflow x"],
)
def test_comments_that_cannot_be_read_are_reported(repo: Path, lint: Any, comment: str) -> None:
    (repo / CLEAN).write_text(f"# primus-lint: {comment}\n" + (repo / CLEAN).read_text())
    result = lint("--output-format", "json", *TARGET, CLEAN)
    [found] = [item for item in findings(result) if item["name"] == "malformed-comment"]
    assert repr(comment) in found["message"]
    assert found["span"]["line"] == 1


def test_a_baseline_after_a_blank_is_refused(repo: Path, lint: Any) -> None:
    assert "--baseline [=FILE]" in lint("check", "--help").output
    result = lint("--baseline", "accepted.json", *TARGET, CLEAN)
    assert result.exit_code == 2
    assert "--baseline=accepted.json" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": 1, "entries": [{"x": 1}]}', "not a baseline of primus-lint: it wants"),
        ('{"version": 1, "files": {"a.yaml": [{"x": 1}]}}', "not a baseline of primus-lint: it wants"),
        ('{"version": 1,\n oops}', "accepted.json:2:2: not JSON"),
    ],
)
def test_a_broken_baseline_is_said_in_words(repo: Path, lint: Any, text: str, said: str) -> None:
    (repo / "accepted.json").write_text(text)
    result = lint("--baseline=accepted.json", *TARGET, CLEAN)
    assert result.exit_code == 2
    assert said in result.output
    assert "Error(" not in result.output


def test_a_wrong_value_of_the_command_line_is_not_blamed_on_a_preset(repo: Path, lint: Any) -> None:
    result = lint("--set", "micro_batch_size=abc", *TARGET, CLEAN)
    assert result.exit_code == 1
    assert "the command line sets micro_batch_size=abc" in result.stdout
    first = result.stdout.partition("\n\n")[0]
    assert "nothing in the file sets it" not in first
    [line] = [n for n, text in enumerate((repo / CLEAN).read_text().splitlines(), 1) if "micro_batch_size" in text]
    assert f"{CLEAN}:{line}:" in first


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("a.b.c=[1", "the value is no YAML"),
        ("modules.pre_trainer.overrides.micro_batch_size=1", "--set micro_batch_size=1"),
        ("modules.pre_trainer.micro_batch_size=1", "--set micro_batch_size=1"),
    ],
)
def test_a_set_that_cannot_be_applied_is_refused(repo: Path, lint: Any, pair: str, said: str) -> None:
    result = lint("--set", pair, *TARGET, CLEAN)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_misspelt_framework_is_one_error_at_its_line(repo: Path, lint: Any) -> None:
    edit(repo / CLEAN, "framework: megatron", "framework: megatorn")
    result = lint("--output-format", "json", *TARGET, CLEAN)
    assert result.exit_code == 2
    [found] = findings(result)
    assert "did you mean megatron?" in found["message"]
    text = (repo / CLEAN).read_bytes()
    assert text[found["span"]["byte_start"] : found["span"]["byte_end"]] == b"megatorn"


def test_junit_fails_what_fails_the_run(repo: Path, lint: Any) -> None:
    words = ("--output-format", "junit", *TARGET, SLOW)
    assert lint(*words).exit_code == 0
    kind = ElementTree.fromstring(lint(*words).stdout)
    assert kind.get("failures") == "0" and kind.findall(".//system-out")
    strict = lint("--fail-on", "info", *words)
    assert strict.exit_code == 1
    assert ElementTree.fromstring(strict.stdout).get("failures") == kind.get("tests")


def test_sarif_help_has_no_templates(repo: Path, lint: Any) -> None:
    from primus_lint.report.sarif import rule_data
    from primus_lint.rules.catalogue import documents

    titles = [fix["title"] for rule in documents().values() for fix in rule["fix"]]
    assert any("{" in title for title in titles)
    for code in documents():
        lines = rule_data(code, None)["help"]["markdown"].splitlines()  # type: ignore[arg-type]
        assert not [line for line in lines if line.startswith("- fix") and "{" in line]


@pytest.mark.parametrize("form", ["text", "concise", "markdown", "html", "json"])
def test_a_value_that_only_the_command_line_sets_points_at_no_line(repo: Path, lint: Any, form: str) -> None:
    """Not at the line of the model, which has nothing to do with it."""
    result = lint("--set", "fp8=e9m9", "--output-format", form, *TARGET, CLEAN)
    assert result.exit_code == 1
    if form == "json":
        (finding,) = [f for f in json.loads(result.stdout)["findings"] if "e9m9" in f["message"]]
        assert finding["path"] == CLEAN and finding["span"]["line"] == 1 and finding["key_path"][-1] == "fp8"
    else:
        assert "the command line sets fp8=e9m9" in result.stdout
        assert "model: llama3.1_8B.yaml" not in result.stdout and f"{CLEAN}:" not in result.stdout.split("e9m9")[0]


def test_the_key_of_a_rule_comes_before_what_the_file_sets(repo: Path, lint: Any) -> None:
    result = lint("--set", "global_batch_size=7", *TARGET, CLEAN)
    line = (repo / CLEAN).read_text().partition("global_batch_size")[0].count("\n") + 1
    assert f"--> {CLEAN}:{line}:" in result.stdout and "the command line sets global_batch_size=7" in result.stdout


def test_a_summary_names_what_is_shown(repo: Path, lint: Any) -> None:
    """No rule that the reader does not see, or it is said that it is not shown."""

    def reason(*words: str) -> str:
        data = json.loads(lint(*words, "--output-format", "json", *TARGET, CLEAN).stdout)
        (reason,) = data["files"][0]["abstained"]["memory"]
        return str(reason).removeprefix("the recipe is illegal: ")

    assert reason("--set", "micro_batch_size=2.5") == "wrong-type"
    assert reason("--set", "micro_batch_size=2.5", "--ignore", "global-batch-divides") == "wrong-type"
    assert reason("--set", "micro_batch_size=3") == "global-batch-divides"
    assert reason("--set", "micro_batch_size=3", "--ignore", "B103") == "global-batch-divides (not shown)"
    path = repo / CLEAN
    path.write_text("# primus-lint: file-ignore[global-batch-divides] to see\n" + path.read_text())
    assert reason("--set", "micro_batch_size=3") == "global-batch-divides (not shown)"
    assert reason("--set", "micro_batch_size=3", "--no-ignores") == "global-batch-divides"


@pytest.mark.parametrize("words", ["--reach nan", "--price -1", "--budget inf", "--min-gain -2", "--min-headroom x"])
def test_numbers_of_options_are_numbers_from_zero_on(repo: Path, lint: Any, words: str) -> None:
    result = lint("tune", CLEAN, *TARGET, *words.split())
    assert result.exit_code == 2 and words.split()[0] in result.stderr and words.split()[1] in result.stderr


def test_explain_of_what_is_no_recipe_is_no_success(repo: Path, lint: Any) -> None:
    (repo / "other.yaml").write_text("a: 1\n")
    (repo / "broken.yaml").write_text("modules:\n  pre_trainer: {\n")
    for words in (["other.yaml"], ["other.yaml", "--memory"], ["broken.yaml"], ["broken.yaml", "--memory"]):
        result = lint("explain", *words)
        assert result.exit_code == 2 and "not a training recipe" in result.stderr
    assert "yaml-syntax" in lint("explain", "broken.yaml").stderr
    result = lint("explain", f"{CLEAN}:")
    assert result.exit_code == 2 and "name the key" in result.stderr


def test_a_folder_without_rules_passes_no_test(repo: Path, lint: Any) -> None:
    result = lint("test-rules", "configs")
    assert result.exit_code == 2 and "no rule" in result.stderr


def test_very_many_unknown_keys_end_soon(repo: Path, lint: Any) -> None:
    path = repo / CLEAN
    path.write_text(path.read_text() + "".join(f"      key_{number}: {number}\n" for number in range(5_000)))
    found = [f for f in findings(lint("--output-format", "json", *TARGET, CLEAN)) if f["name"] == "unknown-key"]
    assert len(found) == 101 and "not listed" in found[-1]["message"]


@pytest.mark.parametrize(
    "pair",
    ["lr_warmup_fraction=2020-01-01", "lr_warmup_fraction=[a, b]", 'padded_vocab_size=""', "padded_vocab_size=1.0e+308",
     "num_workers=[]", "num_distributed_optimizer_instances=-1", "rotary_percent=.nan"],
)  # fmt: skip
def test_values_that_nothing_can_be_computed_with_are_no_crash(repo: Path, lint: Any, pair: str) -> None:
    """What is wrong is told, and that there is no account where there is none."""
    data = json.loads(lint("--set", pair, "--output-format", "json", *TARGET, CLEAN).stdout)
    key = pair.partition("=")[0]
    assert any(key in finding["message"] for finding in data["findings"]) or key == "lr_warmup_fraction"
    if key != "lr_warmup_fraction":
        assert key in data["files"][0]["abstained"]["memory"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chek", CLEAN), "did you mean check?"),
        (("explian", CLEAN, "--memory"), "did you mean explain?"),
        (("configs/clean-llama3.1_8b.yaml",), f"did you mean {CLEAN}?"),
        (("fix", "configs/clean-lama3.1_8B.yaml"), f"did you mean {CLEAN}?"),
    ],
)
def test_a_misspelt_command_or_file(repo: Path, lint: Any, words: tuple[str, ...], said: str) -> None:
    result = lint(*words)
    assert result.exit_code == 2 and said in result.output


def test_text_on_the_command_line_is_told_once(repo: Path, lint: Any) -> None:
    told = findings(lint("--output-format", "json", *TARGET, "--set", "lr=1e-5", CLEAN))
    assert [item["name"] for item in told if item["key_path"][-1:] == ["lr"]] == ["number-as-text"]
    told = findings(lint("--output-format", "json", *TARGET, "--set", "wandb_exp_name=1e-5", CLEAN))
    assert [item["name"] for item in told] == ["set-number-as-text"]


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("position_embedding_type: ropee", "rope"),  # the check that stops the run speaks of add_position_embedding
        ("main_grads_dtype: bf166", "bf16"),
        ("main_params_dtype: fp166", "fp16"),
    ],
)
def test_a_misspelt_choice_is_told_at_its_line(repo: Path, lint: Any, line: str, near: str) -> None:
    edit(repo / CLEAN, "    overrides:\n", f"    overrides:\n      {line}\n")
    [found] = [
        item for item in findings(lint("--output-format", "json", *TARGET, CLEAN)) if item["severity"] == "error"
    ]
    assert found["name"] == "value-outside-choices" and f"(near: {near})" in found["message"]
    assert (repo / CLEAN).read_text().splitlines()[found["span"]["line"] - 1].strip() == line
