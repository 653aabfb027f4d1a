"""Names of accelerators: aliases in any case and spelling, near names, and what a path gives away."""

from __future__ import annotations

import os

_NOISE = ("nvidia", "amd", "instinct", "tesla")


def normalised(name: str) -> str:
    """The name without case, separators and vendor words: "NVIDIA H100-80GB_HBM3" -> "h10080gbhbm3"."""
    text = "".join(character for character in name.lower() if character.isalnum())
    for word in _NOISE:
        text = text.replace(word, "")
    return text


def near(name: str, known: list[str]) -> list[str]:
    """Up to three known names that look like `name`, best first."""
    import difflib

    return difflib.get_close_matches(normalised(name), known, 3, 0.4)


def guess_from_path(path: str, aliases: dict[str, str]) -> str | None:
    """The accelerator that a path names, from the file upwards: a whole folder name, or a word of one.

    A word must be an alias on its own and hold a digit: `MI300X/`, `MI355/`, `llama_h100.yaml`, `dgx_b200`.
    """
    for part in reversed(path.replace("\\", "/").split("/")):
        stem = os.path.splitext(part)[0] if part.endswith((".yaml", ".yml", ".sh", ".json", ".toml", ".py")) else part
        found = aliases.get(normalised(stem))
        if found is not None:
            return found
        words = _words(stem)
        # A longer name wins over a shorter one that it holds: "a100-pcie" over "a100".
        for count in (3, 2, 1):
            for start in range(len(words) - count + 1):
                found = aliases.get("".join(words[start : start + count]))
                if found is not None:
                    return found
    return None


def _words(stem: str) -> list[str]:
    """Lower-case words of a file name, cut at anything that is neither letter nor digit."""
    text = "".join(character if character.isalnum() else " " for character in stem.lower())
    return [word for word in text.split() if word not in _NOISE]
