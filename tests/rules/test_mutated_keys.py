"""Every key of ordinary recipes, misspelt, moved and mistyped: said once, at its line, with the right key; never a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.texts import check_text

if TYPE_CHECKING:
    from pathlib import Path

    from primus_lint.rules.finding import Finding

RECIPES = {
    "megatron": {
        "micro_batch_size": "2", "global_batch_size": "128", "train_iters": "50", "seq_length": "4096", "lr": "1.0e-4",
        "tensor_model_parallel_size": "1", "overlap_grad_reduce": "true", "use_distributed_optimizer": "true",
        "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": "1", "mock_data": "true",
        "save_interval": "20", "clip_grad": "1.0", "weight_decay": "0.1",
    },
    "torchtitan": {
        "training.local_batch_size": "2", "training.seq_len": "4096", "training.steps": "50", "optimizer.lr": "3.0e-4",
        "parallelism.tensor_parallel_degree": "1", "compile.enable": "true", "lr_scheduler.warmup_steps": "5",
    },
    "maxtext": {
        "steps": "50", "per_device_batch_size": "2", "max_target_length": "4096", "learning_rate": "3.0e-4",
        "remat_policy": "full", "enable_checkpointing": "false", "ici_fsdp_parallelism": "-1",
    },
}  # fmt: skip
FIRST = 11  # the line of the first override in `EXPERIMENT`
MISSPELT = {
    "one letter less": lambda key: key[:-3] + key[-2:],
    "one letter twice": lambda key: key[:4] + key[3] + key[4:],
    "two letters swapped": lambda key: key[:-3] + key[-2] + key[-3] + key[-1],
}
WRONG = {"true": "maybe", "false": "2"}


def text_of(recipe: dict[str, str]) -> tuple[str, dict[str, int]]:
    """The overrides and the line of every key; dotted keys as nested mappings of one key."""
    lines, at = [], {}
    for key, value in recipe.items():
        section, _, leaf = key.rpartition(".")
        if section:
            if f"{section}:" not in lines:
                lines.append(f"{section}:")
            place = next(i for i, line in enumerate(lines) if line == f"{section}:") + 1
            while place < len(lines) and lines[place].startswith("  "):
                place += 1
            lines.insert(place, f"  {leaf}: {value}")
        else:
            lines.append(f"{key}: {value}")
    for key in recipe:
        leaf = key.rpartition(".")[2]
        at[key] = FIRST + next(i for i, line in enumerate(lines) if line.strip().startswith(f"{leaf}:"))
    return "\n".join(lines), at


def keyed(text: str, framework: str, folder: Path) -> list[Finding]:
    checked = check_text(text, {"framework": framework}, folder)
    return [finding for finding in checked.findings if finding.code[0] == "K" and finding.severity != "info"]


def cases() -> list[tuple[str, str]]:
    return [(framework, key) for framework, recipe in RECIPES.items() for key in recipe]


@pytest.mark.parametrize("framework", RECIPES)
def test_the_recipe_itself_is_quiet(framework: str, tmp_path: Path) -> None:
    assert keyed(text_of(RECIPES[framework])[0], framework, tmp_path) == []


@pytest.mark.parametrize("how", MISSPELT)
@pytest.mark.parametrize(("framework", "key"), cases())
def test_a_misspelt_key(framework: str, key: str, how: str, tmp_path: Path) -> None:
    text, at = text_of(RECIPES[framework])
    leaf = key.rpartition(".")[2]
    if len(leaf) < 5:
        pytest.skip("too short to be misspelt without becoming another word")
    wrong = MISSPELT[how](leaf)
    found = keyed(text.replace(f"{leaf}:", f"{wrong}:", 1), framework, tmp_path)
    assert [finding.place.line for finding in found if finding.place] == [at[key]], found
    assert wrong in found[0].message and leaf in found[0].message


@pytest.mark.parametrize(("framework", "key"), cases())
def test_a_value_of_a_wrong_type(framework: str, key: str, tmp_path: Path) -> None:
    recipe = RECIPES[framework]
    if recipe[key] in ("full", "uniform"):
        pytest.skip("any text has the right type")
    text, at = text_of({**recipe, key: WRONG.get(recipe[key], "eight")})
    found = keyed(text, framework, tmp_path)
    assert [finding.place.line for finding in found if finding.place] == [at[key]], found
    assert found[0].severity == "error"


@pytest.mark.parametrize("framework", RECIPES)
def test_keys_at_the_top_level(framework: str, tmp_path: Path) -> None:
    """A few keys moved above `modules:`: one finding that names them all."""
    from tests.rules.texts import whole_text

    text, _ = text_of(RECIPES[framework])
    block = text if framework != "torchtitan" else text.split("optimizer:")[0]
    found = keyed(block + "\n" + whole_text("{}", {"framework": framework}), framework, tmp_path)
    assert [finding.name for finding in found] == ["wrong-level"]
    assert found[0].place is not None and found[0].place.line == 1
