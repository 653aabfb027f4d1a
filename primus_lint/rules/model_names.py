"""What a name says of a model: its family, its size, its number format ("mixtral_8x7B-FP8": mixtral, 8x7b, fp8)."""

from __future__ import annotations

import re
from functools import cache

from primus_lint.tuples import NamedTuple

# Families of the shipped model table, and those that recipes name beside them; a word inside another is none.
FAMILIES = (
    "deepseek", "falcon", "flux", "gemma", "glm", "gpt", "grok", "kimi", "lfm", "llama", "mamba", "minimax", "mistral",
    "mixtral", "moonlight", "nemotron", "olmo", "phi", "qwen", "wan", "zebra",
)  # fmt: skip
_FAMILY = re.compile(rf"(?<![a-z])({'|'.join(FAMILIES)})(?=$|[^a-z]|oss|e(?![a-z]))")
# "70b", "8x7b", "a3b" (active), "17b128e" and "17bx128e" (active, experts); "0.6b"; not the 2.5 of "qwen2.5_7b"
_SIZE = re.compile(r"(?<![a-z0-9.])(a?)(?:(\d+)x)?((?!0\d)\d+(?:\.\d+)?)([bmt])(?:[-_]?x?(\d+)e)?(?![a-z0-9])")
_FORMAT = re.compile(r"(?<![a-z0-9])(bf16|fp16|fp8|mxfp8|mxfp4|nvfp4|fp4)(?![a-z0-9])")
_CUT = re.compile(
    r"(?<![a-z0-9])\d+[-_]?(?:l|layers?)(?![a-z0-9])|(?<![a-z])(?:proxy|tiny|mini|toy|debug|smoke)(?![a-z])"
)
_SCALE = {"m": 10**6, "b": 10**9, "t": 10**12}


class Name(NamedTuple):
    """`sizes` as written, in lower case ("8x7b", "a3b", "17b128e"); `total` parameters where the name says them."""

    families: frozenset[str]
    sizes: frozenset[str]
    formats: frozenset[str]
    total: float | None
    digit: float  # parameters of one unit in the last digit of `total`: 1e9 for 70B, 1e8 for 1.5B
    cut: bool  # a smaller stand-in by its own words: "4layer", "8L", "proxy"


@cache
def read_name(text: str) -> Name:
    """The parts of a file name, preset, project or checkpoint that name a model."""
    lower = text.lower()
    families = frozenset(match[1] for match in _FAMILY.finditer(lower))
    sizes, totals = set(), []
    for match in _SIZE.finditer(lower):
        active, copies, number, unit, experts = match.groups()
        sizes.add(f"{active}{copies + 'x' if copies else ''}{number}{unit}{experts + 'e' if experts else ''}")
        if not (active or copies or experts):
            decimals = len(number.partition(".")[2])
            totals.append((float(number) * _SCALE[unit], _SCALE[unit] / 10**decimals))
    total, digit = totals[0] if len(totals) == 1 else (None, 0.0)
    return Name(
        families, frozenset(sizes), frozenset(_FORMAT.findall(lower)), total, digit, _CUT.search(lower) is not None
    )


def differ(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two names both say something and agree in nothing of it."""
    return bool(one and other and not one & other)
