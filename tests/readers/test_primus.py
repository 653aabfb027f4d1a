"""Presets, extends, siblings, flattened exports, command line: rules 1-10 of section 1 of the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from primus_lint.readers import read
from primus_lint.readers.document import LAYERS, LocatedProblem, ResolvedDocument
from primus_lint.readers.merge import SHADOWED

Resolve = Callable[..., ResolvedDocument]
HEAD = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\n"
MODULE = "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    model: llama3_8B.yaml\n"


def codes(document: ResolvedDocument) -> list[str]:
    return [problem.code for problem in document.problems]


def only(document: ResolvedDocument, code: str) -> LocatedProblem:
    found = [problem for problem in document.problems if problem.code == code]
    assert len(found) == 1, document.problems
    return found[0]


def at(document: ResolvedDocument, problem: LocatedProblem) -> str:
    """The text that a problem points at."""
    assert problem.span is not None
    source = document.sources[problem.path]
    assert source.position(problem.span[0]) == (problem.line, problem.column)
    return source.text[slice(*problem.span)]


def test_module_preset_shadows_the_model_preset(overrides: Resolve) -> None:
    document = overrides("train_iters: 5")
    section = document.sections[0]
    values = {key: value.value for key, value in section.values.items()}
    assert values == {
        "lr": 2.0e-05, "fp8": None, "seq_length": 1024, "metrics.log_freq": 1, "metrics.enable_wandb": False,
        "train_iters": 5, "trainable": False, "num_layers": 32, "hidden_size": 4096,
    }  # fmt: skip
    assert document.problems == []
    fp8 = section.values["fp8"]
    assert [(origin.layer, origin.value) for origin in fp8.origins] == [
        ("module-preset", None),
        ("model-preset", "e4m3"),
    ]
    assert fp8.origins[1].note == SHADOWED and fp8.origins[0].note == ""
    assert fp8.origins[1].path is not None and fp8.origins[1].path.endswith("models/megatron/llama3_8B.yaml")
    # a section counts as one key: the model preset's metrics.color never arrives
    assert [value.value for value in section.dropped.values()] == ["red"]
    assert list(section.dropped) == ["metrics.color"]
    assert section.dropped["metrics.color"].origin.note == SHADOWED


def test_the_whole_chain_of_a_value(overrides: Resolve) -> None:
    document = overrides("num_layers: 4\nlr: 3", set_values=[("num_layers", "2")])
    section = document.sections[0]
    layers = section.values["num_layers"]
    assert [(o.layer, o.value) for o in layers.origins] == [
        ("cli", 2), ("experiment", 4), ("model-preset", 32), ("model-preset", 24),
    ]  # fmt: skip
    assert [o.path and Path(o.path).name for o in layers.origins] == [
        "<command line>", "exp.yaml", "llama3_8B.yaml", "shape.yaml",
    ]  # fmt: skip
    assert [o.value for o in section.values["lr"].origins] == [3, 2.0e-05, 1.0]
    for value in section.values.values():
        assert value.value == value.origins[0].value
        for origin in value.origins:
            assert origin.layer in LAYERS
            if origin.layer == "cli":
                continue
            source = document.sources[origin.path or ""]
            assert origin.span is not None and origin.key_span is not None
            assert source.text[slice(*origin.key_span)] == origin.key_path[-1]
            assert source.position(origin.span[0]) == (origin.line, origin.column)
    assert section.values["num_layers"].origins[1].key_path == ("modules", "pre_trainer", "overrides", "num_layers")


def test_section_facts(overrides: Resolve) -> None:
    document = overrides("lr: 1")
    section = document.sections[0]
    assert (section.name, section.framework, section.model, section.module_preset) == (
        "pre_trainer", "megatron", "llama3_8B", "pre_trainer",
    )  # fmt: skip
    assert section.node_path == ("modules", "pre_trainer", "overrides")
    assert {key: value.value for key, value in section.meta.items()} == {
        "framework": "megatron", "config": "pre_trainer.yaml", "model": "llama3_8B.yaml",
    }  # fmt: skip
    assert [Path(path).name for path in document.presets] == [
        "pre_trainer.yaml",
        "base.yaml",
        "llama3_8B.yaml",
        "shape.yaml",
    ]
    assert document.top_level["work_group"].value == "a"
    assert document.is_recipe and not document.fatal and document.format == "primus"


def test_model_from_the_environment(resolve: Resolve, checkout: Path) -> None:
    (checkout / "primus/configs/models/megatron/tiny.yaml").write_text("num_layers: 1\n")
    text = HEAD + MODULE.replace("llama3_8B.yaml", "${PRIMUS_MODEL:llama3_8B}.yaml")
    assert resolve(text).sections[0].get("num_layers") == 32
    document = resolve(text, env={"PRIMUS_MODEL": "tiny"})
    assert document.sections[0].get("num_layers") == 1
    assert document.sections[0].model == "tiny"
    assert resolve(text, model="tiny").sections[0].get("num_layers") == 1


def test_overrides_replace_lists_and_merge_sections(overrides: Resolve) -> None:
    document = overrides("metrics: {log_freq: 5, more: [1]}\nlist: [1, {a: 2}]\nempty: {}")
    values = document.sections[0].values
    assert values["metrics.log_freq"].value == 5
    assert values["metrics.enable_wandb"].value is False
    assert values["metrics.more"].value == [1]
    assert values["list"].value == [1, {"a": 2}]
    assert values["empty"].value == {}


def test_a_null_section_wipes_it_out_and_says_so(overrides: Resolve) -> None:
    document = overrides("metrics: null")
    values = document.sections[0].values
    assert values["metrics"].value is None
    assert not [key for key in values if key.startswith("metrics.")]
    problem = only(document, "section-replaced")
    assert not problem.fatal and "2 keys" in problem.message and at(document, problem) == "null"


def test_a_section_over_a_scalar(overrides: Resolve) -> None:
    assert overrides("lr: {start: 1}").sections[0].get("lr.start") == 1


def test_dotted_key_in_overrides(overrides: Resolve) -> None:
    document = overrides("metrics.log_freq: 7\nnested: {a.b: 1}")
    values = document.sections[0].values
    assert values["metrics.log_freq"].value == 1  # nothing reads the dotted key
    assert [problem.code for problem in document.problems] == ["dotted-key", "dotted-key"]
    assert [at(document, problem) for problem in document.problems] == ["metrics.log_freq", "a.b"]


def test_keys_beside_overrides(resolve: Resolve) -> None:
    text = (
        HEAD + MODULE + "    trainer_class: X\n    lr: 9\n    num_layers: 7\n    _private: 1\n    overrides: {a: 1}\n"
    )
    document = resolve(text)
    values = document.sections[0].values
    assert values["trainer_class"].value == "X"
    assert values["lr"].value == 2.0e-05  # the module preset has it: no effect
    assert values["num_layers"].value == 7  # only the model preset has it: kept
    assert [o.layer for o in values["num_layers"].origins] == ["experiment", "model-preset", "model-preset"]
    assert "_private" not in values
    problem = only(document, "sibling-key-ignored")
    assert not problem.fatal and at(document, problem) == "lr"


def test_extends_inside_a_module_is_an_ordinary_key(resolve: Resolve) -> None:
    document = resolve(HEAD + MODULE + "    extends: [x.yaml]\n")
    assert at(document, only(document, "nested-extends")) == "extends"
    assert document.sections[0].get("extends") == ["x.yaml"]


def test_already_flattened_module(resolve: Resolve) -> None:
    text = (
        HEAD
        + "modules:\n  pre_trainer:\n    framework: megatron\n    model: llama3_8B.yaml\n    lr: 1\n    m: {a: 2}\n"
    )
    document = resolve(text)
    assert document.format == "primus-export"
    section = document.sections[0]
    assert {key: value.value for key, value in section.values.items()} == {"lr": 1, "m.a": 2}
    assert section.node_path == ("modules", "pre_trainer")
    assert document.presets == [] and document.problems == []
    neither = resolve(HEAD + "modules:\n  post_trainer:\n    framework: megatron\n    lr: 1\n")
    assert {key: value.value for key, value in neither.sections[0].values.items()} == {"lr": 1}


def test_overrides_without_config_have_no_effect(resolve: Resolve) -> None:
    document = resolve(
        HEAD + "modules:\n  pre_trainer:\n    framework: megatron\n    model: x\n    overrides: {lr: 1}\n"
    )
    assert at(document, only(document, "overrides-ignored")) == "overrides"
    assert document.sections[0].values == {}


def test_config_without_model_is_fatal(resolve: Resolve) -> None:
    document = resolve(HEAD + "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer\n")
    assert only(document, "missing-model").fatal


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../../../etc/passwd", "preset-escape"),
        ("/etc/passwd", "preset-escape"),
        ("../../../../x", "preset-escape"),
        ("llama3_8b", "preset-missing"),
        ("[1]", "preset-name-type"),
        ("${A:8}", "preset-name-type"),
        ("null", "preset-name-type"),
    ],
)
def test_presets_that_cannot_be_had(resolve: Resolve, name: str, code: str) -> None:
    document = resolve(HEAD + MODULE.replace("llama3_8B.yaml", name))
    problem = only(document, code)
    assert problem.fatal and at(document, problem) == name
    if code == "preset-missing":
        assert "llama3_8B.yaml" in problem.message  # the nearest, although the case differs


def test_a_preset_of_another_framework_is_within_bounds(resolve: Resolve, checkout: Path) -> None:
    path = checkout / "primus/configs/models/torchtitan/x.yaml"
    path.parent.mkdir()
    path.write_text("num_layers: 3\n")
    document = resolve(HEAD + MODULE.replace("llama3_8B.yaml", "../torchtitan/x"))
    assert document.sections[0].get("num_layers") == 3


def test_unknown_framework(resolve: Resolve) -> None:
    document = resolve(HEAD + MODULE.replace("megatron", "megatronn"))
    problem = only(document, "preset-missing")
    assert at(document, problem) == "megatronn" and problem.message.endswith("did you mean megatron?")


@pytest.mark.parametrize(
    ("modules", "code"),
    [
        ("  evaluator:\n    framework: megatron\n  pre_trainer: {framework: megatron}\n", "module-name"),
        ("  pre_trainer: null\n", "module-type"),
        ("  pre_trainer: {config: x}\n", "missing-framework"),
        (
            "  pre_trainer: {framework: megatron, config: pre_trainer, model: llama3_8B, overrides: 3}\n",
            "overrides-type",
        ),
    ],
)
def test_modules_that_primus_refuses(resolve: Resolve, modules: str, code: str) -> None:
    assert only(resolve(HEAD + "modules:\n" + modules), code).fatal


def test_required_keys(resolve: Resolve) -> None:
    document = resolve("work_group: a\nexp_name: c\n" + MODULE)
    assert codes(document) == ["missing-required-key"] * 2
    assert document.fatal


def test_non_string_key_stops_primus(overrides: Resolve) -> None:
    document = overrides("on: 1\n3: x\nlist: [{yes: 1}]")
    assert codes(document) == ["non-string-key"] * 3
    assert [at(document, problem) for problem in document.problems] == ["on", "3", "yes"]
    assert document.fatal


def test_the_last_of_a_duplicate_key_wins(overrides: Resolve) -> None:
    document = overrides("lr: 1\nlr: 2")
    assert document.sections[0].get("lr") == 2
    assert codes(document) == ["duplicate-key"]


def test_merge_keys_and_anchors(overrides: Resolve) -> None:
    document = overrides("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}")
    assert {key: document.sections[0].get(key) for key in ("b.p", "b.q")} == {"b.p": 1, "b.q": 3}


# extends ------------------------------------------------------------------------------------------------------------


def test_extends_merges_parents_in_order(resolve: Resolve, checkout: Path) -> None:
    (checkout / "one.yaml").write_text(
        HEAD + MODULE + "    overrides: {a: 1, b: 1, c: 1, s: {x: 1, y: 1}, l: [1, 2]}\n"
    )
    (checkout / "two.yaml").write_text("modules: {pre_trainer: {overrides: {b: 2, c: 2, s: {y: 2}}}}\n")
    document = resolve("extends: [one.yaml, two.yaml]\nmodules: {pre_trainer: {overrides: {c: 3, l: [3]}}}\n")
    assert document.problems == []
    section = document.sections[0]
    assert {key: section.get(key) for key in ("a", "b", "c", "s.x", "s.y", "l")} == {
        "a": 1, "b": 2, "c": 3, "s.x": 1, "s.y": 2, "l": [3],
    }  # fmt: skip
    assert [(o.layer, o.value, Path(o.path or "").name) for o in section.values["c"].origins] == [
        ("experiment", 3, "exp.yaml"), ("extends", 2, "two.yaml"), ("extends", 1, "one.yaml"),
    ]  # fmt: skip
    assert section.framework == "megatron"
    assert [Path(path).name for path in document.presets][:2] == ["one.yaml", "two.yaml"]


def test_extends_is_recursive_takes_a_scalar_and_variables(resolve: Resolve, checkout: Path) -> None:
    (checkout / "sub").mkdir()
    (checkout / "sub/mid.yaml").write_text("extends: ../top.yaml\nmodules: {pre_trainer: {overrides: {b: 2}}}\n")
    (checkout / "top.yaml").write_text(HEAD + MODULE + "    overrides: {a: 1, b: 1}\n")
    document = resolve("extends: sub/${NAME:mid}.yaml\n")
    assert (document.sections[0].get("a"), document.sections[0].get("b")) == (1, 2)
    assert document.problems == []


def test_extends_goes_in_a_circle(resolve: Resolve, checkout: Path) -> None:
    (checkout / "b.yaml").write_text("extends: [exp.yaml]\nworkspace: x\n")
    document = resolve(HEAD + "extends: [b.yaml]\n" + MODULE)
    problem = only(document, "extends-cycle")
    assert problem.fatal and Path(problem.path).name == "b.yaml"
    assert "exp.yaml -> b.yaml -> exp.yaml" in problem.message
    itself = resolve(HEAD + "extends: me.yaml\n" + MODULE, name="me.yaml")
    assert only(itself, "extends-cycle").fatal


def test_extends_of_a_missing_file_names_the_nearest(resolve: Resolve, checkout: Path) -> None:
    (checkout / "parent.yaml").write_text(HEAD)
    document = resolve(HEAD + "extends:\n  - parents.yaml\n" + MODULE)
    problem = only(document, "extends-missing")
    assert problem.fatal and "parent.yaml" in problem.message and problem.line == 6


@pytest.mark.parametrize("written", ["null", "{a: b}", "[1]", "3"])
def test_extends_of_a_wrong_type(resolve: Resolve, written: str) -> None:
    assert only(resolve(HEAD + f"extends: {written}\n" + MODULE), "extends-type").fatal


def test_bases_is_not_read_here_nor_in_presets(resolve: Resolve, checkout: Path) -> None:
    (checkout / "primus/configs/models/megatron/llama3_8B.yaml").write_text("a: 1\nbases:\n  - shape.yaml\n")
    document = resolve(HEAD + "bases: [x.yaml]\n" + MODULE)
    mine, preset = (problem for problem in document.problems if problem.code == "bases-not-read")
    assert at(document, mine) == "bases" and "x.yaml" in mine.message
    assert at(document, preset) == "bases" and "shape.yaml" in preset.message
    assert Path(preset.path).name == "llama3_8B.yaml" and preset.line == 2
    assert document.sections[0].get("num_layers") is None
    assert not document.fatal


def test_problems_of_a_preset_lie_in_the_preset(resolve: Resolve, checkout: Path) -> None:
    (checkout / "primus/configs/models/megatron/shape.yaml").write_text("num_layers: 24\nhidden: ${HIDDEN}\non: 1\n")
    document = resolve(HEAD + MODULE)
    assert {(problem.code, Path(problem.path).name, problem.line) for problem in document.problems} == {
        ("unset-variable", "shape.yaml", 2), ("non-string-key", "shape.yaml", 3),
    }  # fmt: skip
    assert document.fatal


def test_an_empty_preset_is_an_error(resolve: Resolve, checkout: Path) -> None:
    (checkout / "primus/configs/models/megatron/shape.yaml").write_text("# nothing\n")
    assert resolve(HEAD + MODULE).fatal


# platform -----------------------------------------------------------------------------------------------------------


def test_platform(resolve: Resolve) -> None:
    assert resolve(HEAD + "platform: {config: platform_azure.yaml}\n" + MODULE).problems == []
    assert only(resolve(HEAD + "platform: {config: platform_x.yaml}\n" + MODULE), "preset-missing").fatal
    assert only(resolve(HEAD + "platform: {overrides: {}}\n" + MODULE), "platform-type").fatal


# command line -------------------------------------------------------------------------------------------------------


def test_set_values_are_yaml_scalars_and_nest(overrides: Resolve) -> None:
    document = overrides(
        "metrics: {log_freq: 2}",
        set_values=[("metrics.log_freq", "3"), ("new.a.b", "yes"), ("lr", "1.0e-5"), ("l", "[1, x]"), ("n", "null")],
    )
    section = document.sections[0]
    assert [section.get(key) for key in ("metrics.log_freq", "new.a.b", "lr", "l", "n")] == [
        3,
        True,
        1e-5,
        [1, "x"],
        None,
    ]
    assert section.get("metrics.enable_wandb") is False
    assert [o.layer for o in section.values["metrics.log_freq"].origins] == ["cli", "experiment", "module-preset"]
    assert document.problems == []


def test_set_of_1e_5_is_text_and_says_so(overrides: Resolve) -> None:
    document = overrides("a: 1", set_values=[("lr", "1e-5")])
    assert document.sections[0].get("lr") == "1e-5"
    problem = only(document, "set-number-as-text")
    assert "1.0e-5" in problem.message and not problem.fatal


def test_words_of_primus_own_command_line(overrides: Resolve) -> None:
    document = overrides("a: 1", cli_words=["--lr", "1e-5", "--tensor_model_parallel_size=4", "x.y=2.5", "--flag"])
    section = document.sections[0]
    assert [section.get(key) for key in ("lr", "tensor_model_parallel_size", "x.y", "flag")] == ["1e-5", 4, 2.5, True]


# what is no recipe --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["a: 1\n", "- 1\n", "3\n", "", "# only\n", "modules:\n  http_2xx: {prober: http}\n", "modules: [a]\n",
     "extends: [nothing.yaml]\nrules: {}\n", "modules: {}\n"],
)  # fmt: skip
def test_other_yaml_is_no_recipe(resolve: Resolve, text: str) -> None:
    assert not resolve(text).is_recipe


def test_an_unreadable_recipe_is_one(resolve: Resolve) -> None:
    document = resolve(HEAD + "modules:\n  pre_trainer: {\n")
    assert document.is_recipe and document.fatal
    assert not resolve("a: {\n").is_recipe


def test_a_child_whose_parent_is_missing_is_one(resolve: Resolve) -> None:
    """What the file lacks may stand in the parent: only the parent is missing."""
    for text in ("exp_name: x\n", "exp_name: x\nmodules:\n  pre_trainer: {overrides: {lr: 1.0}}\n"):
        document = resolve("extends: [gone.yaml]\n" + text)
        assert document.is_recipe and only(document, "extends-missing").fatal
        assert len(document.problems) == 1


def test_a_checkout_that_is_none(overrides: Resolve, tmp_path: Path) -> None:
    document = overrides("a: 1", primus_root=str(tmp_path / "nowhere"))
    assert only(document, "primus-root").fatal
    assert "snapshot" in document.preset_source


def test_a_changed_preset_is_read_again(resolve: Resolve, checkout: Path) -> None:
    text = HEAD + MODULE
    assert resolve(text).sections[0].get("hidden_size") == 4096
    (checkout / "primus/configs/models/megatron/shape.yaml").write_text("num_layers: 24\nhidden_size: 81920\n")
    assert resolve(text).sections[0].get("hidden_size") == 81920


def test_paths_are_as_the_file_was_named(resolve: Resolve, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(HEAD + MODULE, name="sub/exp.yaml")
    for folder, name, first in [
        (checkout, "sub/exp.yaml", "primus/configs/modules/megatron/pre_trainer.yaml"),
        (checkout / "sub", "exp.yaml", "../primus/configs/modules/megatron/pre_trainer.yaml"),
    ]:
        monkeypatch.chdir(folder)
        document = read(name)
        assert document.presets[0] == first and not document.fatal
        assert set(document.presets) <= set(document.sources)
