"""Switches of the space that formulas cannot broadcast: each group is a list of alternatives, the recipe's own first.

`alternatives` are crossed with the splits. `improvements` never cost time or memory in the model, so that they are on in
every candidate instead of doubling the space; `accelerations` never cost time, so that they are given up only where they
do not fit. Tests hold both to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tune import safety
from primus_lint.tune.keys import (
    BF16_REDUCE,
    CP_TYPE,
    DISPATCHER,
    EP_OVERLAP,
    FORMAT,
    FSDP2,
    FUSION,
    LOSS_KEYS,
    MEGATRON_FSDP,
    SHARDED,
    SHARED_OVERLAP,
    STRATEGY,
)
from primus_lint.tune.what_if import different

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.hardware import Accelerator
    from primus_lint.ir.run import Run
    from primus_lint.tune.space import Pins

Keys = dict[str, Any]
FLEX: Keys = {DISPATCHER: "flex", "moe_enable_deepep": True, "moe_router_dtype": "fp32"}
TURBO_DEEPEP: Keys = {"use_turbo_deepep": True, "moe_router_dtype": "fp32"}
NO_DEEPEP: Keys = {DISPATCHER: "alltoall", "moe_enable_deepep": False, "use_turbo_deepep": False}
UNSHARDED: Keys = {FSDP2: False, MEGATRON_FSDP: False}
FP8_RECIPES = (("hybrid", "delayed"), ("hybrid", "tensorwise"), ("e4m3", "blockwise"), ("e4m3", "mxfp8"))


def alternatives(run: Run, given: Keys, accelerator: Accelerator, pins: Pins) -> list[list[Keys]]:
    """Groups of alternatives; every alternative names only keys that differ from the recipe's own."""
    groups: list[list[Keys]] = [_distributed(run, given), _context(given)]
    if run.model.moe is not None:
        groups += [_overlaps(run, given), _dispatchers(run, given), _products(run, given)]
    groups += [_fp8(run, given, accelerator), _states(run)]
    return [[{}, *_allowed(run, given, pins, group)] for group in groups]


def improvements(run: Run, given: Keys, pins: Pins) -> list[Keys]:
    """Switches that never cost time or memory, and are off in the recipe."""
    found: list[Keys] = []
    if run.kernels.cross_entropy_fusion is None and run.kernels.implementation == "transformer_engine":
        found.append(dict(zip(LOSS_KEYS, (True, "te"), strict=True)))
    if run.precision.params_dtype == "bf16" and run.precision.grads_dtype == "fp32":
        found.append({"grad_reduce_in_bf16": True})
    return _allowed(run, given, pins, found)


def one_by_one(run: Run, given: Keys, accelerator: Accelerator, pins: Pins) -> list[Keys]:
    """Every alternative, improvement and other sharding, each by itself."""
    found = [keys for group in alternatives(run, given, accelerator, pins) for keys in group[1:]]
    return [*found, *improvements(run, given, pins), *fully_sharded(run, given, pins)]


def accelerations(run: Run, given: Keys, pins: Pins) -> list[Keys]:
    """Switches that never cost time but may cost a little memory, and are off in the recipe."""
    return _allowed(run, given, pins, [] if run.model.moe is None else [{"moe_permute_fusion": True}])


def _allowed(run: Run, given: Keys, pins: Pins, group: Iterable[Keys]) -> list[Keys]:
    """The alternatives of a group without what does not change, and without those that may not be written."""
    out = []
    for keys in group:
        changes = different(given, keys)
        if not changes or changes in out or not pins.allows(*changes):
            continue
        kind = safety.class_of_all(changes.items(), given, run.model)
        if kind == safety.SAFE or (kind == safety.UNSAFE and pins.unsafe):
            out.append(changes)
    return out


def fully_sharded(run: Run, given: Keys, pins: Pins) -> list[Keys]:
    """Moves to torch FSDP2, and to Megatron-FSDP with gradients or everything sharded, each with the keys that it cannot do
    without. They are tried after the search, from its best recipes (`shardings`)."""
    if run.optimizer.name not in ("adam", "sgd"):
        return []
    fsdp2: Keys = {**UNSHARDED, FSDP2: True, SHARDED: False, FUSION: False, FORMAT: "torch_dist"}
    if given.get(FORMAT) == "torch_dcp":
        del fsdp2[FORMAT]
    megatron: Keys = {**UNSHARDED, MEGATRON_FSDP: True, SHARDED: True, FORMAT: "fsdp_dtensor"}
    group = [fsdp2, *({**megatron, STRATEGY: each} for each in ("optim_grads", "optim_grads_params"))]
    return _allowed(run, given, pins, [_different(given, keys) for keys in group])


