"""Broken variants of real files: bytes, tokens, types, huge numbers, deep nesting, alias bombs.

    for name, data in mutated(files, count=20_000, seed=1): ...

Every variant depends only on the seed, its number and the files, so `mutated(..., start=n, count=1)` makes one again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

VALUES = [
    b"null", b"~", b"", b"true", b"yes", b"-1", b"0", b"1e-5", b"1.0e+400", b".nan", b"-.inf", b"9" * 5000,
    b"0x" + b"f" * 6000, b"-" + b"9" * 30, b"1" + b":59" * 3000, b"0b_", b"08", b"010", b"2024-02-31", b"2024-01-01",
    b"2001-12-14t21:59:43.10-05:00", b"[]", b"{}", b"[1, [2, {a: b}]]", b"{a: {b: [c]}}", b"'text", b'"text', b"'8'",
    b'"\\ud800"', b'"\\x00"', b"!!int x", b"!!binary x", b"!!python/object:os.system x", b"!!set {a, b}",
    b"!!omap [a: 1]", b"!unknown 1", b"&a *a", b"&a [*a]", b"*nowhere", b"<<", b"=", b"| \n  x", b">-\n\n",
    b"${X}", b"${X:}", b"${X:8",
    b"${A:${B:1}}", b"${X:[1,2]}", b"@x", b"`x", b"%x", b"a: b", b"? x", b"- x", b"x" * 100_000,
    "é\u2028\x85\ufeff".encode(), b"{{x}}", b"[" * 50, b"]", b"}", b"1,2", b"9007199254740993",
    b"-0.0", b"1_000", b"_", b"0.1.2", b"inf", b"None",
]  # fmt: skip
CHUNKS = [
    b"\x00", b"\t", b"\r", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", b"\x85", b"\xe2\x80\xa8",
    b"\n---\n", b"\n...\n", b"#", b" #", b": ", b":", b"- ", b"? ", b"{", b"}", b"[", b"]", b"'", b'"', b"|",
    b">", b"&a ", b"*a ",
    b"!x ", b"%YAML 9.9\n", b"\n", b"\n\t", b"  ", b",", b"<<: *a\n", b"\x1b[31m", b"\xf0\x9f\x98\x80",
]  # fmt: skip
_VALUE = re.compile(rb"(?m)^([ \-]*[\w.\-]+:[ ]*)([^#\n]*)")
_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")


def mutated(files: Sequence[Path], *, count: int, seed: int = 0, start: int = 0) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of `count` variants. The name says which file, which mutations, and the variant's number."""
    for number in range(start, start + count):
        rng = random.Random(f"{seed}:{number}")
        path = rng.choice(files)
        data = path.read_bytes()
        names = []
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            mutation = rng.choice(MUTATIONS)
            data = mutation(rng, data)
            names.append(mutation.__name__)
        yield f"{number}:{path.name}:{'+'.join(names)}", data


def flip_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes become others."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        if result:
            result[rng.randrange(len(result))] = rng.randrange(256)
    return bytes(result)


def insert_chunk(rng: random.Random, data: bytes) -> bytes:
    """Something that means something to YAML, or to a decoder, stands in the middle."""
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(CHUNKS) * rng.choice((1, 1, 1, 3)) + data[at:]


def cut(rng: random.Random, data: bytes) -> bytes:
    """A stretch is missing, or all behind a place."""
    start = rng.randint(0, len(data))
    stop = len(data) if rng.random() < 0.5 else min(len(data), start + rng.randint(1, 200))
    return data[:start] + data[stop:]


def shuffle_tokens(rng: random.Random, data: bytes) -> bytes:
    """Two words, blanks or signs change places, or one doubles."""
    tokens = _TOKEN.findall(data)
    if len(tokens) < 2:
        return data
    one, two = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    if rng.random() < 0.5:
        tokens[one], tokens[two] = tokens[two], tokens[one]
    else:
        tokens[one] *= 2
    return b"".join(tokens)


