"""Muon: which parameters have Muon state and which Adam state, and who keeps them.

Source: Megatron-Core `LayerWiseDistributedOptimizer`, `get_megatron_muon_optimizer` and `TensorParallelMuon`, NVIDIA's
Emerging-Optimizers `newton_schulz_tp`; not held against the real thing, but the states of three runs of ../shared/goldens
agree within 0.04 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, minimum

if TYPE_CHECKING:
    from primus_lint.ledger.params import Param
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

MUON = ("muon", "dist_muon")


def layer_wise(sizes: Sizes) -> bool:
    """Muon whose states are handed out by whole parameters: `dist_muon`, or `muon` asked to be distributed."""
    run = sizes.run
    if run.optimizer.name not in MUON:
        return False
    return run.optimizer.name == "dist_muon" or bool(run.args.get("use_layer_wise_distributed_optimizer"))


def is_matrix(param: Param) -> bool:
    """Whether Muon updates a parameter: every matrix but embedding and output layer."""
    return param.gemm or param.name.endswith(("router.weight", "gate_weight"))


def working_bytes(sizes: Sizes, stage: Stage) -> Any:
    """What orthogonalising the largest matrix needs, one after the other: the momentum with the gradient in fp32; over
    tensor ranks unless `blockwise` the gathered shards and their concatenation in fp32; then the normalised matrix in
    fp32 beside its bf16 form, or in an iteration both forms before and after with two square products."""
    args = sizes.run.args
    whole = (args.get("muon_tp_mode") or "blockwise") != "blockwise"
    width = 2 if (args.get("muon_fp32_matmul_prec") or "medium") == "medium" else 4
    most: Any = 0
    for chunk in stage.segments:
        for param in (param for segment in chunk for param in segment.params if param.gemm):
            ranks = (sizes.etp if param.expert else sizes.tp) if whole else 1
            outputs, inputs = param.numel // param.inputs, param.inputs
            if param.name.endswith(("linear_proj.weight", "linear_fc2.weight", "linear_fc2.weight*")):
                inputs = inputs * ranks
            else:
                outputs = outputs * ranks
            matrix, square = outputs * inputs, minimum(outputs, inputs) ** 2
            gathered = (ranks > 1) * 8 * matrix
            iteration = 2 * width * (matrix + square)
            most = maximum(most, 4 * param.numel + gathered + maximum((4 + width % 4) * matrix, iteration))
    return most


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
                everything.append((param.numel, is_matrix(param), param.expert, param.count * segment.repeats))
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
