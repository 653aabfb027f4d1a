"""States (weights, buffers with padding, optimizer shards) equal to the real objects, to the byte."""

from __future__ import annotations

import pytest

from tests.oracle.ask import ask, why_not
from tests.oracle.compare import ours, theirs
from tests.oracle.grid import Pair, pairs
from tests.oracle.recipes import MODELS, question

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


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_moments_in_fp8_have_an_inverse_scale_each() -> None:
    """Of every piece of a parameter that the rank owns: 4 bytes inside the tensor."""
    sample = [pair for pair in pairs(60, seed=11) if pair.args.get("use_precision_aware_optimizer")]
    sample = [
        Pair({**pair.args, "exp_avg_dtype": "fp8", "exp_avg_sq_dtype": second}, pair.world, pair.rank)
        for pair, second in zip(sample, ("fp8", "bf16", "fp8", "fp8", "fp32", "fp8"), strict=False)
    ]
    answers = ask([question("megatron_state", p.args, p.world, p.rank) for p in sample])
    assert len(sample) >= 4
    for pair, answer in zip(sample, answers, strict=True):
        assert ours(pair) == theirs(answer["answer"])


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
@pytest.mark.parametrize("rank", [2, 3])
def test_the_final_norm_of_a_model_with_no_mtp_layers_stays_with_the_last_decoder_layer(rank: int) -> None:
    """`mtp_num_layers: 0` is not None to Megatron: a last stage without decoder layers has no final norm."""
    layout = {"pipeline_model_parallel_size": 4, "pipeline_model_parallel_layout": "Et|t|tt|L", "mtp_num_layers": 0}
    pair = Pair({**MODELS["toy"], **layout}, 4, rank)
    [answer] = ask([question("megatron_state", pair.args, pair.world, pair.rank)])
    assert ours(pair) == theirs(answer["answer"])
