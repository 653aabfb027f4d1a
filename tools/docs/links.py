"""Links inside the site: every one leads to a page, and to a heading of it when it names one."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1\s*$", re.M | re.S)
_INLINE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*(?:\{#([\w-]+)\})?$", re.M)


def dead_links(pages: Mapping[str, str], exists: Callable[[str], bool] = lambda path: False) -> list[str]:
    """`page: link` of every internal link that leads nowhere. `exists` tells whether another file may be linked, by its
    path from the folder of the pages (`assets/site.css`, `../README.md`)."""
    anchors = {path: headings(text) for path, text in pages.items()}
    dead = []
    for path, text in pages.items():
        for link in links(text):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            where = path if not target else posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if where in pages:
                good = not anchor or anchor in anchors[where]
            else:
                good = exists(where)
            if not good:
                dead.append(f"{path}: {link}")
    return dead


def rewrite_outside(text: str, base: str) -> str:
    """Links of a page at the top that leave the folder of the pages (`../README.md`) lead to the repository."""
    return re.sub(r"\]\(\.\./([^)\s]+)\)", lambda match: f"]({base}{match[1]})", text)


def links(text: str) -> list[str]:
    """Targets of the links of a page, code left out."""
    return _LINK.findall(_INLINE.sub("", _FENCE.sub("", text)))


def headings(text: str) -> set[str]:
    """Anchors of the headings of a page, as Python-Markdown makes them."""
    found: set[str] = set()
    for words, given in _HEADING.findall(_FENCE.sub("", text)):
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words.replace("`", "")).strip().lower())
        anchor = given or slug
        number = 1
        while anchor in found:
            anchor = f"{given or slug}_{number}"
            number += 1
        found.add(anchor)
    return found
