"""Whatever is in a file: parsing it raises nothing, ends soon, and points into the text."""

from __future__ import annotations

import time

import pytest

from primus_lint.source.comments import comments
from primus_lint.source.edits import encode
from primus_lint.source.spans import SpanDoc
from primus_lint.source.text import SourceText
from tests.fuzz.mutate import MUTATIONS, mutated
from tests.source.corpus import FILES, needs_corpus

COUNT = 2_000


def read_seconds(source: SourceText) -> float:
    """CPU seconds to parse a text once more."""
    start = time.process_time()
    doc = SpanDoc.parse(source)
    doc.to_python()
    comments(doc)
    return time.process_time() - start


@needs_corpus
def test_no_mutated_file_raises_or_hangs() -> None:
    slowest = total = 0.0
    worst: SourceText | None = None
    codes = set()
    for name, data in mutated(FILES, count=COUNT, seed=11):
        start = time.process_time()
        source = SourceText.from_bytes(name, data)
        doc = SpanDoc.parse(source)
        doc.to_python()
        found = comments(doc)
        took = time.process_time() - start
        if took > slowest:
            slowest, worst = took, source
        total += took
        for problem in doc.problems:
            codes.add(problem.code)
            for span in (problem.span, *(span for _, span in problem.related)):
                assert 0 <= span.start <= span.end <= len(source.text), (name, problem)
                place = source.location(span)
                assert 0 <= place.byte_start <= place.byte_end <= len(data), (name, problem)
        for comment in found:
            assert source.text[comment.span.start] == "#", name
        if not doc.fatal:
            assert encode(source, source.text) == data, name
    # no absolute time: the worst file may cost many times the average one, not thousands of times
    assert worst is not None
    again = min(read_seconds(worst) for _ in range(3))  # a busy machine may have slowed any one of them
    assert again < 500 * total / COUNT
    # every kind of damage was seen
    assert codes >= {
        "alias-bomb", "recursive-alias", "too-deep", "yaml-syntax", "not-utf8", "duplicate-key", "invalid-scalar",
        "multiple-documents", "undefined-alias", "unknown-tag", "merge-key-invalid", "tab-indent", "empty-file",
    }  # fmt: skip


@needs_corpus
def test_a_variant_can_be_made_again() -> None:
    some = list(mutated(FILES, count=30, seed=3))
    assert list(mutated(FILES, count=1, seed=3, start=17)) == [some[17]]
    assert list(mutated(FILES, count=30, seed=4)) != some


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutations_take_any_bytes(mutation) -> None:  # type: ignore[no-untyped-def]
    import random

    for data in (b"", b"\n", b"a: 1", b"\xff\xfe\x00"):
        for seed in range(40):
            assert isinstance(mutation(random.Random(seed), data), bytes)
