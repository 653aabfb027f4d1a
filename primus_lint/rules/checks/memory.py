"""Does the recipe fit? With a world size: on every rank; without one: at which of the legal sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make
from primus_lint.units import gib, gpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.hardware import Accelerator
    from primus_lint.ledger import Ledger, RankMemory
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

# Which key to point at when a group of items is the largest: the first that the file sets.
MEGATRON = {
    "static": (
        "pipeline_model_parallel_size", "expert_model_parallel_size", "tensor_model_parallel_size",
        "use_distributed_optimizer", "num_layers",
    ),
    "activation": (
        "micro_batch_size", "seq_length", "recompute_granularity", "recompute_num_layers", "context_parallel_size",
        "tensor_model_parallel_size",
    ),
    "transient": ("micro_batch_size", "seq_length", "cross_entropy_loss_fusion", "tensor_model_parallel_size"),
    "persistent": ("fp8", "pipeline_model_parallel_size", "expert_model_parallel_size"),
}  # fmt: skip
RECOMPUTE = "recompute_granularity"
_BATCH = ("training.local_batch_size", "training.seq_len")
TORCHTITAN = {
    "static": ("parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree", "model.flavor"),
    "activation": (*_BATCH, "activation_checkpoint.mode", "parallelism.tensor_parallel_degree"),
    "transient": (*_BATCH, "compile.components", "parallelism.fsdp_reshard_after_forward"),
    "persistent": _BATCH,
}
GROUP_WORDS = {
    "static": "weights, gradients and optimizer state",
    "persistent": "persistent buffers",
    "activation": "activations",
    "transient": "transients",
}


def hbm_overflow(subject: Subject, accelerator: Accelerator, rule: dict[str, Any]) -> Iterator[Finding]:
    """An error when even the low estimate of some rank exceeds the device."""
    if subject.target.world_size is None:
        yield from _at_no_size(subject, accelerator, rule)
        return
    ledger = subject.ledger
    if ledger is None or ledger.fits(accelerator.visible_hbm_bytes) is not False:
        return
    rank = max(ledger.ranks, key=lambda rank: rank.device_low_bytes)
    message = (
        f"{where(rank, ledger)} needs {gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}, {accelerator.label} shows "
        f"{gib(accelerator.visible_hbm_bytes)}: out of memory by at least "
        f"{gib(rank.device_low_bytes - accelerator.visible_hbm_bytes)}"
    )
    yield _finding(subject, rule, message, rank)


def hbm_tight(subject: Subject, ledger: Ledger, accelerator: Accelerator, rule: dict[str, Any]) -> Iterator[Finding]:
    """A warning when only the high estimate of some rank exceeds the device."""
    if ledger.fits(accelerator.visible_hbm_bytes) is not None:
        return
    rank = ledger.worst_rank
    message = (
        f"{where(rank, ledger)} needs {gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}, {accelerator.label} "
        f"shows {gib(accelerator.visible_hbm_bytes)}: it may run out of memory"
    )
    yield _finding(subject, rule, message, rank)


def _at_no_size(subject: Subject, accelerator: Accelerator, rule: dict[str, Any]) -> Iterator[Finding]:
    """Without a world size: an error when it fits at no legal size."""
    sizes = subject.legal_world_sizes
    if not sizes:
        return
    size, ledger = subject.roomiest
    if ledger is None or ledger.fits(accelerator.visible_hbm_bytes) is not False:
        return
    rank = max(ledger.ranks, key=lambda rank: rank.device_low_bytes)
    message = (
        f"fits on {accelerator.label} at no world size at which it is legal: even on {gpus([size])} "
        f"{where(rank, ledger)} needs {gib(rank.device_low_bytes)} of {gib(accelerator.visible_hbm_bytes)}"
    )
    yield _finding(subject, rule, message, rank)


def roomiest(subject: Subject, accelerator: Accelerator, sizes: list[int]) -> tuple[int, Ledger | None]:
    """The largest legal size at which the recipe may fit, else the one at which a rank needs least; and its account.

    More ranks shard more state. Only what is cut over more ranks than it has rows grows again, by its padding:
    TorchTitan's experts without expert parallelism. So where it does not fit at the largest size, those between (the
    powers of two) and small ones are tried.
    """
    size = sizes[-1]
    ledger = subject.at_world(size, legal=True).ledger
    if ledger is None or subject.framework != "torchtitan" or ledger.fits(accelerator.visible_hbm_bytes) is not False:
        return size, ledger
    doubled = [max(other for other in sizes if other <= bound) for bound in _powers(sizes[0], size)]
    for other in sorted({*sizes[:32], *doubled}, reverse=True):
        account = subject.at_world(other, legal=True).ledger
        if account is not None and account.device_bytes[0] < ledger.device_bytes[0]:
            size, ledger = other, account
        if ledger.fits(accelerator.visible_hbm_bytes) is not False:
            break
    return size, ledger


def _powers(low: int, high: int) -> list[int]:
    """Powers of two from `low` to `high`."""
    return [1 << bits for bits in range(high.bit_length()) if low <= 1 << bits <= high]


def fits_from(subject: Subject, accelerator: Accelerator, sizes: list[int]) -> int | None:
    """The smallest of the ascending sizes at which the recipe is not sure to overflow; None when there is none.

    Bisection up to the size that needs least: more ranks shard more state and hold no more micro batches.
    """
    largest, _ = subject.roomiest
    sizes = sizes[: sizes.index(largest) + 1]
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        ledger = subject.at_world(sizes[middle], legal=True).ledger
        if ledger is not None and ledger.fits(accelerator.visible_hbm_bytes) is False:
            low = middle + 1
        else:
            high = middle
    return sizes[low] if low < len(sizes) else None


def fits_at_some_sizes(subject: Subject, accelerator: Accelerator, rule: dict[str, Any]) -> Iterator[Finding]:
    """Without a world size: say from which legal size on it fits, when it does not at the smallest."""
    if subject.target.world_size is not None:
        return
    sizes = subject.legal_world_sizes
    if len(sizes) < 2:
        return
    first = fits_from(subject, accelerator, sizes)
    if first is None or first == sizes[0]:
        return
    too_small = [size for size in sizes if size < first]
    rank_ledger = subject.at_world(too_small[-1], legal=True).ledger
    assert rank_ledger is not None
    rank = max(rank_ledger.ranks, key=lambda rank: rank.device_low_bytes)
    message = (
        f"legal on {gpus(too_small)}, but out of memory there on {accelerator.label} "
        f"({gib(rank.device_low_bytes)} at {too_small[-1]:,}); it fits from {gpus([first])} on"
    )
    yield make(rule, subject.lowered, message, driver_keys(rank, subject), notes=(itemised(rank),))


def where(rank: RankMemory, ledger: Ledger) -> str:
    stages = max(other.pp_rank for other in ledger.ranks) + 1
    return "every rank" if stages == 1 else f"pipeline rank {rank.pp_rank} of {stages}"


def drivers(subject: Subject) -> dict[str, tuple[str, ...]]:
    """Group of items -> the keys that move it."""
    if subject.framework == "megatron_bridge":
        return {group: _sections_own(subject, keys) for group, keys in MEGATRON.items()}
    return TORCHTITAN if subject.framework == "torchtitan" else MEGATRON


def _sections_own(subject: Subject, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys that a recipe of Megatron-Bridge takes, in its names; last what stands for all that it sets itself."""
    from primus_lint.lower.bridge.megatron import key_of

    found = dict.fromkeys(key_of(key, subject.section) for key in keys)
    return (*(key for key in found if key != "flavor"), "flavor")


