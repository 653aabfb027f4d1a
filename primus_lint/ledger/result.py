"""What the ledger returns: items, one memory account per class of rank, and the verdict against a capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ledger.band import Doubt

# The groups of items, in the order in which they add up: static -> steady -> peak allocated -> reserved -> device.
STATIC, PERSISTENT, ACTIVATION, TRANSIENT, ALLOCATOR, DEVICE = (
    "static",
    "persistent",
    "activation",
    "transient",
    "allocator",
    "device",
)
# Host memory, beside the device's. All the time: of every rank, of the first tensor-parallel rank of a group. While a
# checkpoint is saved: of every rank, of the first data-parallel rank of a group.
HOST, HOST_LOADER = "host", "host, first tensor-parallel rank"
HOST_SAVE, HOST_SAVE_FIRST = "host, save", "host, save, first data-parallel rank"
HOSTS = (HOST, HOST_LOADER, HOST_SAVE, HOST_SAVE_FIRST)


class Item(NamedTuple):
    """One line of the account. `template` and `numbers` make the formula; `source` says where the rule comes from."""

    bytes: Any  # int, or an array for a grid of recipes
    group: str
    template: str
    numbers: dict[str, Any]
    source: str

    @property
    def formula(self) -> str:
        """The formula with its numbers, e.g. `4,015,263,744 elements x 2 B`."""
        shown = {key: f"{value:,}" if isinstance(value, int) else value for key, value in self.numbers.items()}
        return self.template.format(**shown)


def _around(value: Any, doubts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """(low, high): a value less, and with, what every doubt may take away or add."""
    return value - sum(low for low, _ in doubts), value + sum(high for _, high in doubts)


class RankMemory:
    """Bytes of one class of ranks. All figures are integers (or arrays of them).

    `dp` is "all" when every data-parallel rank owns the same optimizer shard, else "first" (data-parallel index 0, an
    upper bound for the ones between) or "last"; `count` is the number of global ranks of the class.
    `host_bytes` is what offloading keeps in host memory, beside the device figures; what else is there are items (see
    `ledger.host`). `doubts` are what the recipe does not settle (see `band`). `moments` names each candidate of the peak
    with its allocated bytes; `peak_moment` is the largest.
    """

    __slots__ = (
        "count",
        "device_high_bytes",
        "device_low_bytes",
        "doubts",
        "dp",
        "host_bytes",
        "items",
        "moments",
        "peak_allocated_bytes",
        "peak_moment",
        "peak_reserved_bytes",
        "pp_rank",
        "reserved_high_bytes",
        "reserved_low_bytes",
        "static_bytes",
        "steady_allocated_bytes",
    )

    def __init__(self, pp_rank: int, dp: str, count: Any, items: dict[str, Item]) -> None:
        self.pp_rank = pp_rank
        self.dp = dp
        self.count = count
        self.items = items
        self.moments: dict[str, Any] = {}
        self.peak_moment = ""
        self.static_bytes: Any = 0
        self.steady_allocated_bytes: Any = 0
        self.peak_allocated_bytes: Any = 0
        self.peak_reserved_bytes: Any = 0
        self.reserved_low_bytes: Any = None  # None: no band of its own
        self.reserved_high_bytes: Any = None
        self.device_low_bytes: Any = 0
        self.device_high_bytes: Any = 0
        self.host_bytes: Any = 0
        self.doubts: dict[str, Doubt] = {}

    @property
    def steady_band_bytes(self) -> tuple[Any, Any]:
        """(low, high) of what is allocated after a step."""
        return _around(self.steady_allocated_bytes, [(d.steady_low, d.steady_high) for d in self.doubts.values()])

    @property
    def peak_band_bytes(self) -> tuple[Any, Any]:
        """(low, high) of what is allocated at most."""
        return _around(self.peak_allocated_bytes, [(d.peak_low, d.peak_high) for d in self.doubts.values()])

    @property
    def reserved_band_bytes(self) -> tuple[Any, Any]:
        """(low, high) of what the caching allocator holds at most."""
        if self.reserved_low_bytes is None:
            return self.peak_band_bytes[0], self.peak_reserved_bytes
        return self.reserved_low_bytes, self.reserved_high_bytes

    @property
    def device_doubt_bytes(self) -> tuple[Any, Any]:
        """Bytes below and above the account at the peak, of the doubts that count for the device."""
        below: Any = 0
        above: Any = 0
        for doubt in self.doubts.values():
            if not doubt.aside:
                below, above = below + doubt.peak_low, above + doubt.peak_high
        return below, above

    def total(self, *groups: str) -> Any:
        """Sum of the items of some groups."""
        return sum(item.bytes for item in self.items.values() if item.group in groups)

    @property
    def device_items(self) -> dict[str, Item]:
        """The items without those of host memory."""
        return {name: item for name, item in self.items.items() if item.group not in HOSTS}

    def as_json(self) -> dict[str, Any]:
        """The object of design section 4.3, and the bands of its figures."""
        bands = {
            "steady_allocated": self.steady_band_bytes,
            "peak_allocated": self.peak_band_bytes,
            "peak_reserved": self.reserved_band_bytes,
        }
        return {
            "pp_rank": self.pp_rank,
            "dp": self.dp,
            "count": self.count,
            "static_bytes": self.static_bytes,
            "steady_allocated_bytes": self.steady_allocated_bytes,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "device_low_bytes": self.device_low_bytes,
            "device_high_bytes": self.device_high_bytes,
            **{f"{name}_low_bytes": max(int(low), 0) for name, (low, _) in bands.items()},
            **{f"{name}_high_bytes": int(high) for name, (_, high) in bands.items()},
            "items": {name: item.bytes for name, item in self.device_items.items()},
        }


class Ledger:
    """The accounts of all classes of ranks. `worst` is the index of the one with the largest device bytes."""

    __slots__ = ("not_modelled", "ranks")

    def __init__(self, ranks: tuple[RankMemory, ...], not_modelled: tuple[str, ...] = ()) -> None:
        self.ranks = ranks
        self.not_modelled = not_modelled

    @property
    def worst(self) -> int:
        """Index of the rank class with the largest device bytes (of one recipe, not of a grid)."""
        return max(range(len(self.ranks)), key=lambda index: self.ranks[index].device_high_bytes)

    @property
    def worst_rank(self) -> RankMemory:
        return self.ranks[self.worst]

    @property
    def device_bytes(self) -> tuple[Any, Any]:
        """(low, high) of the heaviest rank; element by element for a grid of recipes."""
        low: Any = 0
        high: Any = 0
        for rank in self.ranks:
            low = maximum(low, rank.device_low_bytes)
            high = maximum(high, rank.device_high_bytes)
        return low, high

    def fits(self, capacity_bytes: int) -> bool | None:
        """True: the high estimate fits on every rank. False: the low one does not on some. None: in between."""
        if all(rank.device_high_bytes <= capacity_bytes for rank in self.ranks):
            return True
        if any(rank.device_low_bytes > capacity_bytes for rank in self.ranks):
            return False
        return None


class Abstention:
    """Why there is no account of a recipe. Falsy, so that `if ledger:` reads well."""

    __slots__ = ("reasons",)

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons

    def __bool__(self) -> bool:
        return False
