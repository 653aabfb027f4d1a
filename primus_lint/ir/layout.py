"""Which pipeline stage holds what: the stage table of a recipe.

A table has one row per pipeline rank and, in it, one chunk per virtual stage. Sources: Megatron-Core
`get_num_layers_to_build` / `get_transformer_layer_offset` (even and uneven splits, accounted embedding and loss) and
`PipelineParallelLayerLayout` (the layout string). Virtual stage k of a layout lies on rank k % pp, chunk k // pp.
"""

from __future__ import annotations

from functools import lru_cache

from primus_lint.tuples import NamedTuple

MOST = 1 << 17  # layers or stages: far beyond any model, small enough to be listed


class LayoutError(ValueError):
    """A split that does not give every layer exactly one place. `code` names the broken condition."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Chunk(NamedTuple):
    """What one (rank, virtual stage) holds. `layers` are 0-based decoder layer ids, `mtp` 0-based MTP depths."""

    layers: tuple[int, ...]
    embedding: bool = False
    loss: bool = False
    mtp: tuple[int, ...] = ()


Stages = tuple[tuple[Chunk, ...], ...]  # [pipeline rank][virtual stage]
FOLDED_SCHEDULES = frozenset({"zbv", "v-half", "v-min", "dualpipev"})


def folded(stages: Stages, schedule: str) -> Stages:
    """The table of a schedule that goes down the ranks and back up: rank r holds virtual stages r and 2*pp-1-r. Other
    schedules (and other numbers of virtual stages) keep the looped table."""
    if schedule not in FOLDED_SCHEDULES or any(len(row) != 2 for row in stages):
        return stages
    return tuple((row[0], back[1]) for row, back in zip(stages, reversed(stages), strict=True))


def parse_layout(text: str) -> list[str]:
    """Expand a layout string into one string of units per virtual stage, e.g. `Et*2|(tt|)*3mL`.

    Grammar as Megatron reads it: letters `E t m L`, `|` between stages, `(..)*n` and then `x*n` repetition, commas
    without meaning. Groups do not nest, and a bracket without `*n` is an unknown letter.
    Raises LayoutError("unknown-letter" | "syntax").
    """
    return list(_parsed(text))


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[str, ...]:
    import re

    def repeat(match: re.Match[str]) -> str:
        count = int(match.group(2)[:9])
        if count * len(match.group(1)) > 100_000:
            raise LayoutError("syntax", f"a repetition in layout {text!r} is too long")
        return match.group(1) * count

    units = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        if len(units) > 100_000:
            raise LayoutError("syntax", "the layout has more than 100,000 units")
        units = re.sub(pattern, repeat, units)
    for letter in units:
        if letter not in "EtmL|":
            raise LayoutError("unknown-letter", f"unknown unit {letter!r} in layout {text!r}; legal are E, t, m and L")
    return tuple(units.split("|"))


_UNIT_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def units_of(layout: str | list[str] | list[list[str]]) -> list[str]:
    """The units of each virtual stage, as one string each, of a layout string or of an already split layout.

    Raises LayoutError when a layout string does not parse.
    """
    if isinstance(layout, str):
        return parse_layout(layout)
    return ["".join(_UNIT_LETTERS.get(u, u) for u in stage) if isinstance(stage, list) else stage for stage in layout]


def stages_from_layout(layout: str | list[str] | list[list[str]], pp: int) -> Stages:
    """The stage table of a layout string (or an already split list of stages).

    Raises LayoutError("stage-count") when the number of stages is not a multiple of pp.
    """
    return _stages(tuple(units_of(layout)), pp)


@lru_cache(maxsize=256)
def _stages(stages: tuple[str, ...], pp: int) -> Stages:
    if len(stages) % pp:
        raise LayoutError("stage-count", f"the layout has {len(stages)} stages, not a multiple of {pp} pipeline ranks")
    if pp > MOST:
        raise LayoutError("too-many", f"{pp} pipeline ranks are more than anything here can list")
    table: list[list[Chunk]] = [[] for _ in range(pp)]
    layer = depth = 0
    for number, units in enumerate(stages):
        layers = units.count("t")
        depths = units.count("m")
        table[number % pp].append(
            Chunk(tuple(range(layer, layer + layers)), "E" in units, "L" in units, tuple(range(depth, depth + depths)))
        )
        layer += layers
        depth += depths
    return tuple(tuple(row) for row in table)


def split_counts(
    num_layers: int,
    pp: int,
    vpp: int = 1,
    *,
    first: int | None = None,
    last: int | None = None,
    account_embedding: bool = False,
    account_loss: bool = False,
) -> list[list[int]]:
    """Decoder layers per [rank][virtual stage] without a layout string.

    Raises LayoutError("uneven" | "indivisible" | "virtual" | "negative").
    """
    if num_layers > MOST or pp * vpp > MOST:
        raise LayoutError(
            "too-many", f"{num_layers} layers on {pp} x {vpp} stages are more than anything here can list"
        )
    if pp < 1 or vpp < 1:
        raise LayoutError("indivisible", f"pipeline size {pp} and virtual stages {vpp} must be positive")
    if pp == 1 and vpp == 1 and last == num_layers:  # the only rank is the last one, whatever the first says
        return [[num_layers]]
    if first is not None or last is not None:
        edges = (first or 0) + (last or 0)
        middle = pp - (first is not None) - (last is not None)
        rest = num_layers - edges
        if middle < 0 or (middle == 0 and rest) or rest < 0:
            raise LayoutError("uneven", f"{edges} layers on the end stages leave {rest} layers for {middle} others")
        if middle and rest % middle:
            raise LayoutError("uneven", f"the remaining {rest} layers do not divide among {middle} middle stages")
        each = rest // middle if middle else 0
        per_rank = [each] * pp
        if first is not None:
            per_rank[0] = first
        if last is not None:
            per_rank[-1] = last
        for count in per_rank:
            if count % vpp:
                raise LayoutError("virtual", f"a stage of {count} layers does not divide into {vpp} virtual stages")
        return [[count // vpp] * vpp for count in per_rank]
    total = num_layers + bool(account_embedding) + bool(account_loss)
    if total % pp:
        raise LayoutError("indivisible", f"{total} layers do not divide among {pp} pipeline ranks")
    each = total // pp
    if each % vpp:
        raise LayoutError("virtual", f"{each} layers of a stage do not divide into {vpp} virtual stages")
    counts = [[each // vpp] * vpp for _ in range(pp)]
    if account_embedding:
        counts[0][0] -= 1
    if account_loss:
        counts[-1][-1] -= 1
    if min(min(row) for row in counts) < 0:
        raise LayoutError("negative", "a stage is left with a negative number of layers")
    return counts


def stages_from_counts(counts: list[list[int]], mtp_num_layers: int = 0) -> Stages:
    """Give ids to the layers: chunk-major over the virtual stages, embedding first, loss and MTP last."""
    pp, vpp = len(counts), len(counts[0])
    if mtp_num_layers > MOST:
        raise LayoutError("too-many", f"{mtp_num_layers} MTP layers are more than anything here can list")
    table: list[list[Chunk]] = [[] for _ in range(pp)]
    layer = 0
    for chunk in range(vpp):
        for rank in range(pp):
            count = counts[rank][chunk]
            last = rank == pp - 1 and chunk == vpp - 1
            table[rank].append(
                Chunk(
                    tuple(range(layer, layer + count)),
                    rank == 0 and chunk == 0,
                    last,
                    tuple(range(mtp_num_layers)) if last else (),
                )
            )
            layer += count
    return tuple(tuple(row) for row in table)
