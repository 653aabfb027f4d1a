"""`explain FILE --memory`: the memory of each class of rank item by item, in at most 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from primus_lint.ledger.result import ACTIVATION, ALLOCATOR, DEVICE, HOSTS, PERSISTENT, STATIC, TRANSIENT
from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ledger.result import Item, RankMemory
    from primus_lint.subject import Subject

WIDTH = 100
FEW = 2  # classes of ranks that are all shown item by item
NAME, BYTES, GIB = 32, 19, 10
FORMULA = NAME + BYTES + GIB + 2
HOST_NOT_COUNTED = (
    "the memory of the processes themselves (interpreter, libraries, runtime), of data workers beside their batches, "
    "the index and page cache of data files, host buffers of communicators"
)
GROUPS = (
    ("states", (STATIC,), "static"),
    ("there all the time", (PERSISTENT,), "steady"),
    ("kept for the backward pass, at the peak", (ACTIVATION,), ""),
    ("for the moment", (TRANSIENT,), "peak allocated"),
    ("caching allocator", (ALLOCATOR,), "peak reserved"),
    ("outside PyTorch", (DEVICE,), "device, high"),
    ("host memory", HOSTS, ""),
)


def lines(subject: Subject, pp_rank: int | None = None) -> Iterator[str]:
    """The tables of the ranks asked for, the first byte over the device's limit, and what clears it."""
    ledger = subject.ledger
    assert ledger is not None
    shown = [rank for rank in ledger.ranks if pp_rank in (None, rank.pp_rank)]
    if pp_rank is None and len(shown) > FEW:
        yield from summary_lines(subject)
        shown = [ledger.worst_rank]
    for rank in shown:
        yield from rank_lines(subject, rank)
        if pp_rank is not None and subject.run is not None:
            yield from tensor_lines(subject, pp_rank)
        yield ""
    yield from limit_lines(subject)
    yield from host_lines(subject)
    for text in subject.not_modelled:
        yield from wrapped(f"not modelled: {text}", 0)


def summary_lines(subject: Subject) -> Iterator[str]:
    """One line a class of ranks: GPUs, states, peak, device band, and the moment of the peak."""
    ledger = subject.ledger
    assert ledger is not None
    yield f"{'rank':>9} {'GPUs':>6} {'states':>10} {'peak':>10} {'device, low to high':>24}  peak at"
    for rank in ledger.ranks:
        name = f"{rank.pp_rank}" + ("" if rank.dp == "all" else f" {rank.dp} dp")
        band = f"{gib(rank.device_low_bytes)} to {gib(rank.device_high_bytes)}"
        moment = _moment(subject, rank, rank.peak_moment).replace(" of micro-batch", "").replace(" in chunk", ", chunk")
        sizes = f"{gib(rank.static_bytes):>10} {gib(rank.peak_allocated_bytes):>10} {band:>24}"
        yield f"{name:>9} {rank.count:>6,} {sizes}  {moment}"
    yield f"the heaviest, pipeline rank {ledger.worst_rank.pp_rank}, item by item (--rank N shows another):"
    yield ""


def rank_lines(subject: Subject, rank: RankMemory) -> Iterator[str]:
    """One class of rank: its items in the order in which they add up."""
    which = {"all": "", "first": ", first data-parallel ranks", "last": ", last data-parallel rank"}[rank.dp]
    yield f"pipeline rank {rank.pp_rank}{which} ({rank.count:,} GPUs)"
    sources: list[str] = []
    for title, groups, total in GROUPS:
        items = [(name, item) for name, item in rank.items.items() if item.group in groups and item.bytes]
        if not items:
            continue
        yield f"  {title}"
        for name, item in items:
            yield from item_lines(name.removeprefix("host "), item, sources)
        if total:
            yield row(f"= {total}", _totals(rank)[total])
        if total == "device, high":
            yield row("= device, low", rank.device_low_bytes)
    yield "  moments (allocated)"
    for name, size in rank.moments.items():
        mark = "> " if name == rank.peak_moment else "  "
        yield f"  {mark}{_moment(subject, rank, name):58}{int(size):>{BYTES - 2},} B{gib(size):>{GIB}}"
    yield from doubt_lines(rank)
    for number, source in enumerate(sources, 1):
        yield from wrapped(f"[{number}] {source}", 2)