def driver_keys(rank: RankMemory, subject: Subject) -> tuple[str, ...]:
    """The keys that move the largest group of a rank's items."""
    table = drivers(subject)
    largest = max(table, key=lambda group: rank.total(group))
    others = [key for group in table if group != largest for key in table[group]]
    keys = list(table[largest])
    return tuple(keys + [key for key in others if key not in keys][:2])


def itemised(rank: RankMemory) -> str:
    """One line: the groups and, in them, the largest items."""
    parts = []
    for group in ("static", "persistent", "activation", "transient"):
        total = sum(item.bytes for item in rank.items.values() if item.group == group and item.bytes > 0)
        if total:
            parts.append(f"{GROUP_WORDS[group]} {gib(total)}")
    less = [(name, item.bytes) for name, item in rank.device_items.items() if item.bytes < 0]
    # what the allocator reserves beyond the peak is in the high end of the band alone
    kept = [(name, item) for name, item in rank.device_items.items() if item.group in GROUP_WORDS]
    items = sorted(kept, key=lambda pair: -pair[1].bytes)
    shown = ", ".join(f"{name} {gib(item.bytes)}" for name, item in items[:5] if item.bytes)
    parts += [f"less {name} {gib(-size)}" for name, size in less]
    return f"ledger: {'; '.join(parts)} (largest: {shown})"


def _finding(subject: Subject, rule: dict[str, Any], message: str, rank: RankMemory) -> Finding:
    keys = driver_keys(rank, subject)
    table = drivers(subject)
    largest = max(table, key=lambda group: rank.total(group))
    section = subject.section
    first = next((key for key in table[largest] if _set_here(subject, key)), None)
    if first is not None:
        keys = (first, *(key for key in keys if key != first))
    label = f"{GROUP_WORDS[largest]}: {gib(rank.total(largest))}"
    notes = [itemised(rank)]
    if rank.peak_moment:
        notes.append(f"peak: {_peak(subject, rank)}")
    for text in subject.not_modelled:
        notes.append(f"not modelled: {text}")
    assert section is not None
    labels = [(keys[0], label)]
    keys = tuple(key for key in keys if key == keys[0] or _set_here(subject, key))  # others only fill the screen
    run = subject.run
    if largest == "activation" and run is not None and run.recompute.granularity is None:
        key = _sections_own(subject, (RECOMPUTE,))[0] if subject.framework == "megatron_bridge" else RECOMPUTE
        labels.append((key, "nothing is recomputed"))
        keys = (*(other for other in keys if other != key), key)
    return make(rule, subject.lowered, message, keys, labels=tuple(labels), notes=tuple(notes))


def _peak(subject: Subject, rank: RankMemory) -> str:
    """The event at which a rank allocates most, and what crosses the device's limit first."""
    run, ledger, accelerator = subject.run, subject.ledger, subject.accelerator
    if run is None or ledger is None or accelerator is None:
        return rank.peak_moment
    from primus_lint.ledger.walk import first_over, peak_words

    text = peak_words(run, rank)
    found = first_over(run, ledger, accelerator.visible_hbm_bytes)
    if found is None:
        return text
    point = found.point
    return f"{text}; first byte over: {point.item} ({gib(point.size)}) at {point.moment}, pipeline rank {found.rank.pp_rank}"


def _set_here(subject: Subject, key: str) -> bool:
    origin = subject.section.origin(key)
    return origin is not None and origin.path == subject.document.path and origin.line > 0
