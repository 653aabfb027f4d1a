"""Every real experiment that lowers is projected, or abstained with a reason; nothing is above the device."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from primus_lint.frameworks import subject_of
from primus_lint.hardware import accelerator
from primus_lint.ir.run import Target
from primus_lint.projection import project, why_not
from primus_lint.readers import read
from primus_lint.source.text import SourceText

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "primus" / "examples" / "megatron" / "configs"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="../shared/corpus is not at hand")


@pytest.mark.parametrize("gpu", ("MI300X", "MI355X"))
def test_every_megatron_experiment(gpu: str) -> None:
    found = accelerator(gpu)
    assert found is not None
    projected = 0
    for path in sorted((CORPUS / gpu).glob("*.yaml")):
        document = read(SourceText.from_path(path))
        for section in document.sections:
            if section.framework != "megatron":
                continue
            for world_size in (8, 32, 128):
                subject = subject_of(document, section, Target(found.name, world_size, 8), "d3528a21")
                run = subject.run
                if run is None or why_not(run) is not None:
                    continue
                projection = project(run, found)
                assert projection is not None
                numbers = [projection.iteration_s, projection.high_s, *projection.breakdown_s.values()]
                assert all(math.isfinite(number) for number in numbers), path.name
                projected += 1
                best = found.achievable_flops["bf16"] / found.peak_flops["bf16"]
                assert 0 < projection.mfu < best, (path.name, world_size)
    assert projected > 80