def shuffle_lines(rng: random.Random, data: bytes) -> bytes:
    """A line goes elsewhere, doubles (a key set twice), or changes its indentation."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines.insert(rng.randrange(len(lines)), lines.pop(at))
    elif kind == 1:
        lines.insert(rng.randint(at, len(lines)), lines[at])
    elif kind == 2:
        lines[at] = rng.choice((b" ", b"  ", b"\t", b"    ")) + lines[at]
    else:
        lines[at] = lines[at][rng.randint(1, 4) :]
    return b"\n".join(lines)


def change_value(rng: random.Random, data: bytes) -> bytes:
    """A value becomes one of another type or size."""
    matches = list(_VALUE.finditer(data))
    if not matches:
        return data
    match = rng.choice(matches)
    return data[: match.start(2)] + rng.choice(VALUES) + b" " + data[match.end(2) :]


def nest_deep(rng: random.Random, data: bytes) -> bytes:
    """A value nested far deeper than anybody nests."""
    depth = rng.choice((50, 150, 250, 1500, 5000))
    kind = rng.randrange(3)
    if kind == 0:
        deep = b"[" * depth + b"]" * rng.choice((depth, depth - 1, 0))
    elif kind == 1:
        deep = b"{a: " * depth + b"1" + b"}" * depth
    else:
        deep = b"\n" + b"\n".join(b" " * level + b"a:" for level in range(1, min(depth, 400)))
    return data + b"\ndeep: " + deep + b"\n"


def bomb(rng: random.Random, data: bytes) -> bytes:
    """Anchors and aliases that grow without bound, or refer to themselves, or merge."""
    kind = rng.randrange(5)
    if kind == 0:
        levels = rng.randint(5, 40)
        lines = [b"a0: &a0 [x, x]"] + [
            b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, levels)
        ]
    elif kind == 1:
        lines = [b"a0: &a0 {x: 1}"] + [
            b"a%d: &a%d {y: *a%d, <<: [*a%d, *a%d]}" % (n, n, n - 1, n - 1, n - 1) for n in range(1, rng.randint(5, 60))
        ]
    elif kind == 2:
        lines = [b"r: &r", b"  again: *r"]
    elif kind == 3:
        lines = [b"base: &base {a: 1, a: 2}", b"m: {<<: *base, <<: 5, a: 3}", b"n: {<<: [*base, 7]}"]
    else:
        lines = [b"a0: &a0 []"] + [b"a%d: &a%d [*a%d]" % (n, n, n - 1) for n in range(1, rng.randint(100, 600))]
    return data + b"\n" + b"\n".join(lines) + b"\n"


def recode(rng: random.Random, data: bytes) -> bytes:
    """Another encoding, byte order mark or line break."""
    kind = rng.randrange(7)
    if kind == 0:
        return b"\xef\xbb\xbf" + data
    text = data.decode("utf-8", "replace")
    if kind == 1:
        return text.encode("utf-16")
    if kind == 2:
        return b"\xff\xfe" + data
    if kind == 3:
        return (text + "# \xe9\n").encode("latin-1", "replace")
    if kind == 4:
        return data.replace(b"\n", b"\r")
    return data.replace(b"\n", b"\r\n") if kind == 5 else text.encode("utf-32")


def wrap(rng: random.Random, data: bytes) -> bytes:
    """The whole file as something else: a list item, a second document, a block scalar, a string, nothing."""
    lines = data.split(b"\n")
    kind = rng.randrange(6)
    if kind == 0:
        return b"- " + b"\n  ".join(lines)
    if kind == 1:
        return data + b"\n---\n" + data
    if kind == 2:
        return b"text: |\n  " + b"\n  ".join(lines)
    if kind == 3:
        return b'"' + data.replace(b'"', b"'") + b'"'
    return b"" if kind == 4 else rng.choice(VALUES)


MUTATIONS: list[Callable[[random.Random, bytes], bytes]] = [
    flip_bytes, insert_chunk, cut, shuffle_tokens, shuffle_lines, change_value, change_value, nest_deep, bomb, recode,
    wrap,
]  # fmt: skip
