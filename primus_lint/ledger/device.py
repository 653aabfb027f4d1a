"""Outside PyTorch: the runtime's context, the communicators' buffers (bands of the hardware database), DeepEP's and
TransformerEngine's user buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, round_up, where
from primus_lint.ledger import primus
from primus_lint.ledger.result import DEVICE, Item

if TYPE_CHECKING:
    from primus_lint.hardware import Accelerator
    from primus_lint.ledger.result import RankMemory
    from primus_lint.ledger.sizes import Sizes
    from primus_lint.ledger.states import Stage


def runtime_accelerator(sizes: Sizes, given: Accelerator | None) -> Accelerator:
    """The accelerator whose runtime is meant; without one, the commonest of the recipe's vendor."""
    if given is not None:
        return given
    from primus_lint.hardware import accelerator

    found = accelerator("mi300x" if sizes.run.kernels.vendor == "rocm" else "h100")
    assert found is not None
    return found


def communicators(sizes: Sizes) -> Any:
    """Number of process groups with more than one rank in which a rank communicates."""
    total: Any = 0
    for size in (sizes.tp, sizes.pp, sizes.cp, sizes.ep, sizes.dp, sizes.edp):
        if size is not None:
            total = total + where(size > 1, 1, 0)
    return total


DEEPEP_WORKSPACE_BYTES = 32 << 20
# From this many ranks on: chunk of received tokens of the NVL buffer, and of tokens sent over the network (DeepEP's
# tables of dispatch and combine configurations; the larger of the two).
NVL_CHUNK = ((1, 256), (16, 288), (128, 560), (144, 720))
RDMA_SEND = ((1, 0), (16, 20), (24, 32), (64, 28), (128, 32), (144, 12))


def deepep_bytes(sizes: Sizes) -> Any:
    """Buffers of DeepEP outside PyTorch: NVLink/Infinity Fabric, workspace, and RDMA beyond 8 ranks.

    Source: Primus-Turbo DeepEP `Config` (../shared/reference/byte-accounting-amd.md section 3), the port of DeepEP.
    """
    run = sizes.run
    moe = run.model.moe
    if moe is None or moe.dispatcher != "flex":
        return 0
    units = run.args.get("turbo_deepep_num_cu" if run.kernels.turbo_deepep else "moe_deepep_num_sms") or 20
    ranks = sizes.ep * sizes.tp
    channels, near, far = units // 2, where(ranks < 8, ranks, 8), maximum(ranks // 8, 1)
    token = 2 * (moe.latent_size or sizes.h)
    chunk, send = _step(NVL_CHUNK, ranks), _step(RDMA_SEND, ranks)
    nvl = channels * near * (2 * far + 3) * 4 + channels * near * chunk * (token + 8 + 128 * 16)
    queue = where(send > 0, round_up(128, maximum(send, 1)), 0)
    rdma = channels * far * 18 * 2 * 4 + 2 * channels * far * queue * (token + 8 + 2048 + 16)
    total = round_up(nvl, 128) + 160 + DEEPEP_WORKSPACE_BYTES + where(ranks > 8, round_up(rdma, 128), 0)
    return where(ranks > 1, total, 0)


def _step(table: tuple[tuple[int, int], ...], ranks: Any) -> Any:
    value: Any = 0
    for start, each in table:
        value = where(ranks >= start, each, value)
    return value


USER_BUFFERS = (8, 4)  # gathers and scatters that TE 2.11 overlaps, each with a buffer


def user_buffer_bytes(sizes: Sizes) -> Any:
    """TransformerEngine's user buffers for `tp_comm_overlap`: one per overlapped product, tokens x hidden size, which
    the driver allocates. Gathered inputs are in FP8 when the products are.

    Source: TransformerEngine 2.11 `initialize_ub`, Megatron-LM `initialize_tp_communicators` (read, not measured).
    """
    gathers, scatters = USER_BUFFERS
    wide = 1 if sizes.run.precision.fp8 is not None else sizes.act
    on = sizes.run.kernels.tp_comm_overlap * (sizes.tp > 1)
    return on * sizes.S * sizes.h * (gathers * wide + scatters * sizes.act)


def outside(
    sizes: Sizes, memory: RankMemory, accelerator: Accelerator, groups: Any, allocated: Any, stage: Stage
) -> None:
    """Add the items outside PyTorch and the band of the device bytes, from what is `allocated` at the peak."""
    from primus_lint.hardware.runtime import runtime_bytes

    low, high = runtime_bytes(accelerator, 0)
    total_low, total_high = runtime_bytes(accelerator, groups)
    source = "hardware_db/runtime.yaml"
    memory.items["runtime context"] = Item(high, DEVICE, "{low} to {high} B", {"low": low, "high": high}, source)
    memory.items["communicators"] = Item(
        total_high - high, DEVICE, "{n} groups, {low} to {high} B in all",
        {"n": groups, "low": total_low - low, "high": total_high - high}, source,
    )  # fmt: skip
    deepep = deepep_bytes(sizes)
    if sizes.run.model.moe is not None and sizes.run.model.moe.dispatcher == "flex":
        memory.items["DeepEP buffers"] = Item(deepep, DEVICE, "buffers and workspace", {}, "Primus-Turbo DeepEP Config")
    user = user_buffer_bytes(sizes)
    if sizes.run.kernels.tp_comm_overlap is not False:
        memory.items["TE user buffers"] = Item(user, DEVICE, "buffers of tp_comm_overlap", {}, "TE initialize_ub")
    own = 0
    for name, size in (
        ("MegaMoE heap", primus.mega_moe_heap_bytes(sizes)), ("SDMA gather buffers", primus.sdma_bytes(sizes, stage))
    ):  # fmt: skip
        if not isinstance(size, int) or size:
            memory.items[name] = Item(size, DEVICE, "outside PyTorch's allocator", {}, "Primus, Primus-Turbo")
        own = own + size
    below, above = memory.device_doubt_bytes
    memory.device_low_bytes = allocated - below + total_low + deepep + user + own
    # what is allocated beyond the account fills cached segments first, and free ones are given back before a request fails
    reserved = maximum(memory.peak_reserved_bytes, allocated + above)
    memory.device_high_bytes = reserved + total_high + deepep + user + own
