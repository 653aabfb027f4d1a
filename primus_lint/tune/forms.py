"""Forms of recomputation of the space; what each leaves out of the file is null."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.tune.keys import NUMBER, RECOMPUTE_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from primus_lint.ir.run import Run
    from primus_lint.tune.space import Axis

Form = dict[str, Any]


class Family(NamedTuple):
    """Forms that one evaluation serves: one with an axis of counts (or alone), or several without recomputation or with lists
    of modules, side by side along the last axis."""

    forms: tuple[Form, ...]
    axis: Axis | None

    @property
    def size(self) -> int:
        return len(self.forms) if self.axis is None else len(self.axis.rows)

    @property
    def full(self) -> bool:
        """Whether whole layers are recomputed."""
        return bool(self.forms[0]["recompute_granularity"] == "full")


def families(forms: Iterable[tuple[Form, Axis | None]], alone: Sequence[Form] = ()) -> list[Family]:
    """The forms of a base in families: those of `alone` by themselves and first, in their order; `block` before `uniform`;
    forms with further keys (which give up an acceleration) after those without."""
    found: list[Family] = []
    beside: dict[tuple[str, ...], int] = {}  # by further keys: where the family is
    for form, axis in forms:
        more = tuple(key for key in form if key not in RECOMPUTE_KEYS)
        if axis is not None or form in alone or not side_by_side(form):
            found.append(Family((form,), axis))
        elif more in beside:
            family = found[beside[more]]
            found[beside[more]] = Family((*family.forms, form), None)
        else:
            beside[more] = len(found)
            found.append(Family((form,), None))

    def rank(family: Family) -> tuple[int, bool, bool, bool]:
        form = family.forms[0]
        more = any(key not in RECOMPUTE_KEYS for key in form)
        place = alone.index(form) if form in alone else len(alone)
        return place, more, family.axis is not None, form["recompute_method"] == "uniform"

    return sorted(found, key=rank)


def side_by_side(form: Form) -> bool:
    """Whether one evaluation serves a form beside others: what is kept and repeated then depends on the list of modules alone
    (the core of the attention also decides which kernel's doubt counts)."""
    modules = form["recompute_modules"]
    if form["recompute_layer_ids"] or form["recompute_granularity"] == "full":
        return False
    return form["recompute_granularity"] is None or (isinstance(modules, list) and "core_attn" not in modules)


def forms(run: Run, given: dict[str, Any], chunks: tuple[int, ...]) -> list[tuple[Form, list[int]]]:
    """Ways to recompute with the values of `recompute_num_layers` that go with each ([]: its value is in the form).

    First the recipe's own, then none. `chunks` are the numbers of layers that chunks have. `uniform` counts divide
    them all; `block` counts are below the largest (all of them up to 8, then ever wider steps).
    """
    per_chunk = max(*chunks, 1)
    own: Form = {key: given.get(key) for key in RECOMPUTE_KEYS}
    found: list[tuple[Form, list[int]]] = [(own, [])]
    none = dict.fromkeys(RECOMPUTE_KEYS)
    found.append((none, []))
    full: Form = {**none, "recompute_granularity": "full"}
    groups = [number for number in (1, 2, 3, 4, 6, 8) if gcd(*chunks) % number == 0]
    found.append(({**full, "recompute_method": "uniform"}, groups))
    blocks = sorted({*range(1, min(per_chunk, 9)), *(n for n in (10, 12, 14, 16, 20, 24, 28, 32) if n < per_chunk)})
    if per_chunk > 1:
        blocks = sorted({*blocks, per_chunk - 1})
        found.append(({**full, "recompute_method": "block"}, blocks))
    if run.kernels.cuda_graphs == "none":
        for modules in module_lists(run):
            found.append(({**none, "recompute_granularity": "selective", "recompute_modules": modules}, []))
    out = [found[0]]
    for form, numbers in found[1:]:
        if not numbers and form != own:
            out.append((form, numbers))
        left = [number for number in numbers if {**form, NUMBER: number} != own]
        if left:
            out.append((form, left))
    return out


def module_lists(run: Run) -> list[list[str]]:
    """Module lists of selective recomputation, from the cheapest to the dearest: what a person would combine."""
    moe = run.model.moe
    small = ["layernorm"]
    if moe is None:
        lists = [small, ["mlp"], ["layernorm", "mlp"]]
    else:
        act = ["moe_act"]
        lists = [small, act, [*small, *act]]
        if moe.shared_expert_intermediate_size and not moe.shared_expert_overlap:
            lists.append([*small, *act, "shared_experts"])
        lists += [["moe"], [*small, "moe"]]
        if not all(moe.layer_is_moe):
            lists.append([*small, *act, "mlp"])
            lists.append([*small, "moe", "mlp"])
    if run.model.mla is not None:
        lists = [["mla_up_proj"], *lists, *(["mla_up_proj", *modules] for modules in lists)]
    if run.kernels.attention_backend == "unfused":
        lists = [["core_attn"], *lists, *(["core_attn", *modules] for modules in lists[:3])]
    return lists
