"""Folded (V) schedules: rank p owns stage p as chunk 0 and stage 2*pp-1-p as chunk 1, backward split into B and W."""

from __future__ import annotations

from .events import Event

_PERIOD = 6  # slots per micro-batch in the repeating pattern: F, B and W of two chunks
_Item = tuple[str, int, int]  # kind, chunk, microbatch


def zbv(pp: int, rank: int, microbatches: int, overlap: bool = False) -> list[Event]:
    """ZB-V in its formatted form (arXiv 2401.10241 section 6; torch `ScheduleZBVZeroBubble`, Primus `zbv-formatted`).

    The pattern is written for max(microbatches, 2*pp-1) micro-batches and those that do not exist are left out.
    (Primus does not leave them out, see `names.primus_microbatches`.) `overlap`: forwards that Primus combines with
    the backward behind them are fused.
    """
    order = _zbv_order(pp, rank, max(microbatches, 2 * pp - 1))
    fused = _combined(pp, rank, order) if overlap else frozenset()
    return [
        Event(kind, rank, microbatch, chunk, position in fused)
        for position, (kind, chunk, microbatch) in enumerate(order)
        if microbatch < microbatches
    ]


def _zbv_order(pp: int, rank: int, microbatches: int) -> list[_Item]:
    order: list[_Item] = []
    next_of = {(kind, chunk): 0 for kind in "FBW" for chunk in (0, 1)}

    def run(*steps: tuple[str, int]) -> None:
        for step in steps:
            order.append((step[0], step[1], next_of[step]))
            next_of[step] += 1

    for _ in range(2 * (pp - rank) - 1):
        run(("F", 0))
    for _ in range(rank):
        run(("F", 1), ("F", 0))
    for _ in range(pp - rank):
        run(("F", 1), ("B", 1), ("W", 1))
    while next_of["F", 1] < microbatches:
        if next_of["F", 0] < microbatches:
            run(("F", 0))
        run(("B", 0), ("W", 0), ("F", 1), ("B", 1), ("W", 1))
    for _ in range(rank):
        run(("B", 0), ("B", 1))
    for _ in range(pp - rank):
        run(("B", 0), ("W", 0))
    while next_of["W", 1] < microbatches:
        run(("W", 1))
    while next_of["W", 0] < microbatches:
        run(("W", 0))
    return order


def _combined(pp: int, rank: int, order: list[_Item]) -> frozenset[int]:
    """Positions of forwards that Primus combines with the backward right behind them.

    It combines an F and a B of different work, unless the input of the B arrives between the two: when the unit slots
    of the plan (rank + position) end the B's source, on another rank, in the very slot of the F.
    """
    slot_on: dict[int, dict[_Item, int]] = {}
    for source in (rank - 1, rank + 1):
        if 0 <= source < pp:
            microbatches = 1 + max(microbatch for _, _, microbatch in order)
            slot_on[source] = {item: source + at for at, item in enumerate(_zbv_order(pp, source, microbatches))}
    positions = []
    for position in range(len(order) - 1):
        forward, backward = order[position], order[position + 1]
        if forward[0] == "F" and backward[0] == "B" and forward[1:] != backward[1:]:
            source = rank - 1 if backward[1] == 1 else rank + 1
            if slot_on.get(source, {}).get(backward) != rank + position:
                positions.append(position)
    return frozenset(positions)


def controllable_memory(kind: str, pp: int, microbatches: int) -> list[list[Event]]:
    """V-Half and V-Min (arXiv 2405.15362, "Pipeline Parallelism with Controllable Memory") in the form that Primus
    runs for `v-half` and `v-min`: a pattern of unit slots repeated for every micro-batch, W in the free slots, then
    everything moved forward as far as dependencies and the pattern's own memory allow, then the end packed again.
    """
    table = _SlotTable(pp, microbatches, _half_pattern(pp) if kind == "v-half" else _min_pattern(pp))
    table.place_weights()
    table.move_forward()
    table.repack_end()
    return table.events()


def _half_pattern(pp: int) -> list[tuple[int, int, int, int]]:
    """Slots of F0, F1, B1, B0 of micro-batch 0 on every rank for about half of 1F1B's memory."""
    gap = 3 if pp % 2 == 0 else 0
    return [(2 * r, 3 * pp - r - 2, 3 * pp + gap + 2 * r - 1, 6 * pp + gap - r - 2) for r in range(pp)]


def _min_pattern(pp: int) -> list[tuple[int, int, int, int]]:
    """The same for about a third of 1F1B's memory."""
    gap = 2 if pp % 3 == 0 else 0
    return [(r, 2 * pp - r - 1, 2 * pp + gap + r, 4 * pp + gap - r - 1) for r in range(pp)]


