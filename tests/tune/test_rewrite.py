"""Where new keys go in a file: beside their relatives, also beside those that are new themselves."""

from __future__ import annotations

import itertools

import pytest

from primus_lint.pipeline import Options, check_source
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
