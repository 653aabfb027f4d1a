"""Which values a proposal may have, before any code of rules or ledger sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.tables import defaults
from primus_lint.tune import safety
from primus_lint.tune.agent import facts
from primus_lint.tune.keys import CP, DEGREES, FIRST, LAST, LAYOUT, MBS, NUMBER, TUNED, VPP

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.subject import Subject
    from primus_lint.tune.space import Pins

SENSELESS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError,
)  # fmt: skip
COUNTS = frozenset((*DEGREES, CP, MBS, VPP, "num_layers_per_virtual_pipeline_stage", FIRST, LAST, NUMBER))
WORDS = frozenset(
    (
        "recompute_granularity", "recompute_method", "cp_comm_type", "pp_algorithm", "moe_token_dispatcher_type", "moe_router_dtype",
        "moe_flex_dispatcher_backend", "fp8", "fp8_recipe", "cross_entropy_fusion_impl", "main_grads_dtype",
        "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype",
    )
)  # fmt: skip
LAYERS_AT_MOST = 4096


def refused(changes: dict[str, Any], subject: Subject, pins: Pins) -> str:
    """Why a proposal is not even looked at; "" when it may be."""
    run, given = subject.run, subject.lowered.namespace.given
    assert run is not None
    known = defaults(subject.version, subject.lowered.framework)
    for key, value in changes.items():
        if key not in TUNED or key not in known:
            return f"{key[:80]} may not change"
        if not pins.allows(key):
            return f"{key} is kept as it is"
        if value is None and known[key] is not None:
            return f"{key}: null is no value of it"
        wrong = wrong_kind(key, value, run)
        if wrong:
            return f"{key}: {wrong}"
    if not pins.within(changes):
        return "outside the limits that were given"
    kind = safety.class_of_all(changes.items(), given, run.model)
    if kind == safety.DISPLAY or (kind == safety.UNSAFE and not pins.unsafe):
        return f"{kind}: it would change numerics, compatibility or what is trained"
    return ""


def wrong_kind(key: str, value: Any, run: Run) -> str:
    """What is wrong with a value of a key that may change; "" when nothing is. null unsets a key."""
    if value is None:
        return ""
    if key in COUNTS:
        return _count(key, value, run)
    if key == LAYOUT:
        return _layout(value, run)
    if key == "recompute_modules":
        known = isinstance(value, list) and all(isinstance(item, str) and item in facts.WORDS for item in value)
        return "" if known else "a list of module names is wanted"
    if key == "recompute_layer_ids":
        return _layer_ids(value)
    if key in WORDS:
        return "" if isinstance(value, str) and value in facts.WORDS else "not a value that the framework knows"
    return "" if isinstance(value, bool) else "true or false is wanted"


def _count(key: str, value: Any, run: Run) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return "a whole number is wanted"
    most = int(run.target.world_size or 1) if key in (*DEGREES, CP) else LAYERS_AT_MOST
    return "" if value <= most else f"more than {most:,}"


def _layout(value: Any, run: Run) -> str:
    from primus_lint.ir.layout import LayoutError, parse_layout

    if not isinstance(value, str) or not facts.LAYOUT.fullmatch(value):
        return "a layout text is wanted"
    try:
        stages = parse_layout(value)
    except LayoutError as error:
        return str(error)
    return "" if len(stages) <= LAYERS_AT_MOST else f"more than {LAYERS_AT_MOST:,} stages"


def _layer_ids(value: Any) -> str:
    if isinstance(value, str):
        value = [int(item) if item.strip().isdecimal() else None for item in value.split(",")]
    good = isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    return "" if good and len(value) <= LAYERS_AT_MOST else "a list of layer numbers is wanted"
