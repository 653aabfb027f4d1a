"""The shipped table of public models: their facts as Megatron arguments."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

from primus_lint import resources

_INDENT = '\n  "'


@lru_cache(maxsize=1)
def _text() -> str:
    with open(os.path.join(resources.data_root("schemas"), "models.json"), encoding="utf-8") as file:
        return file.read()


@lru_cache(maxsize=1)
def _index() -> dict[str, str]:
    """Simplified name -> model name, for models and aliases."""
    text = _text()
    index: dict[str, str] = {}
    at = text.find('\n "aliases": ')
    aliases: dict[str, str] = json.loads(text[text.find("{", at) : text.rfind("}")])
    for alias, name in aliases.items():
        index[_simple(alias)] = name
    for name in model_names():
        index[_simple(name)] = name
    return index


@lru_cache(maxsize=1)
def model_names() -> tuple[str, ...]:
    """Names of the table, sorted."""
    text = _text()
    end = text.find('\n "aliases": ')
    at = text.find(_INDENT, text.find('\n "models": '))
    names = []
    while 0 <= at < end:
        at += len(_INDENT)
        names.append(text[at : text.find('"', at)])
        at = text.find(_INDENT, at)
    return tuple(names)


def _simple(name: str) -> str:
    """Spelling aside: case, separators, suffix and organisation do not tell models apart."""
    text = name.lower().removesuffix(".yaml").removesuffix(".yml")
    return text.replace("-", "").replace("_", "").replace(" ", "").removeprefix("meta").removesuffix("hf")


@lru_cache(maxsize=256)
def model_facts(name: str) -> dict[str, Any] | None:
    """The facts of a model by its name, a Primus preset name (`llama3.1_70B`) or a torchtitan flavor (`llama3/70B`).

    `name` (of the table), `args` (Megatron arguments), `published` (parameters, with source), `counted` (our own count
    without MTP layers), `source`, and `unlike` where the arguments do not say all of the architecture. None: unknown.
    The result is shared: do not change it.
    """
    index = _index()
    found = index.get(_simple(name)) or index.get(_simple(name.rpartition("/")[2]))
    if found is None:
        return None
    text = _text()
    needle = f'{_INDENT}{found}": '
    at = text.find(needle, text.find('\n "models": ')) + len(needle)
    facts: dict[str, Any] = json.loads(text[at : text.find("\n", at)].rstrip(","))
    facts["name"] = found
    return facts


def nearest_models(name: str, count: int = 3) -> list[str]:
    """Names of the table that look most like `name`."""
    from difflib import get_close_matches

    simple = {_simple(known): known for known in model_names()}
    return [simple[key] for key in get_close_matches(_simple(name), list(simple), count, 0.5)]
