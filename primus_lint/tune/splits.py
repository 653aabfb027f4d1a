"""Pipeline splits of the space: sizes, virtual stages, end stages of their own, and generated layouts.

An even split comes for every pipeline size that divides the layers. Layouts come where they balance better: the last
stage also computes the output layer and the MTP depths, the first one also holds the embedding, and a number of layers
that does not divide leaves some stages one layer short. A layout is kept only when its heaviest rank is lighter than
that of every simpler split of the same size.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div
from primus_lint.rules.functions import divisors
from primus_lint.tune.keys import COUNTED, FIRST, LAST, LAYOUT, PP, SPLIT_KEYS, VPP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Model, Run

MAX_STAGES = 64  # pipeline ranks
MAX_VIRTUAL = 8
LAYOUTS = 2  # generated for each pipeline size and number of virtual stages

Split = dict[str, Any]


def splits(run: Run, given: dict[str, Any]) -> Iterator[Split]:
    """Pipeline sizes with their virtual stages and layer splits at a known world size; first the recipe's own."""
    own = {PP: run.parallel.pp, **{key: given.get(key) for key in SPLIT_KEYS}}
    yield own
    for split in generated(run.model, int(run.target.world_size or 1), given):
        if split != own:
            yield split


def generated(model: Model, world_size: int, given: dict[str, Any]) -> Iterator[Split]:
    """All splits but the recipe's own."""
    empty: Split = dict.fromkeys(SPLIT_KEYS)
    for key in SPLIT_KEYS:
        if isinstance(given.get(key), bool):
            empty[key] = False
    layers = model.num_layers
    for pp in divisors(world_size):
        if pp > min(layers, MAX_STAGES):
            break
        if pp == 1:
            yield {PP: 1, **empty}
            continue
        for vpp in range(1, MAX_VIRTUAL + 1):
            stages = pp * vpp
            if stages > layers + model.mtp_num_layers + 1:
                break
            even = layers % stages == 0
            if even:
                yield {PP: pp, **empty, VPP: vpp if vpp > 1 else None}
            best = weight(model, (layers // stages,) * stages, pp) if even else float("inf")
            for counts in uneven(model, stages, pp, best):
                yield {PP: pp, **empty, **written(counts, vpp, model.mtp_num_layers)}


def uneven(model: Model, stages: int, pp: int, best: float) -> list[tuple[int, ...]]:
    """Layers of every stage, in pipeline order, for the splits whose heaviest rank is lighter than `best`.

    The ends get fewer layers; a remainder lies on the last stages before the end, or on the first ones.
    """
    layers, heavy = model.num_layers, round(head_weight(model) + model.mtp_num_layers * (1 + head_weight(model)))
    found: dict[tuple[int, ...], float] = {}
    for first in (0, 1):
        for last in range(heavy + 2):
            total = layers + first + last
            each, rest = divmod(total, stages)
            for late in (True, False) if rest else (True,):
                counts = [each] * stages
                places = range(stages - 1 - rest, stages - 1) if late else range(rest)
                for place in places:
                    counts[place] += 1
                counts[0] -= first
                counts[-1] -= last
                if min(counts) < 0 or sum(counts) != layers or counts[0] == 0:
                    continue
                found[tuple(counts)] = weight(model, tuple(counts), pp)
    light = [(value, counts) for counts, value in found.items() if value < best - 1e-9]
    # of equal weight those first whose early stages, which hold most micro-batches, are short
    light.sort(key=lambda pair: (round(pair[0], 6), pair[1]))
    return [counts for _, counts in light[:LAYOUTS]]


def weight(model: Model, counts: tuple[int, ...], pp: int) -> float:
    """The heaviest rank in layers, the output layer and MTP depths counted (and a tenth of one for the embedding, so
    that of two equal splits the one with the shorter first stage comes first)."""
    head = head_weight(model)
    ranks = [float(sum(counts[rank::pp])) for rank in range(pp)]
    ranks[0] += 0.1
    ranks[-1] += head + model.mtp_num_layers * (1 + head)
    return max(ranks)


def head_weight(model: Model) -> float:
    """Work of the output layer over that of one decoder layer, by their matrix elements that a token meets."""
    from primus_lint.projection.flops import mlp_weights, projection_weights

    moe = model.moe
    if moe is None:
        width = model.ffn_hidden_size
    else:
        width = moe.router_topk * moe.ffn_hidden_size + moe.shared_expert_intermediate_size
    layer = projection_weights(model) + mlp_weights(model, width)
    return float(model.hidden_size * (model.vocab_size or 0) / max(layer, 1))


def written(counts: tuple[int, ...], vpp: int, mtp: int) -> Split:
    """The keys that say these layers per stage: numbers of end stages, or counting the embedding and the output layer as
    one layer each, where they can; else a layout."""
    middle = set(counts[1:-1])
    if vpp > 1 and len(middle) == 1 and not mtp:
        (each,) = middle
        short = each - counts[0], each - counts[-1]
        if short in ((1, 0), (0, 1), (1, 1)):
            return {VPP: vpp, **{key: True for key, is_short in zip(COUNTED, short, strict=True) if is_short}}
    if vpp == 1 and len(middle) == 1 and counts[-1] > 0:
        each = middle.pop()
        keys: Split = {}
        if counts[0] != each:
            keys[FIRST] = counts[0]
        if counts[-1] != each:
            keys[LAST] = counts[-1]
        if keys:
            return keys
    if vpp == 1 and len(counts) == 2 and counts[0] != counts[1] and counts[1] > 0:
        return {FIRST: counts[0], LAST: counts[1]}
    return {LAYOUT: layout_text(counts, mtp)}


def layout_text(counts: tuple[int, ...], mtp: int) -> str:
    """A layout as Megatron reads it, e.g. `Ettt|(tttt|)*14,ttmL`: runs of equal stages are written once."""
    stages = [("t" * count if count < 5 else f"t*{count}") for count in counts]
    first, last = "E" + stages[0], stages[-1] + "m" * mtp + "L"
    out = [first + "|"]
    for text, group in groupby(stages[1:-1]):
        number = sum(1 for _ in group)
        out.append(f"({text}|)*{number}" if number > 2 and text else (text + "|") * number)
    return _joined(out) + last


def _joined(parts: list[str]) -> str:
    """Parts with a comma (which has no meaning) where a number would run into what follows."""
    text = ""
    for part in parts:
        text += part
        if part[-1].isdigit():
            text += ","
    return text


def chunk_sizes(split: Split, run: Run) -> tuple[int, ...]:
    """The numbers of layers that the chunks of a split hold, each once: what counts of recomputed layers refer to."""
    from primus_lint.ir.layout import LayoutError, split_counts, units_of

    layers, pp, vpp = run.model.num_layers, int(split[PP]), int(split[VPP] or 1)
    try:
        if split[LAYOUT] is not None:
            return tuple(sorted({units.count("t") for units in units_of(split[LAYOUT])}))
        per_stage = split["num_layers_per_virtual_pipeline_stage"]
        if per_stage:
            return (int(per_stage),)
        embedding, loss = (bool(split[key]) for key in COUNTED)
        ends = {"first": split[FIRST], "last": split[LAST], "account_embedding": embedding, "account_loss": loss}
        counts = split_counts(layers, pp, vpp, **ends)
        return tuple(sorted({count for row in counts for count in row}))
    except (LayoutError, TypeError, ValueError, ZeroDivisionError):
        return (max(int(ceil_div(layers, pp * vpp)), 1),)


def virtual(keys: Split) -> int:
    """Virtual stages of a split."""
    layout = keys.get(LAYOUT)
    if layout is None:
        return int(keys.get(VPP) or 1)
    from primus_lint.ir.layout import LayoutError, units_of

    try:
        return max(len(units_of(layout)) // int(keys[PP]), 1)
    except LayoutError:
        return 1