def doubt_lines(rank: RankMemory) -> Iterator[str]:
    """What the recipe does not settle: bytes below and above the peak, and why; the bands that they make."""
    if not rank.doubts:
        return
    yield "  what the recipe does not settle (allocated at the peak)"
    for name, doubt in rank.doubts.items():
        if doubt.peak_low or doubt.peak_high:
            shown = f"-{int(doubt.peak_low):,} to +{int(doubt.peak_high):,} B: {doubt.reason}"
            yield from wrapped(f"{name}: {shown}", 4)
    bands = (
        ("steady", rank.steady_band_bytes),
        ("peak allocated", rank.peak_band_bytes),
        ("peak reserved", rank.reserved_band_bytes),
    )
    for name, (low, high) in bands:
        yield f"  = {name}, band: {int(low):,} to {int(high):,} B ({gib(low)} to {gib(high)})"
        if high > rank.device_high_bytes:
            yield "      its high end is above that of the device: free segments are given back before a request fails"


def _totals(rank: RankMemory) -> dict[str, int]:
    return {
        "static": rank.static_bytes,
        "steady": rank.steady_allocated_bytes,
        "peak allocated": rank.peak_allocated_bytes,
        "peak reserved": rank.peak_reserved_bytes,
        "device, high": rank.device_high_bytes,
    }


def _moment(subject: Subject, rank: RankMemory, name: str) -> str:
    """A moment by name; the one of forward and backward as the event that it is."""
    from primus_lint.ledger import peak
    from primus_lint.ledger.walk import event_words

    if name != peak.MOMENT or subject.run is None:
        return name
    return event_words(subject.run, rank)


def item_lines(name: str, item: Item, sources: list[str]) -> Iterator[str]:
    """An item: bytes, GiB, the formula with its numbers (on lines of its own when it is long) and its source."""
    if item.source not in sources:
        sources.append(item.source)
    formula = f"{item.formula} [{sources.index(item.source) + 1}]"
    head = row(name, item.bytes, indent=4)
    if len(formula) <= WIDTH - FORMULA:
        yield f"{head:{FORMULA}}{formula}"
        return
    yield head
    yield from wrapped(formula, 8)


def row(name: str, size: int, indent: int = 2) -> str:
    left = " " * indent + name
    if len(left) > NAME:
        return f"{left}  {size:,} B  {gib(size)}"
    return f"{left:{NAME}}{size:>{BYTES - 2},} B{gib(size):>{GIB}}"


def wrapped(text: str, indent: int) -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_long_words=False
    )


def tensor_lines(subject: Subject, pp_rank: int) -> Iterator[str]:
    """What one layer of a rank, and its ends, keep of one micro-batch, tensor by tensor."""
    from primus_lint.ledger.walk import kept_tensors

    assert subject.run is not None
    for part, tensors in kept_tensors(subject.run, pp_rank).items():
        whole = ", unless it is recomputed whole" if "layer" in part.split() and part.startswith("one") else ""
        yield f"  kept of one micro-batch by {part}{whole}"
        for name, size in tensors.items():
            yield row(name, int(size), indent=4)
        yield row("=", int(sum(tensors.values())), indent=4)


