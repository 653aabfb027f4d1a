"""Activations equal to what autograd keeps in the real modules, to the byte."""

from __future__ import annotations

import pytest

from tests.oracle.activation_cases import all_cases
from tests.oracle.ask import ask, why_not
from tests.oracle.compare import our_activations, their_activations
from tests.oracle.recipes import question

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
REASON = why_not()


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_every_case_is_equal_to_the_byte() -> None:
    cases = all_cases()
    names = list(cases)
    questions = [question("megatron_activations", args, world, 0, extra) for args, world, extra in cases.values()]
    wrong = []
    for name, answer in zip(names, ask(questions), strict=True):
        args, world, _ = cases[name]
        if "error" in answer:
            wrong.append(f"{name}: {answer['error']}")
            continue
        mine = our_activations(args, world)
        real = their_activations(answer["answer"], args["num_layers"], "last layer" in mine)
        if mine != real:
            wrong.append(f"{name}: ours {mine}, real {real}")
    assert not wrong, "\n".join(wrong)
