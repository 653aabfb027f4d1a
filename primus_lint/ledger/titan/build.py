"""The memory account of a TorchTitan recipe: FSDP2 or HSDP with tensor or expert parallelism, AdamW.

Moments of a step at which the peak can lie: the forward of a layer of experts, the backward of the loss, the reduction of
the output layer, moments of the backward of each block, and the reduction of the embedding. Between them a rank holds gathered parameters in bf16, the
flat buffer of the next gather, gradients in bf16 and the fp32 buffer of the last reduce-scatter (torch FSDP2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.formula import maximum, round_up, where
from primus_lint.ir.record import replace
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
from primus_lint.ledger.titan.experts import (
    combining_bytes,
    freed_bytes,
    products_backward_bytes,
    routed_bytes,
    weighing_backward_bytes,
)
from primus_lint.ledger.titan.sizes import LINEAR_FLOAT8, Sizes, abstain, kernels_of, sizes_of, turbo

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
    even = all(group.even for group in params.groups(s))
    each = s.tp * s.replicate
    shards = [("all", 0, s.shard * each)] if even else [("first", 0, (s.shard - 1) * each), ("last", s.shard - 1, each)]
    ranks = tuple(account(s, v, *shard, accelerator) for shard in shards)
    if s.kernels.norm == "fused":
        wide = sizes_of(v, replace(s.kernels, norm="decomposed"))
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
    kernels = kernels_of(v)
    found = ["whether PyTorch fuses RMSNorm (the high estimate: it does not)"]
    if kernels.compiled:
        found = ["what torch.compile keeps for the backward pass (taken as by the partitioner of PyTorch 2.13)"]
    if v["experts"]:
        found.append("peaks inside a layer of experts (within 7 % of the real model's in eager mode)")
    if turbo(v, "use_turbo_float8_linear") and LINEAR_FLOAT8 in v["converters"]:
        found.append(
            "Primus-Turbo's float8 layers, which keep float8 copies (taken as torchao's, which the converter names)"
        )
    return tuple(f"torchtitan: {text}" for text in found)


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
    layers = [activations.kept_parts(s, layer) for layer in range(s.layers)]
    head = activations.head_bytes(s)
    for part in dict.fromkeys(name for parts in layers for name in parts):
        each = [parts[part] for parts in layers if part in parts]
        items[f"activations {part}"] = Item(
            sum(each), ACTIVATION, "{n} x {b} B a block of {t} tokens",
            {"n": len(each), "b": sum(each) // len(each), "t": s.tokens}, SOURCE,
        )  # fmt: skip
    kept = sum(sum(parts.values()) for parts in layers)
    items["activations head"] = Item(head, ACTIVATION, "final norm, {t} tokens", {"t": s.tokens}, SOURCE)
    memory.moments = moments(s, base, gradients, kept + head)
    for name, value in memory.moments.items():
        if value > memory.peak_allocated_bytes:
            memory.peak_allocated_bytes, memory.peak_moment = value, name
    peak = memory.peak_allocated_bytes
    extra = peak - memory.steady_allocated_bytes - kept - head  # negative where gradients are not there yet
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
    moe = s.experts
    if moe is not None and moe.ep > 1 and not moe.balanced:
        doubt_load(memory, sum(routed_bytes(s, moe) for layer in range(s.layers) if s.keeps_rows(layer)))
    return memory


def doubt_load(memory: RankMemory, routed: int) -> None:
    """The rows that a rank's experts receive depend on the router: a wider band of the kept ones."""
    from primus_lint.ledger.band import expert_load

    doubt = memory.doubts["expert load"] = expert_load(routed)
    memory.peak_reserved_bytes += doubt.peak_high
    memory.device_low_bytes -= doubt.peak_low
    memory.device_high_bytes += doubt.peak_high