def host_lines(subject: Subject) -> Iterator[str]:
    """Host memory of the fullest node, against what such a node has, and what of it no item counts."""
    found = subject.host_memory
    if found is None:
        return
    used = found.used
    saving = (
        f", {gib(used.saving_bytes)} while a checkpoint is saved" if used.saving_bytes > used.training_bytes else ""
    )
    yield ""
    text = f"host memory of the fullest node ({found.node}, {gib(found.capacity_bytes)}): {gib(used.training_bytes)}{saving}"
    yield from wrapped(text, 0)
    for name, size in used.items.items():
        when = "" if name in used.permanent else "  while saving"
        yield f"{row(name, int(size), indent=2)}{when}"
    if "optimizer state" in used.items:
        yield from wrapped(
            "main parameters and gradients are pinned, each tensor in a power of two; moments are not", 2
        )
    yield from wrapped(f"not counted: {HOST_NOT_COUNTED}", 2)


def limit_lines(subject: Subject) -> Iterator[str]:
    """The first byte over the device's limit, and the cheapest edits that clear it."""
    ledger, accelerator = subject.ledger, subject.accelerator
    if ledger is None or accelerator is None:
        yield "no GPU kind is known: no limit to compare with"
        return
    capacity = accelerator.visible_hbm_bytes
    if ledger.fits(capacity):
        spare = capacity - ledger.worst_rank.device_high_bytes
        yield f"fits: {accelerator.label} shows {capacity:,} B ({gib(capacity)}), {gib(spare)} more than the high estimate"
        return
    yield from first_byte(subject, capacity)
    yield from edit_lines(subject)


def first_byte(subject: Subject, capacity: int) -> Iterator[str]:
    from primus_lint.ledger.walk import first_over

    assert subject.accelerator is not None and subject.ledger is not None
    shown = f"{subject.accelerator.label} shows {capacity:,} B ({gib(capacity)})"
    if subject.run is None:
        rank = max(subject.ledger.ranks, key=lambda rank: rank.device_low_bytes)
        surely = rank.device_low_bytes > capacity
        yield from wrapped(
            f"first byte over, by the {'low' if surely else 'high'} estimate: {rank.peak_moment}; {shown}", 0
        )
        return
    found = first_over(subject.run, subject.ledger, capacity)
    if found is None:
        yield from wrapped(f"it may not fit: {shown}", 0)
        return
    point = found.point
    yield f"the first byte over, by the {'low' if found.surely else 'high'} estimate"
    which = "" if found.rank.dp == "all" else f" ({found.rank.dp} data-parallel rank)"
    yield from wrapped(f"where: pipeline rank {found.rank.pp_rank}{which}", 2)
    yield from wrapped(f"when:  {point.moment}", 2)
    yield from wrapped(f"what:  {point.item}, {point.size:,} B ({gib(point.size)})", 2)
    yield from wrapped(
        f"from {found.before_bytes:,} B ({gib(found.before_bytes)}) to {found.after_bytes:,} B "
        f"({gib(found.after_bytes)}); {shown}", 2,
    )  # fmt: skip


def edit_lines(subject: Subject) -> Iterator[str]:
    from primus_lint.tune.cheapest import cheapest
    from primus_lint.tune.safety import SAFE

    edits = cheapest(subject)
    if not edits:
        more = "" if subject.framework == "torchtitan" else ": see `primus-lint tune` for other sizes and combinations"
        yield from wrapped(f"no one or two changes of degrees, split, batch or recomputation clear it{more}", 0)
        return
    now = subject.projection
    yield "what clears it most cheaply, by the high estimate"
    for number, edit in enumerate(edits, 1):
        keys = ", ".join(f"{key}: {_value(value)}" for key, value in edit.changes.items())
        yield from wrapped(f"{number}. {keys}", 2)
        price = "its time cannot be projected"
        if edit.gain is not None and now is not None:
            speed = now.tokens_per_s_per_gpu * (1 + edit.gain)
            price = (
                f"{edit.gain:+.1%} tokens/s ({speed:,.0f} against {now.tokens_per_s_per_gpu:,.0f} a GPU if it had run)"
            )
        unsafe = "" if edit.safety == SAFE else f"; {edit.safety}: numerics or compatibility can change"
        yield from wrapped(f"{price}; at most {gib(edit.high_bytes)}{unsafe}", 5)


def _value(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
