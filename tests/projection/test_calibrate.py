"""What logs teach: as much of what a device really does as its runs can tell, and no more."""

from __future__ import annotations

import copy
import math
import random
from statistics import mean
from typing import Any

import pytest

from primus_lint.hardware.records import Accelerator, NodeType
from primus_lint.projection import Projection, cost, project
from primus_lint.projection.calibrate import NOTHING, RUN_SPREAD, Lesson, learn, lesson, model_of

from . import plain
from .recipes import run

BAND = 1.5  # of products and of collectives, on either side
STEP = math.log(BAND) / cost.BAND  # one standard deviation of either


def device(gemm: float = 1.0, band: float = BAND) -> Accelerator:
    """The plain device with products that take `gemm` times as long, known no better than within `band`."""
    rates = copy.deepcopy(plain.accelerator().rates)
    rates["gemm"]["bf16"].update(math=1 / gemm, band=[1 / band, band])
    return plain.accelerator(rates=rates)


def network(slower: float = 1.0) -> NodeType:
    """A node whose links are a quarter of the plain ones, known within BAND, and take `slower` times as long."""
    node = copy.deepcopy(plain.node(inside=plain.INSIDE / 4 / slower))
    node.curves["band"] = [1 / BAND, BAND]
    return node


def projected(recipe: Any, accelerator: Accelerator, node: NodeType, learned: Any = NOTHING) -> Projection:
    found = project(recipe, accelerator, node, learned=learned)
    assert found is not None
    return found


def taught(recipe: Any, **truth: float) -> Lesson:
    """What a run of the recipe says, on a device whose products or network take that many times as long."""
    real = projected(recipe, device(truth.get("gemm", 1.0)), network(truth.get("network", 1.0)))
    found = lesson(recipe, real.iteration_s, device(), network())
    assert found is not None
    return found


def factor(learned: Any, kind: str) -> float:
    """What a class with the band BAND takes over what was known before."""
    return math.exp(learned.offsets.get(kind, 0.0) * STEP)


COMPUTE_BOUND = run("llama3-8b", world_size=8, global_batch_size=1024)
COMMUNICATION_BOUND = run("llama3-8b", world_size=8, tensor_model_parallel_size=8, sequence_parallel=True)


def weights(**given: float) -> tuple[float, ...]:
    return tuple(given.get(kind, 0.0) for kind in cost.KINDS)


def test_one_run_is_shared_out_as_the_variances() -> None:
    """By hand: variances 0.12^2, 0.05^2 and 0.03^2 of classes, s^2 of the run itself: each takes its part of the ratio."""
    of = {"gemm": 0.12, "attention": 0.05, "communication": 0.03}
    learned = learn((Lesson(0.2, "m", weights(**of)),), "m")
    whole = sum(value**2 for value in of.values()) + RUN_SPREAD**2
    for kind, value in of.items():
        assert learned.offsets[kind] * value == pytest.approx(0.2 * value**2 / whole)
    assert learned.offsets["host"] == 0.0


def test_a_run_as_projected_changes_nothing_but_the_band() -> None:
    found = taught(COMPUTE_BOUND)
    assert found.ratio == 0.0
    learned = learn((found,), found.model)
    assert set(learned.offsets.values()) == {0.0}
    before, after = (projected(COMPUTE_BOUND, device(), network(), one) for one in (NOTHING, learned))
    assert after.iteration_s == before.iteration_s
    assert before.iteration_s < after.high_s < before.high_s and before.low_s < after.low_s
    assert after.high_s / after.iteration_s > 1.1  # what a run has for itself remains (COMMON_SPREAD)


def test_slower_products_are_found_in_products() -> None:
    """Products 20 % slower: the log of a compute-bound run moves them, and communication hardly; recipes of the same model at
    other degrees come nearer to the truth too."""
    found = taught(COMPUTE_BOUND, gemm=1.2)
    learned = learn((found,), found.model)
    assert 1.1 < factor(learned, "gemm") < 1.2
    assert 1.0 <= factor(learned, "communication") < 1.02
    other = run("llama3-8b", world_size=16, tensor_model_parallel_size=2, sequence_parallel=True, micro_batch_size=2)
    truth = projected(other, device(1.2), network()).iteration_s
    blind, after = (projected(other, device(), network(), one).iteration_s for one in (NOTHING, learned))
    assert abs(math.log(after / truth)) < 0.4 * abs(math.log(blind / truth))


@pytest.mark.parametrize("truth", ({"gemm": 1.2}, {"network": 1.2}, {"gemm": 1.2, "network": 0.9}))
def test_two_logs_tell_compute_and_communication_apart(truth: dict[str, float]) -> None:
    found = tuple(taught(recipe, **truth) for recipe in (COMPUTE_BOUND, COMMUNICATION_BOUND))
    gemm, communication = (cost.KINDS.index(kind) for kind in ("gemm", "communication"))
    assert found[0].weights[gemm] > 4 * found[0].weights[communication]
    assert found[1].weights[communication] > 4 * found[1].weights[gemm]
    learned = learn(found, found[0].model)
    for kind, real in (("gemm", truth.get("gemm", 1.0)), ("communication", truth.get("network", 1.0))):
        assert factor(learned, kind) == pytest.approx(real, abs=0.05)


