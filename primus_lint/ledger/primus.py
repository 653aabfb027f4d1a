"""What only Primus brings, and no other module's subject is: MegaMoE's pools and the SDMA parameter gather.

Source: ../shared/reference/byte-accounting-amd.md sections 2.6, 3 and 4 (Primus fd1eeabb, Primus-Turbo a6a16cd, read).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, minimum, round_up, where
from primus_lint.ledger.activations.kind import recipe

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage

POOL_ROWS = 256  # rows of a pool are a multiple of it, and every local expert may waste one block less a row
SDMA_LEAST_BYTES = 749_887_296


def variable(run: Run, name: str) -> str:
    """An environment variable of the ranks as text; "" when it is unset or not known."""
    try:
        return str(run.args["env_" + name] or "")
    except KeyError:
        return ""


def mega_moe(run: Run) -> bool:
    """Whether whole MoE layers are Turbo's MegaMoE: bf16 alone, 2 to 8 expert ranks; else the stock layer runs."""
    if run.framework != "primus-megatron" or run.model.moe is None or recipe(run) is not None:
        return False
    try:
        asked = bool(run.args["mega_moe"])
    except KeyError:
        return False
    return asked and bool(run.parallel.ep in range(2, 9))


def pool_rows(sizes: Sizes) -> Any:
    """Rows of MegaMoE's pool: the worst case, whatever the real load."""
    worst = sizes.ep * sizes.T * minimum(sizes.K, sizes.local_experts)
    return round_up(worst + (POOL_ROWS - 1) * sizes.local_experts, POOL_ROWS)


def mega_moe_tensors(sizes: Sizes) -> dict[str, Any]:
    """What a MegaMoE layer keeps instead of dispatch and experts."""
    rows = pool_rows(sizes)
    return {
        "experts.fc1_out": rows * sizes.fc1 * sizes.g * sizes.act,
        "experts.probs": 4 * rows,
        "dispatch.topk_index": 8 * sizes.T * sizes.K,
    }


def mega_moe_heap_bytes(sizes: Sizes) -> Any:
    """The heap of MegaMoE, one a process, outside PyTorch (IPC memory)."""
    if not mega_moe(sizes.run):
        return 0
    T, h, K, rows = sizes.T, sizes.h, sizes.K, pool_rows(sizes)
    regions = (
        4 * h * rows, 2 * h * T * K, 12 * rows, 20 * T * K, 32 * (rows // POOL_ROWS), 4 * sizes.ep * sizes.E, 256
    )  # fmt: skip
    total: Any = 0
    for region in regions:
        total = total + round_up(region, 256)
    return total


def sdma_bytes(sizes: Sizes, stage: Stage) -> Any:
    """Symmetric memory of the parameter gather over SDMA engines (`ENABLE_SDMA_ALLGATHER=1`), one buffer a group,
    outside PyTorch: the largest bucket, and a least size."""
    run = sizes.run
    if run.framework != "primus-megatron" or variable(run, "ENABLE_SDMA_ALLGATHER") != "1":
        return 0
    text = variable(run, "MEGATRON_SDMA_SYMM_MEM_MIN_BYTES")
    least = int(text) if text.isdigit() else SDMA_LEAST_BYTES
    total: Any = 0
    for grid in stage.grids:
        for index, buffer in enumerate(grid.buffers):
            start, largest = 0, 0
            for end in buffer.ends or (buffer.numel,):
                start, largest = end, maximum(largest, end - start)
            if index == 0:
                total = total + where(buffer.group > 1, maximum(least, largest * sizes.e), 0)
    return total