class _SlotTable:
    """Who runs in which unit slot of every rank. A forward takes a chunk of memory, its W gives it back."""

    def __init__(self, pp: int, microbatches: int, pattern: list[tuple[int, int, int, int]]) -> None:
        self.pp = pp
        self.microbatches = microbatches
        self.slots: list[dict[int, _Item]] = [{} for _ in range(pp)]
        self.time: list[dict[_Item, int]] = [{} for _ in range(pp)]  # slot of every item
        self.alive: list[list[int]] = [[] for _ in range(pp)]  # chunks held after every slot
        self.end: list[set[_Item]] = [set() for _ in range(pp)]  # items of the cool-down
        for rank, starts in enumerate(pattern):
            for microbatch in range(microbatches):
                for (kind, chunk), start in zip((("F", 0), ("F", 1), ("B", 1), ("B", 0)), starts, strict=True):
                    self.put(rank, (kind, chunk, microbatch), start + _PERIOD * microbatch)

    def put(self, rank: int, item: _Item, slot: int) -> None:
        assert slot not in self.slots[rank], "two pieces of work in one slot"
        self.slots[rank][slot] = item
        self.time[rank][item] = slot

    def place_weights(self) -> None:
        """W in the free slots, in the order of the backwards. The cool-down lies behind the last forward of chunk 1;
        where a short step has that one before the first backward of chunk 0, it ends there (as in Primus)."""
        for rank in range(self.pp):
            pending: list[_Item] = []
            alive = 0
            cooling = False
            for slot in range(max(self.slots[rank]) + 3):
                item = self.slots[rank].get(slot)
                if item is None and pending:
                    item = pending.pop(0)
                    self.put(rank, item, slot)
                if item is not None:
                    kind, chunk, microbatch = item
                    alive += {"F": 1, "B": 0, "W": -1}[kind]
                    if cooling:
                        self.end[rank].add(item)
                    if kind == "B":
                        pending.append(("W", chunk, microbatch))
                    elif kind == "F" and chunk == 1 and microbatch == self.microbatches - 1:
                        cooling = True
                    if item == ("B", 0, 0):
                        cooling = False
                self.alive[rank].append(alive)

    def source(self, rank: int, kind: str, chunk: int) -> tuple[int, str, int] | None:
        """(rank, kind, chunk) of the same micro-batch that must end first; None for the very first forward."""
        if kind == "W":
            return rank, "B", chunk
        down = (kind == "F") == (chunk == 0)  # this work walks from rank 0 to the last rank
        if down:
            if rank > 0:
                return rank - 1, kind, chunk
            return None if kind == "F" else (rank, "F", chunk)
        return (rank + 1, kind, chunk) if rank + 1 < self.pp else (rank, kind, 1 - chunk)

    def earliest(self, rank: int, item: _Item) -> int:
        """First slot behind the item's input and behind the same work for the micro-batch before."""
        kind, chunk, microbatch = item
        latest = 0
        source = self.source(rank, kind, chunk)
        if source is not None:
            latest = self.time[source[0]][(source[1], source[2], microbatch)]
        if microbatch > 0:
            latest = max(latest, self.time[rank][(kind, chunk, microbatch - 1)])
        return latest + 1

    def in_slot_order(self) -> list[tuple[int, int, _Item]]:
        """(slot, rank, item) by slot, then rank. A move only goes to an earlier slot, so the list stays a plan."""
        return sorted((slot, rank, item) for rank in range(self.pp) for slot, item in self.slots[rank].items())

    def move(self, rank: int, item: _Item, slot: int, target: int) -> None:
        if target != slot:
            del self.slots[rank][slot]
            self.put(rank, item, target)

    def first_free(self, rank: int, start: int, slot: int) -> int:
        while start < slot and start in self.slots[rank]:
            start += 1
        return min(start, slot)

    def move_forward(self) -> None:
        """Move every item to its first free slot that leaves no rank with more chunks than the pattern's maximum."""
        limit = max(max(alive) for alive in self.alive)
        for slot, rank, item in self.in_slot_order():
            change = {"F": 1, "B": 0, "W": -1}[item[0]]
            alive = self.alive[rank]
            start = self.earliest(rank, item)
            if change > 0:
                for full in range(slot - 1, start - 1, -1):
                    if alive[full] + change > limit:
                        start = full + 1
                        break
            target = self.first_free(rank, start, slot)
            for between in range(target, slot):
                alive[between] += change
            self.move(rank, item, slot, target)

    def repack_end(self) -> None:
        """Move the F and B of the cool-down as early as dependencies allow, then put the W in what is left free."""
        late: list[tuple[int, _Item]] = []
        horizon = max(max(slots) for slots in self.slots)
        for slot, rank, item in self.in_slot_order():
            if item not in self.end[rank]:
                continue
            if item[0] == "W":
                late.append((rank, item))
                del self.slots[rank][slot]
            else:
                self.move(rank, item, slot, self.first_free(rank, self.earliest(rank, item), slot))
        for rank, item in late:
            self.put(rank, item, self.first_free(rank, self.earliest(rank, item), horizon + len(late) + 1))

    def events(self) -> list[list[Event]]:
        return [
            [Event(item[0], rank, item[2], item[1]) for _, item in sorted(slots.items())]
            for rank, slots in enumerate(self.slots)
        ]
