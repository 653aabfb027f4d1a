"""What the scatter between measured runs leaves to any projection, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.validation.goldens import ceilings, most_within


def test_the_most_values_that_one_number_is_near() -> None:
    assert most_within([1000, 1001, 1003, 1100], 0.001) == 2  # 1001.0 is 0.1 % above 1000, 1003 too far
    assert most_within([1000, 1001, 1002], 0.001) == 3  # 1001 is near both ends
    assert most_within([500], 0.001) == 1


def test_ceilings_of_groups() -> None:
    def entry(run: str, steady: int, case: str = "a") -> dict[str, Any]:
        return {"case": case, "platform": "a100", "run": run, "steady": steady, "steady_error": 1000 / steady - 1}

    rows = [
        entry("dev_dgx_a100", 1000), entry("lts_dgx_a100", 1000), entry("lts_dgx_a100_2nd", 1100),
        entry("lts_dgxa100_dracooci", 1200), entry("dev_dgx_a100", 7, case="alone"),
    ]  # fmt: skip
    nothing, account, environment = ceilings(rows)
    # two of the four runs of a agree; the fifth is alone and counts
    assert nothing["groups"] == 2 and nothing["reachable"] == pytest.approx(3 / 5)
    assert nothing["runs_with_others"] == 4 and nothing["reachable_with_others"] == 0.5 and nothing["ours"] == 0.5
    assert nothing["another_run"] == pytest.approx(2 * (1 / 3) / 4)
    # the resumed and the oldest are told apart: the two that are left agree
    assert account["groups"] == 4 and account["reachable"] == 1 and account["another_run"] == 1
    assert environment["groups"] == 5 and environment["runs_with_others"] == 0 and environment["another_run"] == 0
