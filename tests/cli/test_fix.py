"""`--fix`: what it writes, that it is proved, and that a second run changes nothing (design 4.2)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

OOM = "configs/oom-llama3.1_70B.yaml"
ILLEGAL = "configs/illegal-qwen2.5_7B.yaml"
SLOW = "configs/slow-mixtral_8x7B.yaml"
CLEAN = "configs/clean-llama3.1_8B.yaml"


def overrides(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["modules"]["pre_trainer"]["overrides"]
    return found


def comments(path: Path) -> list[str]:
    return [line.split("#", 1)[1] for line in path.read_text().splitlines() if "#" in line]


def fits(lint: Any, path: str) -> bool | None:
    data = json.loads(lint("--output-format", "json", path).stdout)
    found: bool | None = data["files"][0]["memory"]["fits"]
    return found


@pytest.mark.parametrize("name", [OOM, ILLEGAL, SLOW])
def test_fix_makes_it_legal_and_fit_and_is_idempotent(repo: Path, lint: Any, name: str) -> None:
    before, notes = overrides(repo / name), comments(repo / name)
    result = lint("--fix", name)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"--- a/{name}")
    assert fits(lint, name) is True
    after = overrides(repo / name)
    for key in ("global_batch_size", "seq_length", "train_iters", "lr", "vocab_size"):
        assert after[key] == before[key]
    assert comments(repo / name) == notes
    data = (repo / name).read_bytes()
    again = lint("--fix", name)
    assert again.exit_code == 0 and again.stdout == ""
    assert (repo / name).read_bytes() == data


def test_diff_writes_nothing_and_exits_with_1(repo: Path, lint: Any) -> None:
    data = (repo / OOM).read_bytes()
    result = lint("--diff", OOM)
    assert result.exit_code == 1
    assert "+" in result.stdout
    assert (repo / OOM).read_bytes() == data
    assert lint("--diff", CLEAN).exit_code == 0


def test_a_default_inside_a_variable_is_replaced_alone(repo: Path, lint: Any) -> None:
    lint("--fix", OOM)
    text = (repo / OOM).read_text()
    assert "tensor_model_parallel_size: ${PRIMUS_TP:" in text
    assert "pipeline_model_parallel_size: ${PRIMUS_PP:" in text


def test_minimal_changes_fewer_keys_than_the_fastest(repo: Path, lint: Any) -> None:
    def changed(*words: str) -> int:
        diff = lint("--diff", *words, OOM).stdout
        return sum(line.startswith("+ ") for line in diff.splitlines())

    assert 0 < changed("--minimal") <= changed()


def test_keep_pins_a_key(repo: Path, lint: Any) -> None:
    lint("--fix", "--keep", "tensor_model_parallel_size", OOM)
    assert "${PRIMUS_TP:4}" in (repo / OOM).read_text()
    assert fits(lint, OOM) is True


def peak_share(lint: Any, path: str) -> float:
    (file,) = json.loads(lint("--output-format", "json", path).stdout)["files"]
    memory = file["memory"]
    return float(max(rank["device_high_bytes"] for rank in memory["ranks"]) / memory["capacity_bytes"])


def test_headroom_limits_and_objective_hold_with_fix(repo: Path, lint: Any) -> None:
    """What a rule would offer afterwards (to recompute nothing, as it fits) does not take the headroom away again."""
    text = (repo / OOM).read_text()
    plain = lint("--fix", OOM)
    share = peak_share(lint, OOM)
    (repo / OOM).write_text(text)
    assert lint("--fix", "--min-headroom", "20", OOM).exit_code == 0
    assert peak_share(lint, OOM) <= 0.8 < share
    (repo / OOM).write_text(text)
    roomy = lint("--fix", "--objective", "memory-headroom", OOM)
    assert "the most headroom" in roomy.stderr and peak_share(lint, OOM) < share
    (repo / OOM).write_text(text)
    lint("--fix", "--limit", "pipeline_model_parallel_size=2,4", OOM)
    assert "${PRIMUS_PP:1}" in plain.stdout and "${PRIMUS_PP:1}" not in (repo / OOM).read_text()
    assert fits(lint, OOM) is True
    assert lint("--fix", "--limit", "x", OOM).exit_code == 2


def test_no_tune_leaves_a_fitting_recipe_alone(repo: Path, lint: Any) -> None:
    """Repairing the OOM is a repair; making a recipe faster is tuning, unless a rule offers it as its fix."""
    assert lint("--fix", "--no-tune", OOM).exit_code == 0
    assert fits(lint, OOM) is True
    data = (repo / CLEAN).read_bytes()
    assert lint("--fix", "--no-tune", CLEAN).exit_code == 0
    assert (repo / CLEAN).read_bytes() == data


def test_what_fits_nowhere_says_from_which_size_on(repo: Path, lint: Any) -> None:
    """405B on one node: 18 B a parameter over 8 GPUs are 913 GB each, whatever is recomputed."""
    text = (repo / OOM).read_text().replace("llama3.1_70B.yaml", "llama3.1_405B.yaml")
    (repo / "big.yaml").write_text(text)
    result = lint("--gpu", "mi300x", "--nodes", "1", "--fix", "big.yaml")
    assert result.exit_code == 1
    assert (repo / "big.yaml").read_text() == text
    assert "the smallest world size at which one does is" in result.stderr, result.stderr


def test_standard_input_is_fixed_to_standard_output(repo: Path, lint: Any) -> None:
    data = (repo / OOM).read_bytes()
    result = lint("--fix", "-", "--stdin-filename", OOM, stdin=data)
    fixed = yaml.safe_load(result.stdout)
    assert fixed["modules"]["pre_trainer"]["overrides"]["global_batch_size"] == 64
    assert (repo / OOM).read_bytes() == data


def test_a_fix_that_is_not_made_says_the_error_that_it_would_give(repo: Path, lint: Any) -> None:
    path = repo / CLEAN
    path.write_text(path.read_text().replace("lr: 3.0e-4", "lr: 1e-5", 1))  # min_lr is 3.0e-5
    text = path.read_text()
    result = lint("--fix", "--no-tune", CLEAN)
    assert result.exit_code == 1 and path.read_text() == text
    assert "number-as-text: not fixed (write 1.0e-5): it would give error[" in result.stderr
    assert "min_lr" in result.stderr.split("not fixed", 1)[1]


def test_a_misspelled_key_beside_the_right_one_is_not_offered_a_rename(repo: Path, lint: Any) -> None:
    path = repo / CLEAN
    path.write_text(
        path.read_text().replace("      micro_batch_size", "      micro_bacth_size: 2\n      micro_batch_size", 1)
    )
    data = json.loads(lint("--output-format", "json", CLEAN).stdout)
    found = [each for each in data["findings"] if each["name"] == "unknown-key"]
    assert len(found) == 1 and not found[0]["fixes"]
    assert "micro_batch_size is set as well" in found[0]["message"]


def test_values_of_the_command_line_are_what_if_and_never_written(repo: Path, lint: Any) -> None:
    text = (repo / OOM).read_text()
    result = lint("--fix", "--set", "tensor_model_parallel_size=3", OOM)
    assert result.exit_code == 2 and (repo / OOM).read_text() == text
    assert "--set" in result.stderr and "--diff" in result.stderr
    assert lint("--fix", "--diff", "--no-tune", "--set", "lr=2.0e-4", CLEAN).exit_code == 0


def test_an_edit_made_meanwhile_is_not_overwritten(repo: Path, monkeypatch: Any, lint: Any) -> None:
    """The file is read, then another program writes it, then the search ends."""
    from primus_lint.tune import fix

    path = repo / "configs" / "oom-llama3.1_70B.yaml"
    real = fix.fix_source

    def slow(*arguments: Any) -> Any:
        result = real(*arguments)
        path.write_text(path.read_text().replace("weight_decay: 0.1", "weight_decay: 0.2"))
        return result

    monkeypatch.setattr(fix, "fix_source", slow)
    result = lint("--fix", "configs/oom-llama3.1_70B.yaml")
    assert result.exit_code == 2 and "has changed since it was read: nothing written" in result.output
    assert "weight_decay: 0.2" in path.read_text() and "micro_batch_size: 4" in path.read_text()


def test_a_read_only_file_is_left_and_the_others_are_written(repo: Path, lint: Any) -> None:
    path = repo / "configs" / "oom-llama3.1_70B.yaml"
    other = repo / "configs" / "z-oom.yaml"
    other.write_text(path.read_text())
    before = path.read_text()
    path.chmod(0o444)
    result = lint("--fix", "configs/oom-llama3.1_70B.yaml", "configs/z-oom.yaml")
    assert result.exit_code == 2 and "read-only: nothing written" in result.output
    assert path.read_text() == before and other.read_text() != before


def test_memory_that_does_not_fit_is_told_with_both_ends_everywhere(repo: Path, lint: Any) -> None:
    data = json.loads(lint("--output-format", "json", OOM).stdout)
    worst = max(data["files"][0]["memory"]["ranks"], key=lambda rank: rank["device_high_bytes"])
    low, high = (f"{worst[name] / 2**30:,.1f} GiB" for name in ("device_low_bytes", "device_high_bytes"))
    finding = next(each for each in data["findings"] if each["name"] == "hbm-overflow")
    assert f"needs {low} to {high}" in finding["message"]
    shown = lint("--fix", "--diff", "--no-tune", OOM).stderr
    assert f"before: rank 0 {low} to {high} OVER" in shown
    largest = next(line for line in lint(OOM).stdout.splitlines() if "(largest: " in line)
    assert "allocator" not in largest  # it is no part of the sum that the line explains


def test_hard_links_keep_the_former_text_and_that_is_said(repo: Path, lint: Any) -> None:
    os.link(repo / ILLEGAL, repo / "other.yaml")
    before = (repo / ILLEGAL).read_bytes()
    result = lint("fix", "--no-tune", "--gpu", "mi300x", "--nodes", "1", ILLEGAL)
    assert (repo / "other.yaml").read_bytes() == before != (repo / ILLEGAL).read_bytes()
    assert f"{ILLEGAL}: another hard link keeps the former text" in result.stderr


def test_what_the_environment_sets_is_not_worked_around(repo: Path, lint: Any) -> None:
    file = repo / "configs" / "oom-llama3.1_70B.yaml"
    before = file.read_text()
    result = lint("--fix", "--no-tune", "--env", "PRIMUS_TP=6", str(file))
    assert result.exit_code == 1
    assert "comes from PRIMUS_TP=6, not from the file" in result.stderr
    assert file.read_text() == before  # sequence parallelism is not what is wrong with six


def test_what_the_settings_exclude_is_not_written_in_a_run_over_a_folder(repo: Path, lint: Any) -> None:
    settings = repo / "primus-lint.toml"
    settings.write_text('exclude = ["illegal-*.yaml"]\n' + settings.read_text())
    before = (repo / ILLEGAL).read_bytes()
    assert "--- a/" in lint("--fix", "--no-tune", "configs").stdout
    assert (repo / ILLEGAL).read_bytes() == before
    lint("--fix", "--no-tune", ILLEGAL)  # named alone
    assert (repo / ILLEGAL).read_bytes() != before


def test_only_selected_rules_are_repaired_and_no_other_mistake_is_made(repo: Path, lint: Any) -> None:
    path = repo / CLEAN
    path.write_text(path.read_text() + "      recompute_granularty: full\n")
    assert lint("--fix", "--no-tune", "--ignore", "unknown-key", CLEAN).stdout == ""
    result = lint("--fix", "--no-tune", "--select", "unknown-key", CLEAN)
    assert result.stdout == ""
    assert "it would give error[full-recompute-needs-method]" in result.stderr  # a rule that is not selected


@pytest.mark.parametrize(
    ("target", "then"), [((), "legal-at-no-world-size"), (("--world-size", "8", "--gpu", "h100"), "hbm-overflow")]
)
def test_a_repair_is_not_blamed_for_what_the_mistake_hid(
    repo: Path, lint: Any, target: tuple[str, ...], then: str
) -> None:
    """selective recomputation refuses a method (Megatron's argument check); 63 sequences are no micro-batches of 4 at any
    size, and 70 billion parameters do not fit on eight H100, with the method as without."""
    (repo / "primus-lint.toml").unlink()
    text = (repo / OOM).read_text()
    assert "recompute" not in text
    more = "      recompute_granularity: selective\n      recompute_method: uniform\n"
    if not target:
        text = text.replace("global_batch_size: 64", "global_batch_size: 63")
        assert "global_batch_size: 63" in text
    (repo / "x.yaml").write_text(text + more)
    result = lint("--fix", "--no-tune", *target, "x.yaml")
    assert "recompute_method" not in (repo / "x.yaml").read_text()
    assert f"remains: error[{then}]" in result.stderr


def test_a_key_of_a_framework_that_is_not_modelled_is_repaired(repo: Path, lint: Any) -> None:
    text = (repo / CLEAN).read_text().partition("modules:")[0]
    text += (
        "modules:\n  pre_trainer:\n    framework: maxtext\n    config: pre_trainer.yaml\n    model: llama3_8B.yaml\n"
    )
    (repo / "x.yaml").write_text(text + "    overrides:\n      ici_tensor_paralellism: 2\n")
    assert lint("--fix", "x.yaml").exit_code == 0
    assert "ici_tensor_parallelism: 2" in (repo / "x.yaml").read_text()
