"""The certificate of a search: what the space was, what became of every recipe in it, and what is claimed."""

from __future__ import annotations

from typing import Any

# Largest difference between the array form (which the search orders by) and the scalar form (which decides), relative.
# Both are the same formulas; measured over random recipes seconds differ by a rounding (4e-16) and bytes by the bound on
# padding that the array form takes (6e-5). tests/tune hold them to a tenth of these.
TIME_TOLERANCE = 1e-9
MEMORY_TOLERANCE = 1e-3


class Certificate:
    """Numbers of recipes. `space` = `removed` (by rules and memory) + `bounded` + `slower` + `fitting` + `unseen`.

    removed    rule name (or "does not fit") -> recipes that it removed, the first rule in the program's order
    bounded    not scored: the same recipe without recomputation, which is never slower, is too slow already
    slower     scored, and slower than the best that fits by more than the search keeps
    fitting    scored, legal and fitting
    unseen     not looked at, as the time that the search was given was over
    rescored   of them, decided exactly by the scalar rules, ledger and projection
    gap        share of time by which a recipe not looked at could be faster than the winner: 0 when the search is complete
    """

    __slots__ = (
        "always", "bases", "bounded", "fitting", "gap", "memory_error", "near", "removed", "rescored", "seconds", "slower",
        "space", "structures", "time_error", "trusted", "undecided", "unseen",
    )  # fmt: skip

    def __init__(self) -> None:
        self.space = 0
        self.bases = 0
        self.structures = 0  # grids that were scored
        self.removed: dict[str, int] = {}
        self.bounded = 0
        self.slower = 0
        self.fitting = 0
        self.unseen = 0
        self.near = 0  # over the limit by less than the tolerance of memory: looked at again exactly
        self.rescored = 0
        self.gap = 0.0
        self.trusted = True  # nothing that was rescored contradicted the array forms
        self.time_error = 0.0  # largest relative differences seen among the rescored
        self.memory_error = 0.0
        self.undecided: tuple[str, ...] = ()
        self.always: tuple[str, ...] = ()
        self.seconds = 0.0

    def drop(self, name: str, number: int) -> None:
        if number:
            self.removed[name] = self.removed.get(name, 0) + number

    @property
    def legal(self) -> int:
        """Recipes that broke no rule (of those looked at)."""
        return self.fitting + self.slower + self.removed.get("does not fit", 0)

    @property
    def complete(self) -> bool:
        """Whether it is proved, within the space and the model, that no recipe is better than the winner."""
        return self.trusted and self.gap <= 0

    def statement(self) -> str:
        """The claim in one sentence."""
        if not self.trusted:
            return "not proved: an exact score contradicted the array form"
        if self.gap > 0:
            return f"not complete: a recipe that was not looked at could be faster by at most {self.gap:.1%}"
        return "none of the space is better (within the model)"

    def as_json(self) -> dict[str, Any]:
        return {
            "space": self.space,
            "bases": self.bases,
            "structures": self.structures,
            "removed": dict(sorted(self.removed.items(), key=lambda pair: (-pair[1], pair[0]))),
            "legal": self.legal,
            "bounded": self.bounded,
            "slower": self.slower,
            "fitting": self.fitting,
            "not_looked_at": self.unseen,
            "near_limit": self.near,
            "rescored": self.rescored,
            "gap": self.gap,
            "complete": self.complete,
            "statement": self.statement(),
            "tolerance": {"time": TIME_TOLERANCE, "memory": MEMORY_TOLERANCE},
            "largest_difference": {"time": self.time_error, "memory": self.memory_error},
            "undecided_rules": list(self.undecided),
            "always_on": list(self.always),
            "seconds": self.seconds,
        }
