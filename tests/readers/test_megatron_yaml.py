"""Megatron-LM's MODEL_ARGS files: flags become argument names and typed values, nothing is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_lint.readers import read
from primus_lint.readers.document import ResolvedDocument
from primus_lint.readers.tables import table
from primus_lint.source.text import SourceText

TEXT = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NCCL_ALGO: Ring
MODEL_ARGS:
  --num-layers: 8
  --hidden-size: 512
  --micro-batch-size: 2
  --micro-batch-size: 4
  --disable-bias-linear: true
  --no-rope-fusion: true
  --swiglu: true
  --norm-epsilon: 1e-6
  --lr-warmup-fraction: .01
  --moe-layer-freq: ([0]*3+[1]*5)
  --recompute-modules: "[layernorm mlp]"
  --cp-comm-type: p2p
  --num-attention-heads: ${HEADS}
  --data-path: ${DATA}/x
  --wandb-exp-name: "a b"
  --tensor-model-paralel-size: 2
  --DDP-impl: local
  --bf16: false
  --seq-length: [1, 2]
TEST_TYPE: regular
"""


def parse(text: str, **more: Any) -> ResolvedDocument:
    return read(SourceText.from_text("model_config.yaml", text), **more)


def test_values() -> None:
    document = parse(TEXT)
    section = document.sections[0]
    assert {key: value.value for key, value in section.values.items()} == {
        "num_layers": 8, "hidden_size": 512, "micro_batch_size": 4, "add_bias_linear": False, "apply_rope_fusion": False,
        "swiglu": True, "layernorm_epsilon": 1e-06, "lr_warmup_fraction": 0.01, "moe_layer_freq": "([0]*3+[1]*5)",
        "recompute_modules": ["layernorm", "mlp"], "cp_comm_type": ["p2p"], "data_path": ["${DATA}/x"],
        "wandb_exp_name": "a b",
    }  # fmt: skip
    assert (section.framework, section.node_path, document.format) == ("megatron", ("MODEL_ARGS",), "megatron-yaml")
    assert {name: value.value for name, value in document.env.items()} == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_ALGO": "Ring",
    }  # fmt: skip
    assert document.top_level["TEST_TYPE"].value == "regular"


def test_problems_have_places() -> None:
    document = parse(TEXT, version="d3528a21")
    source = document.source
    assert source is not None
    found = {}
    for problem in document.problems:
        assert problem.span is not None
        assert source.position(problem.span[0]) == (problem.line, problem.column) or problem.code != "flag-value"
        found[problem.code, source.text[slice(*problem.span)]] = problem.fatal
    assert found == {
        ("duplicate-key", "--micro-batch-size"): False,
        ("unknown-flag", "--tensor-model-paralel-size"): False,
        ("removed-flag", "--DDP-impl"): False,
        ("unset-variable", "${HEADS}"): True,
        ("flag-value", "false"): True,
        ("flag-value", "[1, 2]"): True,
    }
    [unknown] = [problem for problem in document.problems if problem.code == "unknown-flag"]
    assert "--tensor-model-parallel-size" in unknown.message


def test_origins() -> None:
    document = parse(TEXT, env={"HEADS": "8"})
    section = document.sections[0]
    assert section.get("num_attention_heads") == 8
    origin = section.values["layernorm_epsilon"].origin
    assert document.source is not None and origin.span is not None and origin.key_span is not None
    assert document.source.text[slice(*origin.span)] == origin.raw == "1e-6"
    assert document.source.text[slice(*origin.key_span)] == "--norm-epsilon"
    assert origin.key_path == ("MODEL_ARGS", "--norm-epsilon")
    assert [o.value for o in section.values["micro_batch_size"].origins] == [4, 2]


def test_a_flag_of_another_version_is_kept_and_reported() -> None:
    text = "MODEL_ARGS:\n  --moe-flex-dispatcher-num-sms: 8\n"
    old, new = parse(text, version="d3528a21"), parse(text, version="d98e8a64")
    assert old.sections[0].get("moe_flex_dispatcher_num_sms") == new.sections[0].get("moe_flex_dispatcher_num_sms") == 8
    assert [problem.code for problem in old.problems] == ["flag-not-in-version"]
    assert new.problems == []
    assert parse(text).problems == [] and parse(text).framework_version == "d98e8a64"  # nobody has said another
    assert parse(text + "  --use-legacy-models: true\n").framework_version is None
    assert parse(text + "  --DDP-impl: local\n").framework_version is None