def static_items(s: Sizes, rank: int) -> dict[str, Item]:
    """Weights, gradients and moments in fp32, the rotary table, the batch."""
    groups = params.stored(s)
    stored = sum(group.shard for group in groups)
    # A group over fewer ranks is the same on neighbours: they hold other experts.
    owned = sum(group.owned(rank * group.ranks // s.shard) for group in groups)
    counters = params.tensors(s)
    items = {
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
    if s.float8 is not None and s.float8.gathered:
        scales = sum(activations.linears(s, layer) for layer in range(s.layers)) + s.float8.output
        items["float8 scales"] = Item(
            4 * scales, PERSISTENT, "{n} float8 weights x 4 B", {"n": scales}, "torchao 0.15, float8/fsdp_utils.py"
        )
    moe = s.experts
    if moe is not None:
        counts = 4 * moe.count * (2 if moe.bias else 1)
        order = 4 * moe.rows(s.tokens) if moe.ep > 1 else 0
        items["routing"] = Item(
            s.expert_layers * (counts + order), PERSISTENT, "{n} layers x ({c} B of loads and biases + {o} B of row order)",
            {"n": s.expert_layers, "c": counts, "o": order}, SOURCE,
        )  # fmt: skip
    return items


def moments(s: Sizes, base: int, gradients: int, kept: int) -> dict[str, int]:
    """Allocated bytes at each moment that can be the peak.

    `base`: what stays all the time without gradients; `kept`: what all blocks and the head keep. With accumulation the
    gradients of the pass before are still there, and the new ones come on top for the group that is reduced.
    """
    if s.accumulation > 1:
        base = base + gradients
    embedding, output = params.embedding(s), params.output(s)
    blocks = [own for own, _ in params.blocks(s)]
    everything = sum(group.gathered_bytes for group in params.groups(s))
    # What the forward pass leaves gathered: the last group, which backward needs first, or all.
    left = {"default": output.gathered_bytes, "always": 0, "never": everything}[s.reshard]
    found = {"backward of the loss": base + kept + left + activations.loss_bytes(s)}
    gathered = everything - output.gathered_bytes if s.reshard == "never" else 0
    held = kept - activations.head_bytes(s)
    scalars = 8
    found["reduction of the output layer"] = (
        base + held + activations.input_bytes(s) + 2 * s.vocab // s.tp * s.hidden + 4 * output.gathered
        + (gathered or blocks[-1].gathered_bytes) + 4 * output.shard + scalars
    )  # fmt: skip
    if s.experts is not None:
        forward = max(forward_moments(s, base))
        if forward:
            found["forward of the experts"] = forward
    found["backward of a block"] = max(block_moments(s, base, held, scalars))
    done = sum(group.shard for group in params.groups(s)) - embedding.shard
    first = blocks[0].gathered
    whole = 2 * s.vocab * s.hidden  # every tensor-parallel rank makes the gradient of the whole vocabulary
    found["backward of the embedding"] = (
        base
        + 4 * done
        + 4 * first
        + embedding.gathered_bytes
        + whole
        + (2 * embedding.numel if s.tp > 1 else 0)
        + scalars
    )
    found["reduction of the embedding"] = (
        base + 4 * (done + embedding.shard) + 4 * embedding.gathered + 2 * embedding.numel + scalars
    )
    return found


def forward_moments(s: Sizes, base: int) -> list[int]:
    """Where the outputs of the experts are added up, in each layer of experts that recomputes nothing: what is kept so
    far, the gathered parameters of the layer, and of the next one where they are asked for ahead."""
    found = [0]
    kept = 0
    gathered = params.embedding(s).gathered_bytes if s.reshard == "never" else 0
    blocks = params.blocks(s)
    for layer in range(s.layers):
        kept += activations.kept_bytes(s, layer)
        moe = s.experts_of(layer)
        whole = params.whole_bytes(blocks[layer])
        if moe is not None and not s.wrapped(layer):
            ahead = 0
            if moe.ep > 1:
                ahead = (
                    params.whole_bytes(blocks[layer + 1]) if layer + 1 < s.layers else params.output(s).gathered_bytes
                )
            inputs = activations.residual_bytes(s) * 2
            found.append(base + kept + gathered + whole + ahead + inputs + combining_bytes(s, moe))
        gathered += whole if s.reshard == "never" else 0
    return found


def block_moments(s: Sizes, base: int, blocks: int, scalars: int) -> list[int]:
    """The backward of each block: when it begins (everything recomputed), when its first norm ends it, and at Qwen3's
    norm of the queries; in a layer of experts also those of `expert_moments`.

    Alive are the blocks before it, its gathered parameters, the flat gather of the one before, the reduce-scatter
    buffer of the one after and the shards of all gradients after it.
    """
    embedding = params.embedding(s)
    found = []
    before = blocks
    later = params.output(s)
    done = later.shard
    groups = params.blocks(s)
    whole = [params.whole_bytes(group) for group in groups]
    for layer in reversed(range(s.layers)):
        (block, experts), moe = groups[layer], s.experts_of(layer)
        before -= activations.kept_bytes(s, layer)
        held = base + before + 4 * done + scalars
        recomputed = activations.block_bytes(s, layer)
        if s.reshard != "never":  # the flat gather is still there while it is copied into the parameters
            own = activations.kept_bytes(s, layer) + activations.input_bytes(s)
            found.append(held + own + 4 * later.gathered + 2 * whole[layer])
        if s.reshard == "never":  # nothing is gathered again: the blocks before it and the embedding are there
            held += sum(whole[:layer]) + embedding.gathered_bytes
        else:
            held += whole[layer - 1] if layer else embedding.gathered_bytes
        held += activations.input_bytes(s) if s.wrapped(layer) else 0
        gathered = 4 * later.gathered + whole[layer]
        opening = 4 * s.tokens * (s.ffn // s.tp) + 2 * s.part * s.hidden  # gradients of both products, of the output
        opening += activations.casting_bytes(s, s.ffn)
        if moe is None:
            found.append(held + gathered + recomputed + opening)
            reducing = 4 * later.gathered
        else:
            weights = params.routed_weights(s, moe)
            tokens = 2 * s.tokens * s.hidden
            if s.wrapped(layer):  # the forward pass again, with the gradient of the output, in fp32 where it is weighed
                forward = combining_bytes(s, moe) + activations.residual_bytes(s)
                found.append(held + gathered + recomputed + forward + (1 if moe.scored_before else 3) * tokens)
            found.append(held + gathered + recomputed + weighing_backward_bytes(s, moe))
            left = recomputed - freed_bytes(s, moe) + tokens
            found.append(held + gathered + left + products_backward_bytes(s, moe, weights))
            if experts is not None:
                # A group of one rank copies its gradients instead, by way of a divided copy.
                reduced = maximum(2 * weights, experts.shard * (8 if experts.ranks == 1 else 4))
                rows = 2 * moe.routed(s.tokens) * s.hidden
                found.append(held + block.gathered_bytes + left + 4 * experts.gathered + reduced + rows)
            reducing = 4 * (experts or later).gathered
        done += experts.shard if experts else 0
        held += 4 * experts.shard if experts else 0
        found.append(held + reducing + block.gathered_bytes + 2 * block.numel + activations.norm_backward_bytes(s))
        if s.qwen:
            found.append(held + reducing + block.gathered_bytes + activations.head_norm_backward_bytes(s))
        done += block.shard
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
