"""Verdicts of the rules of stage config against the real TransformerConfig of megatron-core 0.16.1."""

from __future__ import annotations

import pytest

from primus_lint.evaluate import evaluate
from tests.oracle.ask import why_not
from tests.oracle.config_checks import ask_config, effective, recipes

pytestmark = pytest.mark.oracle
REASON = why_not()


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_the_config_class_refuses_what_the_rules_refuse() -> None:
    """Recipes that pass everything before the config class: refused by a rule exactly when the class raises."""
    asked, ours = [], []
    for args in recipes(4000, seed=5):
        answer = evaluate(
            {
                "id": "x", "framework": "megatron", "version": "core-0.16.1", "args": args,
                "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "stack": {"arch": 10, "te": "2.11.0", "torch": "2.13.0"},
                "target": {"world_size": 64},
            },
            only="legality",
        )  # fmt: skip
        errors = [finding for finding in answer["findings"] if finding["severity"] == "error"]
        if any(finding["stage"] in ("parse", "args", "batch", "grid") for finding in errors):
            continue
        asked.append(args)
        ours.append([finding["name"] for finding in errors if finding["stage"] == "config"])
    assert len(asked) > 2000
    wrong = [
        f"{names} / {error}: {args}"
        for args, names, error in zip(asked, ours, ask_config([effective(args) for args in asked]), strict=True)
        if bool(names) != (error is not None)
    ]
    assert not wrong, f"{len(wrong)} of {len(asked)}\n" + "\n".join(wrong[:10])
