"""Framework versions by framework: which name means which version, and which of two is later."""

from __future__ import annotations

from primus_lint.lower.megatron import versions as megatron

# TorchTitan: name -> (order, what it is). The default is what the newest Primus release pins.
TORCHTITAN: dict[str, tuple[int, str]] = {
    "v0.2.2": (0, "torchtitan v0.2.2 = 73a0e697 (2026-02-20), pinned by Primus fd1eeabb"),
    "b5bcd76c": (1, "torchtitan b5bcd76c (main of 2026-08-22)"),
}
_ALIASES = {"0.2.2": "v0.2.2", "73a0e697": "v0.2.2", "head": "b5bcd76c", "main": "b5bcd76c"}
_ORDER = {name: facts[0] for table in (megatron.VERSIONS, TORCHTITAN) for name, facts in table.items()}


def versions(framework: str) -> tuple[str, ...]:
    """The versions of a framework that the rules know, the oldest first."""
    return tuple(TORCHTITAN) if framework == "torchtitan" else tuple(megatron.VERSIONS)


def default(framework: str) -> str:
    """What the newest Primus release pins."""
    return "v0.2.2" if framework == "torchtitan" else megatron.DEFAULT


def canonical(framework: str, name: str | None) -> str | None:
    """The version of a framework that a name means (None: the default); None when it is not one of its versions.

    A Primus release names a version of every framework.
    """
    if framework != "torchtitan":
        return megatron.canonical(name)
    text = "" if name is None else name.strip().lower()
    if text in TORCHTITAN or text in _ALIASES:
        return _ALIASES.get(text, text)
    if len(text) >= 7:
        for known in (*TORCHTITAN, *_ALIASES):
            if known.startswith(text) or text.startswith(known):
                return _ALIASES.get(known, known)
    is_primus = not text or text in ("default", "pin", "primus", "latest-primus") or "primus" in text
    return "v0.2.2" if is_primus or any(text.startswith(release) for release in megatron.PRIMUS_RELEASES) else None


def order(version: str) -> int:
    """Position of a canonical version among those of its framework: later is greater."""
    return _ORDER[version]
