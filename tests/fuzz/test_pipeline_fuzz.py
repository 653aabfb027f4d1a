"""A few hundred hostile files through the whole pipeline (the long run: `python -m tests.fuzz.run`)."""

from __future__ import annotations

from primus_lint.pipeline import Options
from tests.fuzz.mutate import mutated
from tests.fuzz.run import files, survive


def test_hostile_files_never_raise() -> None:
    targets = [Options(), Options(nodes=1), Options(gpu="mi355x", nodes=4)]
    failures = [
        failure
        for number, (name, data) in enumerate(mutated(files([]), count=300, seed=7))
        if (failure := survive(name, data, targets[number % 3])) is not None
    ]
    assert failures == []
