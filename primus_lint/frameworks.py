"""What differs between frameworks in what is known of a recipe: the kinds of `Subject`, and which one a section is."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from primus_lint.subject import UNKNOWN_SIZES, Subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.ir.run import Run, Target
    from primus_lint.ledger import Abstention, Ledger
    from primus_lint.lower.megatron import Lowered
    from primus_lint.readers.document import ResolvedDocument, Section
    from primus_lint.rules.finding import Finding
    from primus_lint.target import Assumed

MEGATRON_OF_BRIDGE = "d3528a21"  # the version nearest to the Megatron-Core that megatron-bridge 0.3.0 takes
WRONG_KIND_SAID = "a value of a wrong kind"  # text or a list where a number belongs: the key rules say which


class PlainSubject(Subject):
    """A section of which keys and text are checked, and nothing else is known."""

    lowering = ""
    has_figures = False
    complete = False

    def export(self, variables: Mapping[str, str]) -> None:
        """No condition outside Megatron asks for the environment."""

    def presumed(self) -> list[Assumed]:
        return []

    def _unstated(self) -> str:
        return ""

    @property
    def not_modelled(self) -> tuple[str, ...]:
        return (f"framework {self.section.framework}: keys and text are checked; memory and time are not modelled",)


class BridgeSubject(PlainSubject):
    """A section of Megatron-Bridge: what its recipe function makes is known of many, and is Megatron's own training."""

    lowering = "primus_lint.lower.bridge"

    @property
    def grid_known(self) -> bool:
        return all(self.lowered.namespace[name] is not None for name in ("tp", "pp", "cp"))

    @property
    def has_figures(self) -> bool:  # type: ignore[override]
        return self.made is not None

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return self.run is not None

    @property
    def run(self) -> Run | None:
        return None if self.made is None else self.made.run

    @cached_property
    def conditions(self) -> list[Finding]:
        """Those of Megatron-Bridge, and Megatron-Core's on what the recipe makes."""
        found = super().conditions
        if self.made is not None:
            from primus_lint.lower.bridge.megatron import core_findings

            found = [*found, *core_findings(self.made, self.section, self.wanted)]
            found.sort(key=lambda finding: (finding.stage, finding.order, finding.code))
        return found

    @cached_property
    def made(self) -> Lowered | None:
        """The recipe as Megatron has it; None when it is not known (see `_unknown`)."""
        from primus_lint.lower.bridge.megatron import lowered

        return None if self._unknown else lowered(self.lowered.namespace, self.section, self.target, MEGATRON_OF_BRIDGE)

    @cached_property
    def _unknown(self) -> tuple[str, ...]:
        """Why it is not known what the recipe makes; empty when it is."""
        from primus_lint.lower.bridge.megatron import reasons

        own = () if self.grid_known else ("megatron_bridge: the degrees that the recipe sets itself",)
        return (*own, *reasons(self.lowered.namespace))

    def _account(self) -> Ledger | Abstention:
        return Subject._account(self)

    @property
    def not_modelled(self) -> tuple[str, ...]:
        if self.run is None:
            return self._unknown or (f"megatron_bridge: {UNKNOWN_SIZES}",)
        from primus_lint.lower.bridge.megatron import notes

        return (*self.run.not_modelled, *notes(self.lowered.namespace))


class TitanSubject(PlainSubject):
    """A section of TorchTitan: the memory account is its own, the time that of the Megatron recipe of the same work."""

    lowering = "primus_lint.lower.torchtitan"
    has_figures = True
    complete = True

    def _account(self) -> Ledger | Abstention:
        from primus_lint.ledger import Abstention
        from primus_lint.ledger.titan import ledger
        from primus_lint.lower.megatron.namespace import WRONG_KIND

        try:
            return ledger(self.lowered.namespace, self.accelerator)
        except WRONG_KIND:
            return Abstention((f"torchtitan: {WRONG_KIND_SAID}",))

    @property
    def timed_run(self) -> Run | None:
        return self._timed[0]

    def _no_time(self) -> tuple[str, ...]:
        return self._timed[1] if self.timed_run is None else super()._no_time()

    @cached_property
    def _timed(self) -> tuple[Run | None, tuple[str, ...]]:
        """The timed recipe and what its time takes for something else; or None and why there is none."""
        from primus_lint.lower.megatron.namespace import WRONG_KIND
        from primus_lint.lower.torchtitan.timed import notes, reasons, timed_run

        names = self.lowered.namespace
        try:
            against = reasons(names)
            if self.target.world_size is None:
                return None, against
            run = None if against else timed_run(names, self.target)
            return run, against or (notes(names) if run is not None else (f"torchtitan: {UNKNOWN_SIZES}",))
        except (*WRONG_KIND, ArithmeticError):
            return None, (f"torchtitan: time, because of {WRONG_KIND_SAID}",)

    @property
    def not_modelled(self) -> tuple[str, ...]:
        from primus_lint.ledger.titan import open_points
        from primus_lint.lower.megatron.namespace import WRONG_KIND

        try:
            return (*open_points(self.lowered.namespace), *self._timed[1])
        except WRONG_KIND:
            return (f"torchtitan: memory and time, because of {WRONG_KIND_SAID}",)


KINDS = {"megatron": Subject, "megatron_bridge": BridgeSubject, "torchtitan": TitanSubject}


def subject_of(
    document: ResolvedDocument, section: Section, target: Target, version: str, assumed: Sequence[Assumed] = ()
) -> Subject:
    """A section of a document on one target, as its framework is known."""
    return KINDS.get(section.framework, PlainSubject)(document, section, target, version, assumed)
