"""Moves between the distributed optimizer, torch FSDP2 and Megatron-FSDP: what changes with them, and who may write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from primus_lint.lower.megatron.tables import defaults
from primus_lint.tune import safety
from primus_lint.tune.keys import FORMAT, FSDP2, FUSION, MEGATRON_FSDP, SHARDED, SHARDING_KEYS, STRATEGY
from primus_lint.tune.search import search
from primus_lint.tune.shardings import other_shardings
from primus_lint.tune.space import Pins, Space
from primus_lint.tune.switches import fully_sharded
from primus_lint.tune.what_if import with_changes
from tests.tune import recipes

LABELS = Path(__file__).resolve().parents[3] / "shared" / "legality" / "labelled.jsonl"
PIN = "d3528a21"
OWN_HEAD = {"untie_embeddings_and_output_weights": True, "overlap_grad_reduce": True}


def moves(unsafe: bool, **args: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A recipe and the alternatives of its sharding; the environment is what the launcher sets."""
    subject = recipes.subject("llama3.1-8b", num_layers=8, **{**OWN_HEAD, **args})
    subject.env = None
    assert subject.run is not None and subject.accelerator is not None
    given = dict(subject.lowered.namespace.given)
    space = Space(subject.run, given, subject.accelerator, Pins(unsafe=unsafe), {})
    return subject, [*fully_sharded(subject.run, given, space.pins), *space.groups[0][1:]]


def test_every_move_is_legal_with_what_changes_along() -> None:
    subject, found = moves(True)
    assert [(m.get(FSDP2), m.get(MEGATRON_FSDP), m.get(STRATEGY)) for m in found] == [
        (True, None, None), (None, True, "optim_grads"), (None, True, "optim_grads_params")
    ]  # fmt: skip
    for keys in found:
        other = with_changes(subject, keys)
        assert [f.name for f in other.conditions if f.severity == "error"] == [], keys
        assert other.ledger is not None and other.projection is not None
        for key in keys:  # and each of its keys is needed, but for how much is sharded
            without = with_changes(subject, {name: value for name, value in keys.items() if name != key})
            broken = any(finding.severity == "error" for finding in without.conditions)
            assert broken or key in (FSDP2, MEGATRON_FSDP, STRATEGY), key


def test_moves_to_fsdp_are_unsafe_and_back_safe_where_the_format_of_gradients_stays() -> None:
    assert moves(False)[1] == []
    sharded = {FSDP2: True, SHARDED: False, FUSION: False}
    assert moves(False, **sharded)[1] == [{FSDP2: False, SHARDED: True, "grad_reduce_in_bf16": True}]
    subject, found = moves(True, **sharded)
    assert {FSDP2: False, SHARDED: True} in found  # gradients in fp32 from then on
    given = subject.lowered.namespace.given
    assert safety.class_of_all([(FSDP2, False), (SHARDED, True)], given, subject.run.model) == safety.UNSAFE
    assert moves(False, **sharded, load="/ckpt")[1] == []


@pytest.mark.skipif(not LABELS.exists(), reason="no shared labels")
@pytest.mark.parametrize("kind", [FSDP2, MEGATRON_FSDP])
def test_the_real_framework_wants_what_the_moves_set(kind: str) -> None:
    """Labels of the real argument checks: every legal case has what a move sets, and cases that lack it were refused."""
    _, found = moves(True)
    wanted = next(keys for keys in found if keys.get(kind) is True)
    free = (
        {kind, STRATEGY, SHARDED} if kind == MEGATRON_FSDP else {kind}
    )  # Megatron-FSDP switches the optimizer on itself
    known = defaults(PIN)
    cases = [json.loads(line) for line in LABELS.read_text().splitlines()]
    cases = [case for case in cases if case["args"].get(kind) and case["megatron_commit"].startswith(PIN)]
    legal = [case["args"] for case in cases if case["verdict"] == "legal"]
    refused = [case["args"] for case in cases if case["verdict"] == "illegal"]
    assert legal and refused
    for key in set(wanted) - free:
        allowed = {wanted[key], "torch_dcp"} if (kind, key) == (FSDP2, FORMAT) else {wanted[key]}
        assert {args.get(key, known[key]) for args in legal} <= allowed, key
        assert any(args.get(key, known[key]) not in allowed for args in refused), key


def test_the_launcher_sets_the_connections_of_a_move_and_a_script_does_not() -> None:
    """Primus gives CUDA_DEVICE_MAX_CONNECTIONS 8 under FSDP, whatever else the file exports."""
    subject, found = moves(True, framework="primus-megatron", lr_warmup_iters=2)
    subject.export({"NCCL_DEBUG": "WARN"})
    for keys in found:
        names = with_changes(subject, keys).lowered.namespace
        assert names["env_CUDA_DEVICE_MAX_CONNECTIONS"] == "8" and names["env_NCCL_DEBUG"] == "WARN"
        assert not any(f.severity == "error" for f in with_changes(subject, keys).conditions)
    script = recipes.subject("llama3.1-8b", num_layers=8, **OWN_HEAD)  # exports 1
    assert any(f.name == "fsdp2-with-one-connection" for f in with_changes(script, found[0]).conditions)


def test_a_fully_sharded_recipe_is_found_where_little_else_fits() -> None:
    """An 8B model on eight H100 with a third of the memory, TP, PP and CP 1, no recomputation."""
    subject, _ = moves(True, seq_length=8192, max_position_embeddings=8192)
    assert subject.accelerator is not None
    keys = (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "recompute_granularity",
    )
    alone = {key: (subject.lowered.namespace.given.get(key),) for key in keys}
    found = {}
    for unsafe in (False, True):
        result = search(subject, subject.accelerator, pins=Pins(limits=alone, unsafe=unsafe), min_headroom=0.65)
        found[unsafe] = other_shardings(subject, result, frozenset())
    assert found[False] == [] and found[True]
    for each in found[True]:
        assert each.peak_bytes <= subject.accelerator.visible_hbm_bytes * 0.35
        assert set(each.changes) & {*SHARDING_KEYS} and not set(each.changes) & set(keys)
        other = with_changes(subject, each.changes)
        assert other.projection is not None and float(other.projection.iteration_s) == each.iteration_s