def test_runs_that_agree_are_met() -> None:
    many = learn((taught(COMPUTE_BOUND, gemm=1.2),) * 50, model_of(COMPUTE_BOUND))
    truth = projected(COMPUTE_BOUND, device(1.2), network())
    after = projected(COMPUTE_BOUND, device(), network(), many)
    assert after.iteration_s == pytest.approx(truth.iteration_s, rel=5e-3)
    errors = []
    for count in (1, 2, 4, 8):
        learned = learn((Lesson(0.2, "m", weights(gemm=0.1)),) * count, "m")
        errors.append(0.2 - learned.offsets["gemm"] * 0.1)
        assert errors[-1] / 0.2 == pytest.approx(1 / (1 + count * (0.1 / RUN_SPREAD) ** 2))  # normal mean, by hand
    assert errors == sorted(errors, reverse=True)


def test_another_model_learns_of_the_machine_and_little_of_kernels() -> None:
    found = Lesson(0.2, "m", weights(compute=0.03, gemm=0.1, communication=0.05))
    mine, other = learn((found,), "m"), learn((found,), "n")
    assert other.offsets["gemm"] == 0.0 < mine.offsets["gemm"]
    for kind in ("compute", "communication"):
        assert 0 < other.offsets[kind] <= mine.offsets[kind]
    assert (mine.same, other.same, mine.runs, other.runs) == (1, 0, 1, 1)
    assert model_of(COMPUTE_BOUND) == model_of(COMMUNICATION_BOUND) != model_of(run("llama3-70b"))
    assert model_of(run("llama3-8b", num_layers=4)) == model_of(COMPUTE_BOUND)  # a few of its layers are it as well
    assert model_of(run("llama3-8b", transformer_impl="local")) != model_of(COMPUTE_BOUND)


def test_a_run_far_off_spoils_nothing_among_others() -> None:
    several = (Lesson(0.1, "m", weights(gemm=0.12)),) * 4
    far = Lesson(1.2, "m", weights(gemm=0.12))
    spoiled = learn((*several, far), "m").offsets["gemm"]
    assert spoiled == pytest.approx(learn(several, "m").offsets["gemm"], rel=0.05)
    # nor does it say much of other models, of which it would say much if it were explained; it says what it says of its own
    machine = weights(communication=0.05)
    assert (
        learn((Lesson(0.6, "n", machine),), "m").offsets["communication"]
        < learn((Lesson(0.1, "n", machine),), "m").offsets["communication"]
    )
    assert learn((Lesson(0.6, "n", machine),), "n").offsets["communication"] > 4
    elsewhere = learn((*several, far._replace(model="n")), "n").offsets["gemm"]
    assert elsewhere == pytest.approx(learn((far._replace(model="n"),), "n").offsets["gemm"])


def test_a_rate_that_is_sure_stays() -> None:
    sure, node = device(band=1.0), network()
    found = lesson(COMPUTE_BOUND, 1.1 * projected(COMPUTE_BOUND, sure, node).iteration_s, sure, node)
    assert found is not None and found.weights[cost.KINDS.index("gemm")] == 0.0
    assert learn((found,), found.model).offsets["gemm"] == 0.0


def test_the_host_learns_where_the_host_counts() -> None:
    recipe = run("llama3-8b", seq_length=128, micro_batch_size=1)  # shorter kernels than launches
    slow = plain.node()
    slow.host_operation_s = tuple(1.3 * value for value in slow.host_operation_s)  # type: ignore[assignment]
    found = lesson(recipe, projected(recipe, device(), slow).iteration_s, device(), plain.node())
    assert found is not None
    learned = learn((found,), found.model)
    each_s, low_s, _ = plain.node().host_operation_s
    assert 1.2 < (each_s / low_s) ** (learned.offsets["host"] / cost.BAND) < 1.3
    assert factor(learned, "gemm") < 1.02


def test_what_is_left_open_is_as_wide_as_it_turns_out() -> None:
    """Devices drawn from the prior: the error after one log, over what the band then says, has a mean square of 1 on recipes
    like it and on others; 4,000 draws scatter by 2 %."""
    random.seed(7)
    for of, target in (
        ({"gemm": 0.12, "attention": 0.08}, {"gemm": 0.10, "attention": 0.11}),
        ({"gemm": 0.12, "communication": 0.02}, {"gemm": 0.03, "communication": 0.15}),
    ):
        parts = {kind if kind != "communication" else "tp": (0.5, cost.BAND * value) for kind, value in target.items()}
        scaled = []
        for _ in range(4000):
            truth = {kind: random.gauss(0, 1) for kind in of}
            own, other = random.gauss(0, RUN_SPREAD), random.gauss(0, RUN_SPREAD)
            learned = learn((Lesson(sum(of[k] * truth[k] for k in of) + own, "m", weights(**of)),), "m")
            left = sum(target[k] * (truth[k] - learned.offsets[k]) for k in of) + other
            prior = sum(value**2 for value in target.values()) + RUN_SPREAD**2
            scaled.append(left**2 / (prior - learned.explained(parts, 1.0)))
        assert mean(scaled) == pytest.approx(1.0, abs=0.07)


def test_another_recipe_teaches_nothing() -> None:
    acc, node = plain.accelerator(), plain.node()
    assert lesson(COMPUTE_BOUND, 1e-6, acc, node) is None and lesson(COMPUTE_BOUND, 1e6, acc, node) is None
    assert learn((), "m") is NOTHING
