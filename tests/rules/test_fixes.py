"""Every fix that is offered makes its finding vanish and brings no new error: on examples and on labelled recipes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.rules.fixes import SHARED, example_failures, labelled_failures


def test_fixes_of_the_examples() -> None:
    counts: Counter[str] = Counter()
    assert example_failures(counts) == []
    assert counts["fixes"] > 200
    assert counts["raw"] - counts["fixes"] <= 0.03 * counts["raw"]  # on its own example a fix nearly always works


@pytest.mark.skipif(not (SHARED / "legality").is_dir(), reason="../shared/legality is absent: no labelled recipes")
def test_fixes_of_labelled_recipes() -> None:
    counts: Counter[str] = Counter()
    assert labelled_failures(SHARED / "legality" / "labelled.jsonl", counts, every=5) == []
    assert counts["fixes"] > 0.9 * counts["raw"] > 200  # few are withheld
