"""The layer pattern of hybrid (Mamba, attention, MLP) models, e.g. `M-M*|M-M-/M*`.

One symbol a layer; `|` separates pipeline segments, `/` starts the pattern of each MTP depth. Source: Megatron-Core's
hybrid layer allocation at d3528a21 and d98e8a64.
"""

from __future__ import annotations

from primus_lint.lower.megatron.namespace import countable
from primus_lint.tuples import NamedTuple

SYMBOLS = {"d3528a21": "M*-E", "d98e8a64": "M*-EGD+"}


class Pattern(NamedTuple):
    """A pattern taken apart. `segments` are the layers of each pipeline segment, `mtp` one text per MTP depth."""

    segments: tuple[str, ...]
    mtp: tuple[str, ...]

    @property
    def num_layers(self) -> int:
        return sum(len(segment) for segment in self.segments)


def split(text: str) -> Pattern:
    """Take a pattern apart without judging its symbols."""
    main, *mtp = text.split("/")
    return Pattern(tuple(main.split("|")), tuple(mtp) if any(mtp) else ())


def problem(text: str, version: str) -> str:
    """What is wrong with a pattern at a version, in a few words; "" when nothing is."""
    legal = SYMBOLS["d98e8a64" if version == "d98e8a64" else "d3528a21"]
    pattern = split(text)
    for part in (*pattern.segments, *pattern.mtp):
        for symbol in part:
            if symbol not in legal:
                return f"{symbol!r} is no layer; legal are {', '.join(legal)}"
        if "*" in part and ("D" in part or "+" in part):
            return "* (attention) and + or D (latent attention) do not mix in one model"
    if len(set(pattern.mtp)) > 1:
        return f"the MTP depths differ: {', '.join(pattern.mtp)}"
    return ""


def unified(main: str | None, mtp: str | None, depths: int | None) -> str | None:
    """The pattern with the old separate MTP pattern appended once per depth (nothing to append: `main`)."""
    if mtp is None or not depths or depths < 1 or (main is not None and "/" in main):
        return main
    return (main or "") + "/" + "/".join([mtp] * countable(depths))
