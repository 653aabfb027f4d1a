"""The corpus of real files, where it is present."""

from __future__ import annotations

from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
FILES = sorted(path for path in CORPUS.rglob("*") if path.suffix in (".yaml", ".yml"))

needs_corpus = pytest.mark.skipif(not FILES, reason="there is no ../shared/corpus beside this checkout")
