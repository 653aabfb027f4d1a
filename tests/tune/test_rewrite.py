"""Where new keys go in a file: beside their relatives, also beside those that are new themselves."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from primus_lint.pipeline import Options, check_source
from primus_lint.readers.document import Section
from primus_lint.rules.finding import Change
from primus_lint.source.rewrite import Edited
from primus_lint.source.text import SourceText
from primus_lint.tune.rewrite import RELATIVES, rewrite

PRIMUS = """\
work_group: amd
user_name: root
exp_name: x
workspace: ./output
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides:
      train_iters: 50
      # parallel
      tensor_model_parallel_size: 2 # ranks
      # data
      mock_data: true
"""
FLAGS = """\
MODEL_ARGS:
  --num-layers: 32
  --tensor-model-parallel-size: 2 # ranks
  --bf16: true
"""
WANTED = {
    "context_parallel_size": 2, "cp_comm_type": "a2a", "use_distributed_optimizer": True, "overlap_grad_reduce": True,
    "overlap_param_gather": True,
}  # fmt: skip


@pytest.mark.parametrize("text", [PRIMUS, FLAGS])
def test_new_keys_stand_together_in_the_order_of_a_person(text: str) -> None:
    document = check_source(SourceText.from_bytes("x.yaml", text.encode()), Options()).document
    for keys in itertools.islice(itertools.permutations(WANTED), 0, None, 17):
        changes = [Change("set", key, WANTED[key]) for key in keys]
        edited = rewrite(changes, document.sections[0], document)
        assert isinstance(edited, Edited)
        lines = [line.strip(" -").partition(":")[0].replace("-", "_") for line in edited.text.splitlines()]
        at = lines.index("tensor_model_parallel_size")
        assert lines[at + 1 : at + 1 + len(WANTED)] == list(WANTED), edited.text
        assert "# ranks" in edited.text and all(line in edited.text for line in text.splitlines())


def test_relatives_are_keys_that_can_stand_in_a_file() -> None:
    for key, relatives in RELATIVES.items():
        assert relatives and key not in relatives and len(set(relatives)) == len(relatives)


@pytest.mark.parametrize("child", ["", "modules:\n  pre_trainer:\n", "modules:\n  pre_trainer:\n    overrides: {}\n"])
def test_a_file_that_only_extends_gets_the_mappings_that_it_lacks(child: str, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(PRIMUS)
    text = "extends: [base.yaml]\n" + child
    if child.endswith("pre_trainer:\n"):
        text += "    exp_note: x\n"
    document = check_source(SourceText.from_bytes(str(tmp_path / "x.yaml"), text.encode()), Options()).document
    edited = rewrite([Change("set", key, WANTED[key]) for key in WANTED], document.sections[0], document)
    assert isinstance(edited, Edited), edited
    assert yaml.safe_load(edited.text)["modules"]["pre_trainer"]["overrides"] == WANTED
    assert edited.text.startswith("extends: [base.yaml]\nmodules:\n  pre_trainer:\n")
    assert "    overrides:\n      " in edited.text


def test_an_empty_overrides_that_wipes_the_parents_is_said_and_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(PRIMUS)
    text = "extends: [base.yaml]\nmodules:\n  pre_trainer:\n    overrides:\n"
    checked = check_source(SourceText.from_bytes(str(tmp_path / "x.yaml"), text.encode()), Options())
    found = [finding for finding in checked.findings if finding.name == "section-replaced"]
    assert [finding.place.line for finding in found] == [4]
    assert "3 keys are lost" in found[0].message
    document = checked.document
    assert "tensor_model_parallel_size" not in overridden(document.sections[0])
    result = rewrite([Change("set", "context_parallel_size", 2)], document.sections[0], document)
    assert isinstance(result, str) and "is null here" in result


def overridden(section: Section) -> set[str]:
    """Keys that an experiment file sets."""
    layers = ("experiment", "extends")
    return {key for key, value in section.values.items() if value.origin.layer in layers}
