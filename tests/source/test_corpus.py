"""Every real file: values, places, no-op edits, and ten thousand random edits."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from primus_lint.source import edits
from primus_lint.source.edits import Edited, Operation, edit
from primus_lint.source.render import render_scalar
from primus_lint.source.spans import SpanDoc
from primus_lint.source.text import SourceText

from .corpus import FILES, needs_corpus
from .documents import VALUES, pick_operation
from .intent import allowed_lines, changed_lines, intend, unshared, untouched
from .support import same
from .test_spans import check_places

pytestmark = needs_corpus


def parse(path: Path) -> SpanDoc:
    return SpanDoc.parse(SourceText.from_path(str(path)))


def test_values_are_those_of_the_safe_loader_and_places_are_exact() -> None:
    assert len(FILES) > 500
    for path in FILES:
        doc = parse(path)
        assert not doc.problems, path
        assert same(doc.to_python(), yaml.load(path.read_bytes(), yaml.CSafeLoader)), path
        check_places(doc)


def test_the_pure_loader_that_training_uses_agrees() -> None:
    for path in FILES[::10]:
        assert same(parse(path).to_python(), yaml.safe_load(path.read_bytes())), path


def test_an_edit_that_changes_nothing_leaves_every_byte() -> None:
    for path in FILES:
        source = SourceText.from_path(str(path))
        doc = SpanDoc.parse(source)
        assert edits.encode(source, source.text) == source.data
        root = doc.root
        if root is None:
            continue
        todo = (
            [Operation("set", (key,), value) for key, value in doc.to_python().items()]
            if root.kind == "mapping"
            else []
        )
        result = edit(doc, todo)
        assert isinstance(result, Edited) and edits.encode(source, result.text) == source.data, path
        splices = [
            splice for key in (entry.key.value for entry in root.own_entries) for splice in _replace_by_itself(doc, key)
        ]
        new = edits.apply(doc, splices)
        assert isinstance(new, str) and edits.encode(source, new) == source.data, path


def _replace_by_itself(doc: SpanDoc, key: Any) -> list[edits.Splice]:
    node = doc.node((key,))
    assert node is not None
    if node.kind != "scalar" or node.is_absent or node.is_alias or "\n" in node.raw:
        return []
    splices = edits.replace_value(doc, (key,), node.raw)
    renamed = edits.rename_key(doc, (key,), key)
    if isinstance(splices, edits.EditError):
        assert node.anchor is not None
        return []
    assert isinstance(renamed, list)
    return splices + renamed


def test_ten_thousand_random_edits() -> None:
    """The tree is the one that was meant, and no line changes that the edit has no business with."""
    rng = random.Random(20240607)
    loaded = []
    for path in FILES:
        doc = parse(path)
        tree = unshared(doc.to_python())
        if isinstance(tree, dict):
            loaded.append((path, doc, tree))
    refused: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for number in range(10_000):
        path, doc, tree = loaded[number % len(loaded)]
        operation = pick_operation(tree, lambda choices: choices[rng.randrange(len(choices))], VALUES)
        result = edit(doc, [operation])
        if not isinstance(result, Edited):
            assert "used again" in result.message or "alias" in result.message, (path, operation, result)
            refused[operation.op] += 1
            continue
        done[operation.op] += 1
        new = result.text
        assert same(yaml.load(new, yaml.CSafeLoader), intend(tree, operation)), (path, operation)
        old = doc.source.text
        first, last = allowed_lines(old, operation)
        if operation.op in ("insert", "insert-item"):
            changed = changed_lines(old, new)
            lines = changed[1] - changed[0] + 1
            parent = doc.node(operation.path[:-1])
            inline = parent is not None and parent.style != "block"
            assert lines <= 0 or (inline and lines == 1 and first <= changed[0] <= last), (path, operation)
        else:
            assert untouched(old, new, first, last), (path, operation)
    assert sum(refused.values()) < 100
    assert all(done[op] > 50 for op in ("set", "delete", "rename", "insert", "insert-item", "set-default")), done


def test_plain_scalars_of_real_files_are_written_back_the_same() -> None:
    """A rendered value reads back as itself; most are written as they were."""
    same_text = total = 0
    for path in FILES[::5]:
        for root in parse(path).roots:
            for node in root.walk():
                if node.kind == "scalar" and not node.is_alias and not node.is_absent:
                    text = render_scalar(node.value, node.style)
                    assert same(yaml.safe_load(f"- {text}\n")[0], node.value), (path, text)
                    total += 1
                    same_text += text == node.raw
    assert same_text > 0.9 * total
