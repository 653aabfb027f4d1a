"""What is known of a training program: the kind of model, and the flags that it defines itself."""

from __future__ import annotations

import os
import re
from functools import lru_cache

# What programs of Megatron-LM train when it is no GPT.
_KINDS = {
    "pretrain_bert.py": "BERT", "pretrain_t5.py": "T5", "pretrain_ict.py": "retrieval", "pretrain_retro.py": "retrieval",
    "pretrain_vlm.py": "vision-language", "pretrain_vision_classify.py": "vision", "pretrain_vision_dino.py": "vision",
    "pretrain_vision_inpaint.py": "vision", "pretrain_mamba.py": "hybrid", "pretrain_hybrid.py": "hybrid",
}  # fmt: skip
_FILES = ("training/arguments.py", "arguments.py")
_FLAG = re.compile(r"""["'](--[A-Za-z0-9][\w-]*)["']""")
_MAX_BYTES = 1 << 21
_LEVELS = 6


def trained_kind(script: str) -> str | None:
    """What a training program trains when it is known and no GPT."""
    if re.search(r"(^|/)(multimodal|mimo)/[^/]*$", script):
        return "multimodal"
    return _KINDS.get(os.path.basename(script))


@lru_cache(maxsize=64)
def own_flags(path: str, script: str) -> frozenset[str]:
    """Flags named in `megatron*/training/arguments.py`, `megatron*/arguments.py` and the training program `script` of
    the nearest folder above `path` that holds such a file. Empty when there is none."""
    folder = os.path.dirname(os.path.abspath(path))
    for _ in range(_LEVELS):
        try:
            names = sorted(name for name in os.listdir(folder) if name.lower().startswith("megatron"))
        except OSError:
            names = []
        files = [os.path.join(folder, name, part) for name in names for part in _FILES]
        found = [file for file in files if os.path.isfile(file)]
        if found:
            found += [os.path.join(folder, os.path.basename(script))]
            return frozenset(flag for file in found for flag in _flags(file))
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    return frozenset()


def _flags(file: str) -> list[str]:
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > _MAX_BYTES:
            return []
        with open(file, encoding="utf-8", errors="replace") as source:
            return _FLAG.findall(source.read())
    except OSError:
        return []
