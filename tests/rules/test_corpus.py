"""The public Primus configurations: every labelled defect is found at its key, and legal files are not accused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.validation import corpus, defects, worlds

SHARED = Path(__file__).resolve().parents[3] / "shared" / "corpus"
LABELS, ROOT = SHARED / "primus-labels", SHARED / "primus"
needs_corpus = pytest.mark.skipif(not LABELS.is_dir(), reason="the labelled corpus (../shared/corpus) is not at hand")


@needs_corpus
def test_every_labelled_defect_is_found_and_no_legal_file_is_accused() -> None:
    figures = defects.run([LABELS / "known-defects.csv", ROOT])
    assert figures["missed"] == []
    assert figures["error_found"] == figures["error_total"] >= 30
    # Four recipes of Megatron-Bridge do stop (catalogue of keys: hf_path is passed twice) and have no label.
    assert [
        entry["file"] for entry in figures["false_errors"] if entry["rule"] != "recipe-passes-argument-itself"
    ] == []


@needs_corpus
def test_the_legal_world_sizes_are_those_of_the_labels() -> None:
    assert worlds.run([LABELS / "megatron-legal-world-sizes.csv", ROOT])["disagreements"] == []


@needs_corpus
def test_labelled_warnings_of_keys_are_warnings_in_their_file() -> None:
    """D05, D12, D13, D14, D16, D21, D25, D26 name a key or its file; the finding stands in the same file."""
    wanted = {"D05", "D12", "D13", "D14", "D21", "D25", "D26"}
    missed: Counter[str] = Counter()
    for row in corpus.rows(LABELS / "known-defects.csv"):
        if row["id"] not in wanted or row["level"] != "warning":
            continue
        found = corpus.check(ROOT, row["file"]).findings
        keys = {
            key for finding in found if finding.severity == "warning" and finding.code[0] == "K" for key in finding.keys
        }
        if not (row["key"] in keys or (not row["key"] and keys)):
            missed[row["id"]] += 1
    assert not missed


@needs_corpus
def test_ordinary_files_are_quiet() -> None:
    """With the recommended profile at most three findings for half of the files, and never a dozen."""
    counts = []
    for folder in ("examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            checked = corpus.check(ROOT, path.relative_to(ROOT).as_posix())
            if checked.is_recipe:
                counts.append(len(checked.findings))
    assert sorted(counts)[len(counts) // 2] <= 2
    assert max(counts) < 12
