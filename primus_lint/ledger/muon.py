"""Muon: which parameters have Muon state and which Adam state, and who keeps them.

Source: Megatron-Core `LayerWiseDistributedOptimizer` and `get_megatron_muon_optimizer`; not held against the real thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

MUON = ("muon", "dist_muon")


def layer_wise(sizes: Sizes) -> bool:
    """Muon whose states are handed out by whole parameters: `dist_muon`, or `muon` asked to be distributed."""
    run = sizes.run
    if run.optimizer.name not in MUON:
        return False
    return run.optimizer.name == "dist_muon" or bool(run.args.get("use_layer_wise_distributed_optimizer"))


def muon_elements(sizes: Sizes, stage: Stage, last: bool) -> tuple[Any, Any]:
    """Elements with Muon state (matrices other than embedding and output layer) and with Adam state on a rank.

    `dist_muon` hands whole parameters to the ranks, sorted by size, up and down the ranks in turn; plain `muon` keeps
    everything everywhere.
    """
    distributed = layer_wise(sizes)
    totals = [0, 0]
    everything: list[tuple[Any, bool, bool, Any]] = []
    for chunk in stage.segments:
        for segment in chunk:
            for param in segment.params:
                matrix = param.gemm or param.name.endswith("router.weight") or param.name.endswith("gate_weight")
                everything.append((param.numel, matrix, param.expert, param.count * segment.repeats))
    if not distributed or not sizes.scalar:
        share = {False: 1, True: 1}
        if distributed:
            share = {False: sizes.dpcp or 1, True: sizes.edp or 1}
        found: list[Any] = [0, 0]
        for numel, matrix, expert, count in everything:
            found[0 if matrix else 1] += numel * count // share[expert]
        return found[0], found[1]
    for expert, group in ((False, sizes.dpcp or 1), (True, sizes.edp or 1)):
        mine = group - 1 if last else 0
        position = 0
        ordered = sorted((entry for entry in everything if entry[2] is expert), key=lambda entry: entry[0])
        for numel, matrix, _, count in ordered:
            for _ in range(count):
                step = position % (2 * group)
                owner = step if step < group else 2 * group - 1 - step
                if owner == mine or group == 1:
                    totals[0 if matrix else 1] += numel
                position += 1
    return totals[0], totals[1]
