"""The documentation site's generated part.

    python -m tools.gen_docs --out DIR      every page, hand-written and generated, as Markdown
    python -m tools.gen_docs --check        generate, and look for dead links; nothing is written

`mkdocs build` does the same in memory (`tools/docs/hook.py`). Generated pages are not committed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

from tools.docs import console, hardware_pages, reference, rule_pages
from tools.docs.links import dead_links, rewrite_outside

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCS = os.path.join(ROOT, "docs")
REPOSITORY = "https://github.com/primus-lint/primus-lint/blob/main/"
_MARK = re.compile(r"^<!-- generate: ([a-z]+) -->$", re.M)


def written() -> dict[str, str]:
    """The hand-written pages: path below docs/ -> text."""
    found = {}
    for folder, _, names in os.walk(DOCS):
        for name in sorted(names):
            if name.endswith(".md"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found[os.path.relpath(path, DOCS).replace(os.sep, "/")] = file.read()
    return found


def exists(path: str) -> bool:
    """Whether a file of the repository that is no page may be linked; `path` as seen from docs/."""
    return os.path.isfile(os.path.join(DOCS, *path.split("/")))


def generated(hand: frozenset[str]) -> dict[str, str]:
    """The generated pages; `hand` are the hand-written ones, which they may link."""
    return {**rule_pages.pages(hand), **hardware_pages.pages()}


def fill(text: str) -> str:
    """A hand-written page with its generated parts."""
    return _MARK.sub(lambda match: reference.GENERATED[match[1]](), text)


def expand(text: str) -> str:
    """A hand-written page with its generated parts and the output of its commands. Raises console.CommandFailed."""
    return console.expand(fill(text))


def published(text: str) -> str:
    """A hand-written page as the site shows it: expanded, and with links into the repository."""
    return rewrite_outside(expand(text), REPOSITORY)


def site() -> dict[str, str]:
    """Every page of the site."""
    hand = written()
    clash = set(hand) & set(made := generated(frozenset(hand)))
    if clash:
        raise ValueError(f"written by hand and generated: {sorted(clash)}")
    return {**{path: expand(text) for path, text in hand.items()}, **made}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="folder for the pages")
    parser.add_argument("--check", action="store_true", help="look for dead links")
    asked = parser.parse_args()
    pages = site()
    for path, text in pages.items() if asked.out else ():
        place = os.path.join(asked.out, *path.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
    dead = dead_links(pages, exists)
    for line in dead[:40]:
        print(f"dead link: {line}")
    size = sum(len(text.encode()) for text in pages.values())
    print(f"{len(pages)} pages, {size / 2**20:.1f} MiB, {len(dead)} dead links")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
