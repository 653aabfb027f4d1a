"""States (weights, buffers with padding, optimizer shards) equal to the real objects, to the byte."""

from __future__ import annotations

import pytest

from tests.oracle.ask import ask, why_not
from tests.oracle.compare import ours, theirs
from tests.oracle.grid import pairs
from tests.oracle.recipes import question

pytestmark = pytest.mark.oracle
REASON = why_not()


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_a_sample_of_pairs_is_equal_to_the_byte() -> None:
    """A quick sample; `python -m tests.validation oracle` asks for more than 500 pairs."""
    sample = pairs(24, seed=11)
    answers = ask([question("megatron_state", p.args, p.world, p.rank) for p in sample])
    wrong = []
    for pair, answer in zip(sample, answers, strict=True):
        if "error" in answer:
            wrong.append(f"{pair}: {answer['error']}")
        elif ours(pair) != theirs(answer["answer"]):
            wrong.append(f"{pair}: ours {ours(pair)}, real {theirs(answer['answer'])}")
    assert not wrong, "\n".join(wrong)