def _distributed(run: Run, given: Keys) -> list[Keys]:
    """The distributed optimizer, in the place of whatever else keeps weights, gradients and states."""
    if run.optimizer.name not in ("adam", "sgd"):
        return []
    plain = {FORMAT: "torch_dist"} if given.get(FORMAT) == "fsdp_dtensor" else {}
    distributed: Keys = {**UNSHARDED, SHARDED: True, **plain}
    group = [distributed]
    if run.optimizer.sharding == "fsdp2":  # whose gradients have the number format of the weights
        group.append({**distributed, BF16_REDUCE: True})
    return [_different(given, keys) for keys in group]


def _different(given: Keys, keys: Keys) -> Keys:
    """What keys say that the recipe does not; what is off already is not named."""
    return {key: value for key, value in keys.items() if _differs(given.get(key), value)}


def _differs(own: Any, value: Any) -> bool:
    return bool(own) is not value if isinstance(value, bool) else own != value


def _context(given: Keys) -> list[Keys]:
    """How context-parallel ranks exchange keys and values; only means something with context parallelism."""
    own = given.get(CP_TYPE)
    if isinstance(own, list) and len(own) > 1:
        return []  # layer by layer: a person has thought about it
    return [{CP_TYPE: kind} for kind in ("p2p", "a2a", "all_gather") if own not in (kind, [kind])]


def _overlaps(run: Run, given: Keys) -> list[Keys]:
    """What the exchange of the experts hides behind: nothing, the shared experts, or another micro-batch's layer."""
    moe = run.model.moe
    assert moe is not None
    off = {EP_OVERLAP: False, SHARED_OVERLAP: False}
    now = {key: bool(given.get(key)) for key in off}
    group = [off, {**off, EP_OVERLAP: True}]
    if moe.shared_expert_intermediate_size:
        group.append({**off, SHARED_OVERLAP: True})
    return [{key: value for key, value in keys.items() if now[key] != value} for keys in group]


def _dispatchers(run: Run, given: Keys) -> list[Keys]:
    moe = run.model.moe
    assert moe is not None
    deepep = TURBO_DEEPEP if given.get("enable_primus_turbo") else FLEX
    if moe.dispatcher == "flex":
        return [NO_DEEPEP]
    return [{DISPATCHER: kind} for kind in ("alltoall", "allgather") if kind != moe.dispatcher] + [deepep]


def _products(run: Run, given: Keys) -> list[Keys]:
    """Grouped products of the experts. The legacy (CUTLASS) kernel is not proposed: its rate is not known."""
    moe = run.model.moe
    assert moe is not None
    group: list[Keys] = [] if moe.grouped_gemm else [{"moe_grouped_gemm": True}]
    if given.get("enable_primus_turbo") and not run.kernels.turbo_grouped_gemm:
        turbo = {"moe_grouped_gemm": True, "use_turbo_grouped_gemm": True, "moe_use_legacy_grouped_gemm": False}
        group.append(turbo)
    return group


def _states(run: Run) -> list[Keys]:
    """Moments of the optimizer in half precision."""
    optimizer = run.optimizer
    if optimizer.name != "adam" or optimizer.sharding != "distributed" or optimizer.precision_aware:
        return []
    return [{"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}]


def _fp8(run: Run, given: Keys, accelerator: Accelerator) -> list[Keys]:
    """Other number formats of the products, where the device has rates for them."""
    rates = accelerator.rates["gemm"]
    if run.precision.fp4 is not None or "fp8" not in rates:
        return []
    group: list[Keys] = [{"fp8": None}] if run.precision.fp8 else []
    for kind, recipe in FP8_RECIPES:
        if recipe != "mxfp8" or "fp4" in rates:  # devices that scale blocks in hardware have both
            group.append({"fp8": kind, "fp8_recipe": recipe})
    return group
