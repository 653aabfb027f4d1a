"""The search for TorchTitan: its space is small enough that every recipe of it is scored exactly, one by one.

The model, the global batch and the sequence stay. What can change: how many sequences a rank takes at a time (gradients are
accumulated for the rest), tensor, expert and replica degrees, when shards are gathered again, what is recomputed, and whether
the model is compiled.
"""

from __future__ import annotations

import time
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune.certificate import Certificate
from primus_lint.tune.objective import Objective
from primus_lint.tune.rescore import Candidate, order, verdict
from primus_lint.tune.ties import told_apart
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.lower.megatron.namespace import Namespace
    from primus_lint.subject import Subject
    from primus_lint.tune.propose import Rules
Changes = dict[str, Any]
LOCAL, GLOBAL = "training.local_batch_size", "training.global_batch_size"
TP, EP = "parallelism.tensor_parallel_degree", "parallelism.expert_parallel_degree"
SHARDS, REPLICAS = "parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree"
GATHERED = "parallelism.fsdp_reshard_after_forward"
MODE, OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
COMPILED, COMPONENTS = "compile.enable", "compile.components"
KEYS = (LOCAL, GLOBAL, TP, EP, REPLICAS, GATHERED, MODE, OPTION, COMPILED)
EVERY = ("2", "3", "4")  # one block of so many is recomputed
SIMPLER = 0.01  # of the step: what may be given up for fewer changed keys


class Scored(NamedTuple):
    """`best`: everything of the space that fits, exactly scored, the best first."""

    best: list[Candidate]
    certificate: Certificate


def whole(subject: Subject, how: Rules) -> Scored:
    """What fits of the space, the best first. Needs a device and a world size."""
    accelerator = subject.accelerator
    assert accelerator is not None
    began = time.perf_counter()
    capacity = accelerator.visible_hbm_bytes * (1 - how.min_headroom)
    errors = [finding for finding in subject.conditions if finding.severity == "error"]
    excused = frozenset(finding.code for finding in errors if not set(finding.keys) & set(KEYS))
    own = verdict(subject, capacity, {}, excused)
    kind = "minimal" if how.minimal or not how.tune else how.objective
    objective = Objective(kind, capacity, float("inf") if own.candidate is None else own.candidate.iteration_s)
    certificate = Certificate()
    certificate.structures = certificate.bases = 1
    found: list[Candidate] = []
    for changes in {repr(sorted(each.items())): each for each in space(subject, how)}.values():
        certificate.space += 1
        if time.perf_counter() - began > how.budget_s:
            certificate.unseen += 1
            certificate.gap = 1.0  # nothing bounds what was not looked at
            continue
        certificate.rescored += 1
        said = verdict(subject, capacity, changes, excused)
        if said.candidate is not None:
            found.append(said.candidate)
        else:
            certificate.drop(said.why.removeprefix("illegal: "), 1)
    certificate.fitting = len(found)
    if kind == "memory-headroom":
        found = [each for each in found if each.iteration_s <= objective.own_s]
    found.sort(key=lambda each: order(objective, each))
    certificate.seconds = time.perf_counter() - began
    return Scored(_simplest_first(found, kind), certificate)


def _simplest_first(found: list[Candidate], kind: str) -> list[Candidate]:
    """Of recipes that the projection cannot tell from the fastest the one with the fewest changes comes first."""
    if kind not in ("tokens", "cost") or not found:
        return found
    best = found[0]
    near = [
        each
        for each in found
        if each.iteration_s <= best.iteration_s * (1 + SIMPLER) and not told_apart(each.projection, best.projection)
    ]
    first = min(near, key=lambda each: (len(each.changes), each.iteration_s))
    return [first, *(each for each in found if each is not first)]


def space(subject: Subject, how: Rules) -> Iterator[Changes]:
    """Every recipe of the space, as changed keys; the recipe as it stands is one of them."""
    v = subject.lowered.namespace
    now = {key: v.get(key) for key in KEYS}
    for parts in product(_grids(subject), _recomputed(v), _gathered(v), _replicas(subject), _experts(v), _compiled(v)):
        changes = different(now, {key: value for part in parts for key, value in part.items()})
        if not changes.keys() & how.keep and all(
            value in how.limits.get(key, (value,)) for key, value in changes.items()
        ):
            yield changes


def _grids(subject: Subject) -> Iterator[Changes]:
    """Tensor degree and local batch, at the recipe's global batch: written out where it followed from the local batch."""
    from primus_lint.rules.functions import divisors

    v, world, total = subject.lowered.namespace, subject.target.world_size, subject.lowered.namespace["gbs"]
    assert world is not None
    yield {}
    for tp in divisors(subject.target.gpus_per_node):
        ranks = world // (tp * v["cp"] * v["pp"])
        if ranks < 1 or total % ranks:
            continue
        for local in divisors(total // ranks):
            follows = v[GLOBAL] == -1 and local * ranks == total
            yield {TP: tp, LOCAL: local, **({} if follows else {GLOBAL: total})}


def _recomputed(v: Namespace) -> list[Changes]:
    modes: list[Changes] = [
        {MODE: "none"},
        {MODE: "full"},
        *({MODE: "selective", OPTION: each} for each in ("op", *EVERY)),
    ]
    return [{}, *modes]


def _gathered(v: Namespace) -> list[Changes]:
    return [{}, *({GATHERED: policy} for policy in ("default", "never"))]


def _replicas(subject: Subject) -> list[Changes]:
    """Replicas of whole nodes, where the shard degree follows."""
    from primus_lint.rules.functions import divisors

    world, per_node = subject.target.world_size, subject.target.gpus_per_node
    if world is None or world % per_node or subject.lowered.namespace[SHARDS] != -1:
        return [{}]
    return [{}, *({REPLICAS: number} for number in divisors(world // per_node))]


def _experts(v: Namespace) -> list[Changes]:
    from primus_lint.rules.functions import divisors

    return [{}, *({EP: degree} for degree in divisors(v["experts"]))] if v["experts"] else [{}]


def _compiled(v: Namespace) -> list[Changes]:
    return [{}] if v[COMPILED] or "model" not in (v[COMPONENTS] or ()) or v["quantized"] else [{}, {COMPILED: True}]
