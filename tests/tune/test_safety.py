"""Classes of keys, and what a loaded checkpoint still allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_lint.rules.compile import load_rule, rule_files
from primus_lint.tune import checkpoint, safety
from primus_lint.tune.keys import TUNED
from primus_lint.tune.search import search
from primus_lint.tune.space import Pins, Space
from tests.tune import recipes

ROOT = Path(__file__).resolve().parents[2]


def test_the_published_page_is_the_table() -> None:
    assert (ROOT / "docs" / "safety.md").read_text() == safety.markdown()


def test_every_key_of_the_search_has_a_class_and_no_key_has_two() -> None:
    keys = [key for entry in safety.TABLE for key in entry.keys]
    assert len(keys) == len(set(keys))
    assert set(TUNED) <= set(keys)


def test_rules_call_no_fix_safe_that_the_table_calls_unsafe() -> None:
    """A fix that turns something off for legality may be safe although turning it on is not."""
    wrong = []
    for path in rule_files(str(ROOT / "rules")):
        rule = load_rule(path)
        for fix in rule["fix"]:
            for key in fix.get("set") or {}:
                entry = safety.BY_KEY.get(key)
                if fix["safety"] == safety.SAFE and entry is not None and entry.safety == safety.DISPLAY:
                    wrong.append((rule["code"], key))
    assert wrong == []


def class_of(key: str, new: Any, model: str = "llama3.1-8b", **args: Any) -> str:
    subject = recipes.subject(model, **args)
    assert subject.run is not None
    given = subject.lowered.namespace.given
    return safety.class_of(key, given.get(key), new, given, subject.run.model)


@pytest.mark.parametrize(
    ("key", "new", "args", "wanted"),
    [
        ("tensor_model_parallel_size", 2, {}, "safe"),
        ("fp8", "hybrid", {}, "unsafe"),
        ("global_batch_size", 128, {}, "display-only"),
        ("some_new_key", 1, {}, "unsafe"),
        ("micro_batch_size", 2, {}, "safe"),
        ("micro_batch_size", 2, {"model": "mixtral-8x7b", "moe_aux_loss_coeff": 0.01}, "unsafe"),
        ("micro_batch_size", 2, {"model": "mixtral-8x7b", "moe_aux_loss_coeff": 0.0}, "safe"),
        ("micro_batch_size", 2,
         {"model": "mixtral-8x7b", "moe_aux_loss_coeff": 0.0, "moe_expert_capacity_factor": 1.0}, "unsafe"),
        ("moe_token_dispatcher_type", "alltoall", {"model": "mixtral-8x7b"}, "safe"),
        ("moe_token_dispatcher_type", "flex", {"model": "mixtral-8x7b"}, "unsafe"),
        ("moe_grouped_gemm", True, {"model": "mixtral-8x7b"}, "safe"),
        ("moe_grouped_gemm", True, {"model": "mixtral-8x7b", "fp8": "hybrid"}, "unsafe"),
        ("moe_grouped_gemm", True, {"model": "mixtral-8x7b", "load": "/c", "ckpt_format": "torch_dist"}, "unsafe"),
    ],
)  # fmt: skip
def test_classes(key: str, new: Any, args: dict[str, Any], wanted: str) -> None:
    assert class_of(key, new, **args) == wanted


# 32,000 rows padded to a multiple of 128 x tp: 32,000 for tp 1 and 2 (250 x 128, 125 x 256), 32,256 for tp 4.
@pytest.mark.parametrize(
    ("key", "new", "args", "opens"),
    [
        ("tensor_model_parallel_size", 2, {"load": None}, True),
        ("tensor_model_parallel_size", 2, {"ckpt_format": "torch"}, False),
        ("pipeline_model_parallel_size", 2, {"ckpt_format": "torch"}, False),
        ("pipeline_model_parallel_size", 2, {"ckpt_format": "torch_dist"}, True),
        ("tensor_model_parallel_size", 2, {"ckpt_format": "torch_dist"}, True),
        ("tensor_model_parallel_size", 4, {"ckpt_format": "torch_dist"}, False),
        ("pipeline_model_parallel_layout", "Et|tL", {"ckpt_format": "torch"}, False),
        ("use_distributed_optimizer", False, {"ckpt_format": "torch_dist"}, False),
        ("use_distributed_optimizer", False, {"ckpt_format": "torch_dist", "no_load_optim": True}, True),
        ("context_parallel_size", 2, {"ckpt_format": "torch"}, True),
        ("micro_batch_size", 2, {"ckpt_format": "torch"}, True),
    ],
)
def test_what_a_checkpoint_allows(key: str, new: Any, args: dict[str, Any], opens: bool) -> None:
    subject = recipes.subject("llama2-7b", **{"load": "/ckpt", "vocab_size": 32000, **args})
    assert subject.run is not None and subject.run.model.vocab_size == 32000
    given = subject.lowered.namespace.given
    assert checkpoint.breaks(key, new, given, subject.run.model) is not opens
    assert class_of(key, new, "llama2-7b", **{"load": "/ckpt", "vocab_size": 32000, **args}) == (
        "safe" if opens else "unsafe"
    )
    text = checkpoint.say({key: new}, given, subject.run.model)
    if given.get("load") is None:
        assert text is None
    else:
        assert text is not None and ("still opens" in text) is opens


@pytest.mark.parametrize("unsafe", [False, True])
def test_experts_whose_degrees_are_frozen_are_searched(unsafe: bool) -> None:
    """The expert tensor-parallel size is unset, and may not change."""
    args: dict[str, Any] = {"num_layers": 4, "load": "/ckpt", "ckpt_format": "torch", "moe_aux_loss_coeff": 0.0}
    subject = recipes.subject("mixtral-8x7b", gpu="mi355x", moe_grouped_gemm=True, vocab_size=32000, **args)
    assert subject.accelerator is not None
    limits: dict[str, tuple[Any, ...]] = {"pipeline_model_parallel_size": (1, 2)}
    result = search(subject, subject.accelerator, pins=Pins(frozenset(), limits, unsafe))
    assert result.best and result.certificate.complete
    degrees = {key for candidate in result.best for key in candidate.changes} & {*checkpoint.MODEL_DEGREES}
    assert bool(degrees) == unsafe


def test_a_loaded_checkpoint_of_the_old_format_freezes_the_degrees() -> None:
    args: dict[str, Any] = {"num_layers": 8, "load": "/ckpt", "ckpt_format": "torch"}
    subject = recipes.subject("llama2-7b", **args)
    assert subject.accelerator is not None and subject.run is not None
    given = dict(subject.lowered.namespace.given)
    moving: dict[bool, set[str]] = {}
    for unsafe in (False, True):
        space = Space(subject.run, given, subject.accelerator, Pins(unsafe=unsafe), {})
        every = [base.keys for base in space.bases()]
        moving[unsafe] = {key for keys in every for key, value in keys.items() if value != given.get(key)}
        moving[unsafe] |= {key for axis in space.axes if len(axis.rows) > 1 for key in axis.keys}
    frozen = {*checkpoint.MODEL_DEGREES, *checkpoint.SPLIT, "use_distributed_optimizer"}
    assert not frozen & moving[False]
    assert {"tensor_model_parallel_size", "pipeline_model_parallel_size"} <= moving[True]