def test_escapes_for_the_shell() -> None:
    text = "MODEL_ARGS:\n  --pipeline-model-parallel-layout: Et*3\\\\|\\\\(tt\\\\|\\\\)*6mL\n"
    assert parse(text).sections[0].get("pipeline_model_parallel_layout") == "Et*3|(tt|)*6mL"


def test_model_facts_lie_below_and_set_values_above() -> None:
    text = "MODEL_ARGS:\n  --num-layers: 4\n"
    document = parse(text, model="llama3.1_70B", set_values=[("hidden_size", "64")])
    section = document.sections[0]
    assert section.model == "llama3.1-70b"
    assert [(o.layer, o.value) for o in section.values["num_layers"].origins] == [
        ("experiment", 4),
        ("model-table", 80),
    ]
    assert [(o.layer, o.value) for o in section.values["hidden_size"].origins] == [("cli", 64), ("model-table", 8192)]
    unknown = parse(text, model="llama9")
    assert [problem.code for problem in unknown.problems] == ["unknown-model"]


def test_no_model_args() -> None:
    assert not parse("MODEL_ARGS: 3\n").is_recipe
    assert parse("MODEL_ARGS:\n  --a: [\n").is_recipe


def test_every_golden_is_read_without_loss(goldens: list[Path]) -> None:
    """Against a plain reading of the YAML: every flag of the file is a value or a named problem."""
    keys, extra = (table("megatron", "d98e8a64")[part] for part in ("keys", "extra"))
    by_flag = {
        flag: (key, facts, which)
        for part in (extra, keys)
        for key, facts in part.items()
        for which in ("flags", "flags_off")
        for flag in facts.get(which, ())
    }
    assert len(goldens) == 107
    flags = unknown = 0
    for path in goldens:
        document = read(str(path), version="d98e8a64")
        assert document.is_recipe and not document.fatal, (path, document.problems)
        loaded = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # every scalar as text
        values = document.sections[0].values
        expected: dict[str, Any] = {}
        strangers = set()
        for flag, text in loaded["MODEL_ARGS"].items():
            if flag not in by_flag:
                strangers.add(flag)
                continue
            key, facts, which = by_flag[flag]
            words = re.sub(r"^\[|\]$", "", text).split()
            if facts["type"] == "bool" and "nargs" not in facts:
                assert text == "true", (path, flag, text)
                expected[key] = which == "flags"
            else:
                convert = {"int": int, "float": float}.get(facts["type"], str)
                if facts["type"] == "int|list-text" and text.isdecimal():
                    convert = int
                expected[key] = [convert(word) for word in words] if "nargs" in facts else convert(text)
        assert {key: value.value for key, value in values.items()} == expected, path
        assert set(document.sections[0].own_flags) == strangers, path  # they ran: an extension's own, no mistakes
        assert not any(problem.code == "unknown-flag" for problem in document.problems)
        env = {name: value.value for name, value in document.env.items()}
        assert env == loaded["ENV_VARS"], path
        flags += len(loaded["MODEL_ARGS"])
        unknown += len(strangers)
    assert flags > 6000 and unknown == 24  # one case, of an extension of its own


@pytest.mark.parametrize(
    ("word", "env", "value"),
    [
        ("${EVERY:-8}", {}, 8),  # bash's default, not Primus's "-8"
        ("${EVERY:-8}", {"EVERY": "4"}, 4),
        ("${EVERY:-8}", {"EVERY": ""}, 8),
        ("${EVERY-8}", {}, 8),
        ("${EVERY:8}", {}, None),  # a substring of nothing: the launcher's `set -u` stops there
    ],
)
def test_variables_are_bash_s(word: str, env: dict[str, str], value: int | None) -> None:
    document = parse(f"MODEL_ARGS:\n  --num-layers: 2\n  --log-interval: {word}\n", env=env)
    assert document.sections[0].get("log_interval") == value
    assert [problem.code for problem in document.problems] == ([] if value else ["unset-variable"])
