"""The framework versions that the rules and the ledger know, in the order in which they appeared."""

from __future__ import annotations

# name -> (order, what it is). Names are commit prefixes of Megatron-LM, or a Megatron-Core release.
VERSIONS: dict[str, tuple[int, str]] = {
    "core-0.16.1": (0, "megatron-core 0.16.1 from PyPI"),
    "d3528a21": (1, "Megatron-LM d3528a21 (2026-03-06), pinned by Primus fd1eeabb"),
    "d98e8a64": (2, "Megatron-LM d98e8a64 (main of 2026-08-22)"),
}
DEFAULT = "d3528a21"  # what the newest Primus release pins
PRIMUS_RELEASES = {"fd1eeabb": "d3528a21"}


def canonical(name: str | None) -> str | None:
    """The canonical version for a commit (prefix), release or alias; None when it is not known."""
    if name is None:
        return DEFAULT
    text = name.strip().lower()
    if text in VERSIONS:
        return text
    if text in ("", "default", "pin", "primus", "latest-primus"):
        return DEFAULT
    if text in ("head", "main"):
        return "d98e8a64"
    for release, pinned in PRIMUS_RELEASES.items():
        stripped = text.removeprefix("primus-").removeprefix("primus@")
        if len(stripped) >= 7 and (stripped.startswith(release) or release.startswith(stripped)):
            return pinned
    for known in VERSIONS:
        if len(text) >= 7 and (text.startswith(known) or known.startswith(text)):
            return known
    if text in ("0.16.1", "core-0.16", "core_r0.16.0", "core_v0.16.1", "0.16"):
        return "core-0.16.1"
    return None


def order(version: str) -> int:
    """Position of a canonical version: later is greater."""
    return VERSIONS[version][0]


def key_table(version: str) -> str:
    """Which shipped key table describes the arguments of a version."""
    return "d98e8a64" if version == "d98e8a64" else "d3528a21"
