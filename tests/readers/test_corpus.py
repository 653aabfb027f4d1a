"""All real experiments: values against a second resolver written from the reference's prose, the snapshot against the
checkout, and the defects between files where the chain must show them."""

from __future__ import annotations

import csv
import functools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_lint.readers import presets, read
from primus_lint.readers.document import ResolvedDocument
from primus_lint.readers.merge import SHADOWED
from primus_lint.readers.primus import read_primus
from primus_lint.source.text import SourceText

# The second resolver: section 1 and 2 of the reference, nothing shared with the product ------------------------------


def plain_type(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    try:
        return float(text) if re.fullmatch(r"-?[0-9.]+([eE][-+]?[0-9]+)?", text) else text
    except ValueError:
        return text


def expand(value: Any) -> Any:
    """Step 2, with no variable set."""
    if isinstance(value, dict):
        return {key: expand(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item) for item in value]
    if isinstance(value, str):
        done = re.sub(r"\$\{[^:{}]+:([^}]*)\}", lambda match: match[1], value)
        return value if done == value else plain_type(done)
    return value


def deep(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge; lists and scalars replace."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = deep(result[key], value) if both else value
    return result


@functools.cache
def load(path: Path) -> dict[str, Any]:
    """Steps 1-3."""
    data = dict(expand(yaml.safe_load(path.read_text())))
    parents = data.pop("extends", [])
    merged: dict[str, Any] = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        merged = deep(merged, load(path.parent / parent))
    return deep(merged, data)


def resolve_plainly(root: Path, path: Path) -> dict[str, dict[str, Any]]:
    """Steps 5-8 for every module: name -> flat values with dotted names."""
    found = {}
    for name, module in load(path)["modules"].items():
        folder = module["framework"]
        configs = root / "primus" / "configs"
        mine = dict(load(configs / "modules" / folder / (module["config"].removesuffix(".yaml") + ".yaml")))
        shape = load(configs / "models" / folder / (module["model"].removesuffix(".yaml") + ".yaml"))
        for key, value in module.items():
            if key not in ("framework", "config", "model", "overrides", "name"):
                mine.setdefault(key, value)
        for key, value in shape.items():
            mine.setdefault(key, value)
        merged = deep(mine, module.get("overrides") or {})
        merged = {key: value for key, value in merged.items() if key not in ("name", "framework")}
        if not isinstance(merged.get("model"), dict):
            merged.pop("model", None)  # the preset's name, not a value of the run
        found[name] = dict(leaves(merged, ""))
    return found


def leaves(tree: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    flat = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat += leaves(value, f"{prefix}{key}.")
        else:
            flat.append((prefix + key, None if value == "null" else value))
    return flat


# ---------------------------------------------------------------------------------------------------------------------


def resolved(path: Path, **more: Any) -> ResolvedDocument:
    return read_primus(SourceText.from_path(str(path)), **more)


def values(document: ResolvedDocument) -> dict[str, dict[str, Any]]:
    return {section.name: {key: value.value for key, value in section.values.items()} for section in document}


def test_every_experiment_resolves_like_the_second_resolver(corpus: Path, experiments: list[Path]) -> None:
    compared = 0
    for path in experiments:
        document = resolved(path)
        if not document.is_recipe or path.name.endswith(".template.yaml"):
            continue
        expected = resolve_plainly(corpus, path)
        found = values(document)
        assert found == expected, path
        for name, section in expected.items():  # 1 == 1.0 == True: types too
            assert {key: type(value) for key, value in found[name].items()} == {
                key: type(value) for key, value in section.items()
            }, path
        compared += 1
    assert compared == 354


def test_the_snapshot_gives_the_same_values_and_places(corpus: Path, experiments: list[Path]) -> None:
    for path in experiments:
        checkout = resolved(path, primus_root=str(corpus))
        shipped = resolved(path, snapshot="fd1eeabb")
        assert values(checkout) == values(shipped), path
        assert [problem[:2] for problem in checkout.problems if problem.code != "preset-missing"] == [
            problem[:2] for problem in shipped.problems if problem.code != "preset-missing"
        ]
        for mine, other in zip(checkout, shipped, strict=True):
            for key, value in mine.values.items():
                places = [(o.layer, o.value, o.line, o.column, o.variable, o.note) for o in value.origins]
                assert places == [
                    (o.layer, o.value, o.line, o.column, o.variable, o.note) for o in other.values[key].origins
                ], (path, key)


def test_spans_of_unchanged_presets_are_those_of_their_text(corpus: Path, experiments: list[Path]) -> None:
    """A checkout's preset whose bytes the snapshot knows is not parsed: its spans must fit the text all the same."""
    seen = set()
    for path in experiments[::12]:
        document = resolved(path)
        for section in document:
            for value in section.values.values():
                for origin in value.origins:
                    source = document.sources[origin.path or ""]
                    assert origin.span is not None and origin.key_span is not None
                    assert source.position(origin.span[0]) == (origin.line, origin.column)
                    key = source.text[slice(*origin.key_span)]
                    assert key.strip("\"'") == origin.key_path[-1]
                    written = yaml.safe_load(source.text[slice(*origin.span)])
                    if origin.variable is None and not isinstance(origin.value, (dict, list)):
                        assert written == origin.value, (path, origin)
                    seen.add(origin.path)
    assert len(seen) > 60


def test_every_preset_is_parsed_once_a_process(experiments: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "_STORES", {})
    used: set[str] = set()
    for path in experiments:
        used |= {name for name in resolved(path, snapshot="fd1eeabb").presets if name.startswith("primus/configs/")}
    [store] = presets._STORES.values()
    assert store.parses <= len(used) + 2 + 3  # two platforms, and three experiments that others extend
    assert len(used) > 120


def test_nothing_but_experiments_is_taken_for_one(corpus: Path) -> None:
    others = [path for path in corpus.rglob("*.y*ml") if "examples" not in path.parts and "tests" not in path.parts]
    assert len(others) > 170
    assert [path for path in others if resolved(path).is_recipe] == []
    recipes = [path for path in corpus.rglob("*.yaml") if resolved(path).is_recipe]
    assert len(recipes) == 355


def test_no_false_alarm_but_the_template(experiments: list[Path]) -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    for path in experiments:
        document = resolved(path)
        if document.is_recipe and not path.name.endswith(".template.yaml"):
            counts.update((problem.code, problem.fatal) for problem in document.problems)
    assert dict(counts) == {("bases-not-read", False): 15, ("section-replaced", False): 2}


def test_d06_bases(corpus: Path, experiments: list[Path]) -> None:
    with open(corpus.parent / "primus-labels" / "known-defects.csv", newline="") as file:
        labelled = {row["file"] for row in csv.DictReader(file) if row["id"] == "D06"}
    found, users = set(), 0
    for path in experiments:
        problems = [problem for problem in resolved(path).problems if problem.code == "bases-not-read"]
        users += bool(problems)
        for problem in problems:
            preset = Path(problem.path)
            assert preset.read_text().splitlines()[problem.line - 1].startswith("bases:")
            found.add(preset.relative_to(corpus).as_posix())
    assert found == labelled  # 7 presets
    assert users == 15


def test_d04_layout_and_mtp_come_from_two_files(corpus: Path) -> None:
    section = resolved(corpus / "examples/megatron/configs/MI355X/deepseek_v3-BF16-pretrain.yaml").sections[0]
    layout, depth = section.values["pipeline_model_parallel_layout"], section.values["mtp_num_layers"]
    assert layout.origin.layer == "experiment" and "m" not in str(layout.value)
    assert (depth.value, depth.origin.layer) == (1, "model-preset")


def test_d07_settings_at_the_wrong_level(corpus: Path) -> None:
    document = resolved(corpus / "examples/megatron/configs/MI355X/llama3_8B-BF16-lora-sft.yaml")
    stray = {"lr", "min_lr", "lr_warmup_iters", "train_iters", "global_batch_size", "micro_batch_size"}
    assert stray <= set(document.top_level)
    assert "lora.dim" in document.top_level
    section = document.sections[0]
    assert [section.get(key) for key in ("lr", "micro_batch_size", "global_batch_size", "train_iters")] == [
        1e-5, 1, 128, 20,
    ]  # fmt: skip
    assert document.top_level["train_iters"].value == 500


def test_d08_d09_blocks_at_top_level(corpus: Path) -> None:
    with open(corpus.parent / "primus-labels" / "known-defects.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"] in ("D08", "D09")]
    assert rows
    for row in rows:
        document = resolved(corpus / row["file"])
        blocks = {key.split(".")[0] for key in document.top_level}
        assert blocks & {"peft", "model"}, row


@pytest.mark.parametrize("folder", ["MI300X", "MI355X"])
def test_d10_shadowed_precision(corpus: Path, folder: str) -> None:
    [path] = (corpus / "examples/megatron/configs" / folder).rglob("flux_535m_pretrain_fp8.yaml")
    value = resolved(path).sections[0].values["fp8"]
    assert value.value is None
    assert [(o.layer, o.value) for o in value.origins[:2]] == [("module-preset", None), ("model-preset", "e4m3")]
    assert value.origins[1].note == SHADOWED
    assert (value.origins[1].path or "").endswith("flux_535m_fp8.yaml")


def test_read_dispatches(experiments: list[Path], goldens: list[Path]) -> None:
    assert read(str(experiments[0])).format == "primus"
    assert read(str(goldens[0])).format == "megatron-yaml"
