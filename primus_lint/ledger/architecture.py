"""Which compute architecture an accelerator has."""

from __future__ import annotations


def architecture(gpu: str | None, vendor: str) -> str:
    """ "sm80", "sm90", "sm100", "gfx942" or "gfx950" of an accelerator's name; the commonest of a vendor when unknown."""
    name = (gpu or "").lower().replace("-", "").replace("_", "")
    if vendor == "rocm":
        return "gfx950" if name.startswith("mi35") else "gfx942"
    if name.startswith(("a100", "a800", "a40", "a10")):
        return "sm80"
    if name.startswith(("b200", "b300", "gb200", "gb300", "b100")):
        return "sm100"
    return "sm90"
