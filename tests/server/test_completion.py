"""Completion over the real process: keys, values, presets, flags, comments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls (extra `lsp`)")

from tests.server.client import Client, apply_edits, find

CLEAN = "configs/clean-llama3.1_8B.yaml"
TORCHTITAN = """\
work_group: amd
user_name: root
exp_name: titan
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides:
      training:
        seq_len: 4096
        {cursor}
      parallelism:
        tensor_parallel_degree: 1
"""


def labels(items: list[dict[str, Any]]) -> list[str]:
    return [item["label"] for item in items]


def with_line(text: str, line: str) -> str:
    """The text with one more line at the end of its overrides."""
    return text.rstrip("\n") + "\n" + line


def at_end(client: Client, path: Path, text: str) -> list[dict[str, Any]]:
    client.open(path, text)
    return client.complete(path, text.count("\n"), len(text.rpartition("\n")[2]))


def test_keys_of_overrides(client: Client, repo: Path) -> None:
    path = repo / CLEAN
    text = with_line(path.read_text(), "      recompute_gran")  # an unfinished line: the text does not parse
    items = at_end(client, path, text)
    assert "micro_batch_size" not in labels(items)  # the file sets it
    assert "moe_layer_recompute" not in labels(items)  # an old spelling
    item = next(item for item in items if item["label"] == "recompute_granularity")
    assert "full" in item["detail"] and "selective" in item["detail"]
    assert apply_edits(text, [item["textEdit"]]).endswith("\n      recompute_granularity: ")


def test_values_of_a_choice_say_what_they_do(client: Client, repo: Path) -> None:
    path = repo / CLEAN
    items = at_end(client, path, with_line(path.read_text(), "      recompute_granularity: "))
    assert labels(items) == ["full", "selective"]
    assert "GiB of" in items[1]["detail"] and "tokens/s/GPU" in items[1]["detail"]
    items = at_end(client, path, with_line(path.read_text(), "      overlap_p2p_comm: t"))
    assert labels(items) == ["true", "false"]


def test_values_of_a_degree_say_which_are_legal(client: Client, repo: Path) -> None:
    path = repo / CLEAN
    items = at_end(client, path, with_line(path.read_text(), "      context_parallel_size: "))
    details = {item["label"]: item["detail"] for item in items}
    assert "tokens/s/GPU" in details["2"] or "GiB" in details["2"]
    assert "8 GPUs" in details["16"]  # 16 context-parallel ranks on 8 GPUs


def test_the_colon_is_not_doubled(client: Client, repo: Path) -> None:
    path = repo / CLEAN
    text = path.read_text()
    client.open(path)
    line, column = find(text, "train_iters:")
    item = next(item for item in client.complete(path, line, column + 3) if item["label"] == "train_iters")
    assert apply_edits(text, [item["textEdit"]]) == text


def test_module_values(client: Client, repo: Path) -> None:
    path = repo / CLEAN
    text = path.read_text()
    client.open(path)
    line, column = find(text, "llama3.1_8B.yaml")
    models = labels(client.complete(path, line, column + 4))
    assert "llama3.1_8B.yaml" in models and "mixtral_8x7B_v0.1.yaml" in models
    line, column = find(text, "framework: megatron")
    assert "torchtitan" in labels(client.complete(path, line, column + len("framework: ")))


def test_nested_keys_of_another_framework(client: Client, repo: Path) -> None:
    path = repo / "titan.yaml"
    text = TORCHTITAN.replace("{cursor}", "")
    client.open(path, text)
    line, _ = find(TORCHTITAN, "{cursor}")
    found = labels(client.complete(path, line, 8))
    assert "steps" in found and "seq_len" not in found  # a key of `training`; one that is set
    assert "tensor_parallel_degree" not in found and "training.steps" not in found


def test_top_level_and_module_keys(client: Client, repo: Path) -> None:
    path = repo / "new.yaml"
    assert "modules" in labels(at_end(client, path, "work_group: amd\n"))
    assert labels(at_end(client, path, "modules:\n  pre_trainer:\n    framework: megatron\n    ")) == [
        "config", "model", "overrides"
    ]  # fmt: skip


def test_flags(client: Client, repo: Path) -> None:
    path = repo / "model_config.yaml"
    text = "MODEL_ARGS:\n  --num-layers: 4\n  --recompute-gran"
    items = at_end(client, path, text)
    assert "--num-layers" not in labels(items)
    item = next(item for item in items if item["label"] == "--recompute-granularity")
    assert apply_edits(text, [item["textEdit"]]) == "MODEL_ARGS:\n  --num-layers: 4\n  --recompute-granularity: "
    assert labels(at_end(client, path, "MODEL_ARGS:\n  --num-layers: 4\n  --recompute-granularity: ")) == [
        "full", "selective"
    ]  # fmt: skip
    script = repo / "train.sh"
    text = "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 4 --hidden"
    item = next(item for item in at_end(client, script, text) if item["label"] == "--hidden-size")
    assert apply_edits(text, [item["textEdit"]]).endswith(" --hidden-size")


def test_comments(client: Client, repo: Path) -> None:
    path = repo / CLEAN
    base = path.read_text()
    assert labels(at_end(client, path, with_line(base, "# primus-lint: "))) == ["ignore[", "file-ignore[", "target "]
    assert "hbm-overflow" in labels(at_end(client, path, with_line(base, "# primus-lint: ignore[hbm")))
    assert "mi355x" in labels(at_end(client, path, with_line(base, "# primus-lint: target nodes=4 gpu=mi")))
    assert at_end(client, path, with_line(base, "# a comment ")) == []
