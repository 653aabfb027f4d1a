"""Rules of one's own (`rule-paths`) that never say anything, though they can be read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def doubts(folders: tuple[str, ...]) -> Iterator[str]:
    """Files that are passed over for their name, and names in conditions that no recipe has."""
    from primus_lint.rules.compile import not_rule_files

    for folder in folders:
        for file in not_rule_files(folder):
            yield f"{os.path.relpath(file)} is passed over: the file of a rule is called like its code, Z101-name.yaml"
    yield from _names()


def _names() -> Iterator[str]:
    from difflib import get_close_matches

    from primus_lint.lower.megatron.namespace import DERIVED
    from primus_lint.readers.tables import DEFAULT_VERSIONS, table
    from primus_lint.rules.catalogue import documents

    rules = documents().values()
    known = {name for rule in rules if rule["code"][0] != "Z" for name in rule["names"]}
    known.update(DERIVED, *(table(framework)["keys"] for framework in DEFAULT_VERSIONS))
    for rule in rules:
        for name in rule["names"] if rule["code"][0] == "Z" else ():
            if name not in known and not name.startswith(("given_", "env_")):
                near = get_close_matches(name, known, 1, 0.6)
                hint = f" (near: {near[0]})" if near else ""
                yield (
                    f"{rule['name']} ({rule['code']}) names {name}, which is no key of a framework{hint}: it says nothing of "
                    "recipes that do not set it"
                )
