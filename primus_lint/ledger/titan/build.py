"""The memory account of a TorchTitan recipe: FSDP2 or HSDP with tensor parallelism, AdamW, Llama 3 and dense Qwen3.

Moments of a step at which the peak can lie: the backward of the loss, the reduction of the output layer, the end of the
backward of each block, and the reduction of the embedding. Between them a rank holds gathered parameters in bf16, the
flat buffer of the next gather, gradients in bf16 and the fp32 buffer of the last reduce-scatter (torch FSDP2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.formula import maximum, round_up, where
from primus_lint.ledger.allocator import SMALL_SEGMENT_BYTES, WASTE_PERCENT
from primus_lint.ledger.result import (
    ACTIVATION,
    ALLOCATOR,
    DEVICE,
    PERSISTENT,
    STATIC,
    TRANSIENT,
    Abstention,
    Item,
    Ledger,
    RankMemory,
)
from primus_lint.ledger.titan import activations, params
from primus_lint.ledger.titan.sizes import Kernels, Sizes, abstain, kernels_of, sizes_of

if TYPE_CHECKING:
    from primus_lint.hardware import Accelerator
    from primus_lint.lower.megatron.namespace import Namespace

SOURCE = "torchtitan v0.2.2, torch FSDP2"


def ledger(v: Namespace, accelerator: Accelerator | None = None) -> Ledger | Abstention:
    """The account of a recipe in its namespace, or an `Abstention` that says why there is none.

    Without a compiled model the high estimate is that of RMSNorm in single operations: newer PyTorch fuses it.
    """
    reasons = abstain(v)
    if reasons:
        return Abstention(reasons)
    s = sizes_of(v)
    groups = (params.embedding(s), params.block(s), params.output(s))
    even = all(parameter.rows % s.shard == 0 for group in groups for parameter in group.parameters)
    each = s.tp * s.replicate
    shards = [("all", 0, s.shard * each)] if even else [("first", 0, (s.shard - 1) * each), ("last", s.shard - 1, each)]
    ranks = tuple(account(s, v, *shard, accelerator) for shard in shards)
    if s.kernels.norm == "fused":
        wide = sizes_of(v, Kernels(norm="decomposed", flash_saved=True, loss=s.kernels.loss))
        for rank, shard in zip(ranks, shards, strict=True):
            upper = account(wide, v, *shard, accelerator)
            rank.peak_reserved_bytes, rank.device_high_bytes = upper.peak_reserved_bytes, upper.device_high_bytes
            reserve = rank.peak_reserved_bytes - rank.peak_allocated_bytes
            rank.items["allocator"] = Item(
                reserve, ALLOCATOR, "{v} B beyond the peak, with norms in single operations", {"v": reserve}, SOURCE
            )
    return Ledger(ranks, open_points(v))


def open_points(v: Namespace) -> tuple[str, ...]:
    """What the account does not know, or why there is none (a missing world size apart)."""
    reasons = abstain(v)
    if reasons:
        return tuple(reason for reason in reasons if "world size" not in reason)
    if kernels_of(v).norm == "compiled":
        return ("torchtitan: what torch.compile keeps for the backward pass (estimated)",)
    return ("torchtitan: whether PyTorch fuses RMSNorm (the high estimate: it does not)",)


def account(
    s: Sizes, v: Namespace, position: str, rank: int, count: int, accelerator: Accelerator | None
) -> RankMemory:
    """One class of ranks: `rank` is the index among those that share the parameters."""
    items = static_items(s, rank)
    memory = RankMemory(0, position, count, items)
    memory.static_bytes = memory.total(STATIC)
    gradients = items["gradients"].bytes
    memory.steady_allocated_bytes = memory.static_bytes + memory.total(PERSISTENT)
    base = memory.steady_allocated_bytes - gradients
    kept = sum(activations.kept_bytes(s, layer) for layer in range(s.layers))
    head = activations.head_bytes(s)
    items["activations blocks"] = Item(
        kept, ACTIVATION, "{n} blocks, {t} tokens", {"n": s.layers, "t": s.tokens}, SOURCE
    )
    items["activations head"] = Item(head, ACTIVATION, "final norm, {t} tokens", {"t": s.tokens}, SOURCE)
    memory.moments = moments(s, base, gradients, kept + head)
    for name, value in memory.moments.items():
        if value > memory.peak_allocated_bytes:
            memory.peak_allocated_bytes, memory.peak_moment = value, name
    peak = memory.peak_allocated_bytes
    extra = maximum(peak - memory.steady_allocated_bytes - kept - head, 0)
    items["transients"] = Item(
        extra, TRANSIENT, "{extra} B above the kept tensors ({moment})",
        {"extra": extra, "moment": memory.peak_moment}, SOURCE,
    )  # fmt: skip
    waste = 0 if expandable(v) else maximum(peak - memory.steady_allocated_bytes, 0) * WASTE_PERCENT // 100
    memory.peak_reserved_bytes = round_up(peak + waste, SMALL_SEGMENT_BYTES)
    reserve = memory.peak_reserved_bytes - peak
    items["allocator"] = Item(
        reserve, ALLOCATOR, "{v} B reserved beyond the peak", {"v": reserve}, "PyTorch CUDACachingAllocator"
    )
    outside(memory, s, accelerator, v)
    return memory


def static_items(s: Sizes, rank: int) -> dict[str, Item]:
    """Weights, gradients and moments in fp32, the rotary table, the batch."""
    groups = [params.embedding(s), *[params.block(s)] * s.layers, params.output(s)]
    stored = sum(group.shard(s.shard) for group in groups)
    owned = sum(group.owned(s.shard, rank) for group in groups)
    counters = params.tensors(s)
    return {
        "weights": Item(4 * stored, STATIC, "{n} stored elements x 4 B", {"n": stored}, SOURCE),
        "gradients": Item(4 * stored, STATIC, "{n} stored elements x 4 B", {"n": stored}, SOURCE),
        "optimizer moments": Item(
            8 * owned + 4 * counters, STATIC, "{n} owned elements x 8 B + {c} step counters x 4 B",
            {"n": owned, "c": counters}, SOURCE,
        ),
        "rotary table": Item(
            s.rotary_bytes, PERSISTENT, "{t} positions x {d} B", {"t": s.seq, "d": s.rotary_bytes // s.seq}, SOURCE
        ),
        "batch": Item(2 * 8 * s.tokens, PERSISTENT, "{t} tokens and labels x 8 B", {"t": s.tokens}, SOURCE),
    }  # fmt: skip


def moments(s: Sizes, base: int, gradients: int, kept: int) -> dict[str, int]:
    """Allocated bytes at each moment that can be the peak.

    `base`: what stays all the time without gradients; `kept`: what all blocks and the head keep. With accumulation the
    gradients of the pass before are still there, and the new ones come on top for the group that is reduced.
    """
    ranks = s.shard
    if s.accumulation > 1:
        base = base + gradients
    embedding, block, output = params.embedding(s), params.block(s), params.output(s)
    everything = 2 * (embedding.gathered(ranks) + s.layers * block.gathered(ranks) + output.gathered(ranks))
    # What the forward pass leaves gathered: the last group, which backward needs first, or all.
    left = {"default": 2 * output.gathered(ranks), "always": 0, "never": everything}[s.reshard]
    found = {"backward of the loss": base + kept + left + activations.loss_bytes(s)}
    gathered = everything - 2 * output.gathered(ranks) if s.reshard == "never" else 0
    blocks = kept - activations.head_bytes(s)
    scalars = 8
    found["reduction of the output layer"] = (
        base + blocks + activations.input_bytes(s) + 2 * s.vocab // s.tp * s.hidden + 4 * output.gathered(ranks)
        + (gathered or 2 * block.gathered(ranks)) + 4 * output.shard(ranks) + scalars
    )  # fmt: skip
    found["backward of a block"] = max(block_moments(s, base, blocks, scalars))
    done = s.layers * block.shard(ranks) + output.shard(ranks)
    whole = 2 * s.vocab * s.hidden  # every tensor-parallel rank makes the gradient of the whole vocabulary
    found["backward of the embedding"] = (
        base + 4 * done + 4 * block.gathered(ranks) + 2 * embedding.gathered(ranks) + whole
        + (2 * embedding.numel if s.tp > 1 else 0) + scalars
    )  # fmt: skip
    found["reduction of the embedding"] = (
        base + 4 * (done + embedding.shard(ranks)) + 4 * embedding.gathered(ranks) + 2 * embedding.numel + scalars
    )
    return found


def block_moments(s: Sizes, base: int, blocks: int, scalars: int) -> list[int]:
    """The backward of each block: when it begins (everything recomputed), when its first norm ends it, and at Qwen3's
    norm of the queries.

    Alive are the blocks before it, its gathered parameters, the flat gather of the one before, the reduce-scatter
    buffer of the one after and the shards of all gradients after it.
    """
    ranks = s.shard
    embedding, block, output = params.embedding(s), params.block(s), params.output(s)
    found = []
    before = blocks
    done = output.shard(ranks)
    later = output
    for layer in reversed(range(s.layers)):
        own = activations.kept_bytes(s, layer)
        before -= own
        ahead = block if layer else embedding
        held = base + before + 4 * done + 4 * later.gathered(ranks) + 2 * block.gathered(ranks) + scalars
        if s.reshard == "never":  # nothing is gathered again: the blocks before it and the embedding are there
            held += 2 * (layer * block.gathered(ranks) + embedding.gathered(ranks))
        else:
            held += 2 * ahead.gathered(ranks)
        inputs = activations.input_bytes(s) if s.wrapped(layer) else 0
        recomputed = activations.block_bytes(s)
        opening = 4 * s.tokens * (s.ffn // s.tp) + 2 * s.part * s.hidden  # gradients of both products, of the output
        found.append(held + inputs + recomputed + opening)
        found.append(held + inputs + 2 * block.numel + activations.norm_backward_bytes(s))
        if s.qwen:
            found.append(held + inputs + activations.head_norm_backward_bytes(s))
        done += block.shard(ranks)
        later = block
    return found


def expandable(v: Namespace) -> bool:
    """Whether the environment asks PyTorch for expandable segments."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:true" in str(v["env_" + name] or "").lower().replace(" ", ""):
            return True
    return False


def outside(memory: RankMemory, s: Sizes, accelerator: Accelerator | None, v: Namespace) -> None:
    """Context and communicators: the band of the device bytes."""
    from primus_lint.hardware import accelerator as named
    from primus_lint.hardware.runtime import runtime_bytes

    device = accelerator or named("mi300x" if v["vendor"] == "rocm" else "h100")
    assert device is not None
    # World, batch, loss, sharding, and each axis of its own above one rank.
    groups = 4 + where(s.tp > 1, 1, 0) + where(s.replicate > 1, 1, 0)
    low, high = runtime_bytes(device, 0)
    total_low, total_high = runtime_bytes(device, groups)
    memory.items["runtime context"] = Item(
        high, DEVICE, "{low} to {high} B", {"low": low, "high": high}, "hardware_db/runtime.yaml"
    )
    memory.items["communicators"] = Item(
        total_high - high, DEVICE, "{n} groups, {low} to {high} B in all",
        {"n": groups, "low": total_low - low, "high": total_high - high}, "hardware_db/runtime.yaml",
    )  # fmt: skip
    memory.device_low_bytes = memory.peak_allocated_bytes + total_low
    memory.device_high_bytes = memory.peak_reserved_bytes + total_high
