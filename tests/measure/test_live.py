"""The method end to end on this machine: measured in one process, projected for two, trained by two (see `live`)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `measure`)")

from . import live


def test_all_ways_train_the_same_model(tmp_path: Path) -> None:
    """The truth side: data, tensor and pipeline parallel runs lose what one process loses, step by step."""
    losses = [live.train(way, 2, tmp_path / "none")["losses"] for way in ("one", *live.KINDS)]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.slow
def test_projected_steps_meet_trained_ones() -> None:
    """Within 30 % each, on a machine that does other things as well; `python -m tests.measure.live` gives the figures."""
    found = live.repetition(steps=3, seconds=0.5)
    errors = {way: found["rows"][way]["error"] for way in ("one", *live.KINDS)}
    assert all(abs(error) < 0.3 for error in errors.values()), errors
    assert all(found["rows"][way]["source"] == "measured" for way in errors)
    assert found["rows"]["tp carried"]["source"] == "mixed"
