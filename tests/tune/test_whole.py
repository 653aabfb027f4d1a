"""The tuner of TorchTitan recipes: every recipe of the space scored exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_lint.evaluate import subject_of
from primus_lint.pipeline import Options
from primus_lint.source.text import SourceText
from primus_lint.subject import Subject
from primus_lint.tune.fix import FixResult, fix_source
from primus_lint.tune.propose import Rules
from primus_lint.tune.what_if import with_changes
from primus_lint.tune.whole import GLOBAL, LOCAL, MODE, TP, space, whole

TEXT = """\
work_group: g
user_name: u
exp_name: e
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_70B.yaml
    overrides:
      training:
        local_batch_size: 8  # as on the larger machine
        seq_len: 8192
"""


def titan(world_size: int = 16, gpu: str = "mi300x", model: str = "llama3/8B", **args: Any) -> Subject:
    given = {"training.local_batch_size": 4, "training.seq_len": 8192, "compile.enable": True, **args}
    request = {
        "framework": "torchtitan", "model": model, "args": given, "env": None,
        "target": {"gpu": gpu, "world_size": world_size, "gpus_per_node": 8},
    }  # fmt: skip
    return subject_of(request)


def fixed(folder: Path, how: Rules) -> FixResult:
    options = Options()
    options.gpu, options.world_size, options.gpus_per_node = "mi300x", 16, 8
    return fix_source(SourceText.from_bytes(str(folder / "x.yaml"), TEXT.encode()), options, None, how)


def test_a_recipe_that_does_not_fit_is_rewritten(tmp_path: Path) -> None:
    result = fixed(tmp_path, Rules())
    assert result.before.subjects[0].fits is False and result.after.subjects[0].fits is True
    assert "# as on the larger machine" in result.source.text
    assert (
        result.after.subjects[0].lowered.namespace["gbs"] == result.before.subjects[0].lowered.namespace["gbs"] == 128
    )
    assert not [finding for finding in result.after.findings if finding.severity == "error"]


def test_what_is_kept_and_limited_is_not_touched(tmp_path: Path) -> None:
    result = fixed(tmp_path, Rules(keep=frozenset((LOCAL,))))
    assert result.candidate is not None and LOCAL not in result.candidate.changes
    result = fixed(tmp_path, Rules(keep=frozenset((TP,)), limits={MODE: ("full",)}))
    assert result.candidate is not None and TP not in result.candidate.changes
    assert result.candidate.changes[MODE] == "full"


@pytest.mark.parametrize("world_size", [8, 16])
def test_the_space_trains_the_same(world_size: int) -> None:
    """Every recipe of it has the recipe's global batch, and stands in it once."""
    subject = titan(world_size, model="qwen3/30B-A3B", **{"parallelism.expert_parallel_degree": 8})
    total = subject.lowered.namespace["gbs"]
    names = set()
    for changes in space(subject, Rules()):
        names.add(repr(sorted(changes.items())))
        assert with_changes(subject, changes).lowered.namespace["gbs"] == total, changes
        assert changes.get(GLOBAL, total) == total
    assert "[]" in names and len(names) > 100


def test_nothing_of_the_space_beats_the_winner() -> None:
    """Scored by other hands: `check` of each changed recipe."""
    subject = titan(8, "h100", **{"training.local_batch_size": 1})
    best = whole(subject, Rules()).best[0]
    accelerator = subject.accelerator
    assert accelerator is not None
    for changes in space(subject, Rules()):
        other = with_changes(subject, changes)
        errors = [finding for finding in other.conditions if finding.severity == "error"]
        if errors or other.ledger is None or other.projection is None:
            continue
        if other.ledger.fits(accelerator.visible_hbm_bytes) is True:
            assert float(other.projection.iteration_s) > best.iteration_s * (1 - 0.0101), changes


def test_counts_add_up() -> None:
    certificate = whole(titan(), Rules()).certificate
    assert certificate.space == certificate.fitting + sum(certificate.removed.values())
    assert certificate.complete
