"""What a key does to memory and speed: the recipe as it stands, and with other values of the key (about 1 ms each)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.rules.finding import Change
from primus_lint.rules.verify import after_changes
from primus_lint.server import keys
from primus_lint.units import gib

if TYPE_CHECKING:
    from primus_lint.subject import Subject


# Keys that only make sense together: what a value of one needs of the others (where they say something else).
NEEDS: dict[tuple[str, Any], dict[str, Any]] = {
    ("recompute_granularity", "full"): {"recompute_method": "uniform", "recompute_num_layers": 1},
    ("recompute_granularity", "selective"): {"recompute_method": None, "recompute_num_layers": None},
    ("recompute_granularity", None): {"recompute_method": None, "recompute_num_layers": None},
}


class Effect(NamedTuple):
    """The recipe with one value of a key (`label`: as people read it, with what else had to change). `problem`: why it
    does not start; then there are no figures."""

    label: str
    problem: str
    low_bytes: int | None  # of the worst rank, the low end of its band
    peak_bytes: int | None  # the high end
    capacity_bytes: int | None
    fits: bool | None
    tokens_per_s_per_gpu: float | None

    @property
    def figures(self) -> tuple[Any, ...]:
        """What can be compared between two values."""
        return self[1:]

    def memory(self) -> str:
        """Memory for people, "" when unknown."""
        if self.peak_bytes is None or self.low_bytes is None:
            return ""
        over = {True: "", False: ", does not fit", None: ", may not fit"}[self.fits] if self.capacity_bytes else ""
        room = f" of {gib(self.capacity_bytes)}" if self.capacity_bytes else ""
        return f"{gib(self.low_bytes)} to {gib(self.peak_bytes)}{room}{over}"

    def speed(self) -> str:
        """Speed for people, "" when unknown or when the recipe does not run."""
        if self.tokens_per_s_per_gpu is None or self.fits is False:
            return ""
        return f"{self.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"

    def line(self) -> str:
        """All in one line."""
        if self.problem:
            return self.problem
        return ", ".join(part for part in (self.memory(), self.speed()) if part)


def now(subject: Subject, label: str = "") -> Effect:
    """The recipe as it stands."""
    errors = [finding for finding in subject.conditions if finding.severity == "error"]
    if errors:
        return Effect(label, errors[0].message, None, None, None, None, None)
    ledger, projection, device = subject.ledger, subject.projection, subject.accelerator
    capacity = None if device is None else device.visible_hbm_bytes
    return Effect(
        label,
        "",
        None if ledger is None else int(ledger.worst_rank.device_low_bytes),
        None if ledger is None else int(ledger.worst_rank.device_high_bytes),
        capacity,
        subject.fits,
        None if projection is None else float(projection.tokens_per_s_per_gpu),
    )


def effect(subject: Subject, key: str, value: Any) -> Effect:
    """The recipe with another value of a key, and with what that value needs."""
    needs = NEEDS.get((key, value), {})
    if value == "full" and subject.lowered.namespace.get("recompute_method") is not None:
        needs = {}
    needs = {name: needed for name, needed in needs.items() if subject.lowered.namespace.get(name) != needed}
    label = f"`{keys.text(value)}`" + "".join(f", {name} {keys.text(needed)}" for name, needed in needs.items())
    changes = [Change("set", name, changed) for name, changed in {key: value, **needs}.items()]
    return now(after_changes(subject, changes), label)


def modelled(subject: Subject) -> bool:
    """Whether a what-if says anything: memory and time are computed for this framework and target."""
    return subject.section.framework == "megatron" and subject.run is not None and subject.target.world_size is not None


def alternatives(subject: Subject, key: str) -> list[Any]:
    """Values worth a look besides the present one: the other choices, or half and double a whole number."""
    facts = keys.facts_of(keys.framework_of(subject), key)
    value = subject.lowered.namespace.get(key)
    listed = keys.choices(facts)
    if listed:
        default = [None] if value is not None and facts.get("default", 0) is None else []
        return [other for other in [*listed, *default] if other != value][:4]
    if isinstance(value, int) and not isinstance(value, bool) and value > 0 and keys.is_count(facts):
        return [*([value // 2] if value % 2 == 0 else []), value * 2]
    return []


def table(subject: Subject, key: str) -> list[Effect]:
    """The recipe as it stands and with other values of a key; [] when the key moves no figure."""
    if not modelled(subject) or key not in subject.lowered.namespace:
        return []
    present = now(subject, f"`{keys.text(subject.lowered.namespace[key])}` (now)")
    others = [effect(subject, key, value) for value in alternatives(subject, key)]
    if all(other.figures == present.figures for other in others):
        return []
    return [present, *others]
