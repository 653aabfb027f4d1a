"""Shared by the corpus figures: check one file of a corpus, with the corpus's own Primus presets."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from primus_lint.pipeline import Checked, Options, check_source
from primus_lint.source.text import SourceText


def check(corpus: Path, relative: str, **options: Any) -> Checked:
    """Check one file; presets come from the corpus when it holds `primus/configs`, else from the snapshot."""
    path = corpus / relative
    root = str(corpus) if (corpus / "primus" / "configs").is_dir() else None
    return check_source(SourceText.from_path(str(path)), Options(primus_root=root, **options))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def relative_to(corpus: Path, path: str) -> str:
    """A finding's path relative to the corpus; preset paths of a snapshot already are."""
    try:
        return Path(path).resolve().relative_to(corpus.resolve()).as_posix()
    except ValueError:
        return path
