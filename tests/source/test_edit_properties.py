"""Random edits of random texts, with PyYAML and ruamel.yaml as witnesses."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from primus_lint.source import edits
from primus_lint.source.edits import Edited, EditError, Operation, edit
from primus_lint.source.render import render_value
from primus_lint.source.spans import SpanDoc

from .documents import documents, operations
from .intent import allowed_lines, changed_lines, intend, unshared, untouched
from .ruamel_witness import comment_lines, untyped
from .support import same

# why an edit may be refused: it would reach a second place, or the text around it would change its meaning
EXCUSES = ("is used again on line", "alias", "of its own", "merged", "is set", "already")


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_an_edit_does_what_it_says_and_nothing_else(data: st.DataObject) -> None:
    text = data.draw(documents())
    doc = SpanDoc.parse_text(text)
    assume(not doc.fatal and not doc.problems)
    check_edit(doc, data.draw(operations(unshared(yaml.safe_load(text)))))


def check_edit(doc: SpanDoc, operation: Operation) -> None:
    """The tree is as meant, no line changes that has no business with it, and no other comment is lost."""
    text = doc.source.text
    tree = unshared(yaml.safe_load(text))
    result = edit(doc, [operation])
    if isinstance(result, EditError):
        fragile = "|" in text or ">" in text
        assert fragile or any(excuse in result.message for excuse in EXCUSES), (text, operation, result)
        return
    new = result.text
    assert same(yaml.safe_load(new), intend(tree, operation))
    assert edits.apply(doc, result.splices) == new

    first, last = allowed_lines(text, operation) if "*" not in text else (0, text.count("\n"))  # aliases have no marks
    if "|+" in text or ">+" in text:  # the empty lines below a key that goes would become such a scalar's: they go too
        last = text.count("\n")
    if operation.op in ("insert", "insert-item"):
        # new lines may stand next to what was there, at most one old line (in flow, null or {}) changes
        changed = changed_lines(text, new)
        old_lines = changed[1] - changed[0] + 1
        assert old_lines <= max(1, last - first + 1)
    else:
        assert untouched(text, new, first, last), (text, new)

    lost = Counter(comment_lines(text)) - Counter(comment_lines(new))
    if operation.op in ("insert", "insert-item", "rename", "set-default"):
        assert not lost, (text, new)
    else:
        assert not lost - Counter(_comments_of_lines(text, first, last)), (text, new)


def _comments_of_lines(text: str, first: int, last: int) -> list[str]:
    return [
        "#" + part.split("\r")[0].rstrip()
        for line in text.split("\n")[first : last + 1]
        for part in line.split("#")[1:]
    ]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_ruamel_reads_the_same_new_tree(data: st.DataObject) -> None:
    """With every scalar as its text, so that the versions of YAML do not matter."""
    text = data.draw(documents())
    doc = SpanDoc.parse_text(text)
    assume(not doc.fatal and not doc.problems and "!!" not in text and "%" not in text)
    operation = data.draw(operations(unshared(yaml.safe_load(text))))
    assume(operation.op in ("delete", "insert", "insert-item", "set"))
    assume(all(isinstance(step, (str, int)) and not isinstance(step, bool) for step in operation.path))
    result = edit(doc, [operation])
    assume(isinstance(result, Edited) and result.splices)  # (a value that is set to itself keeps its spelling)
    assert isinstance(result, Edited)
    text_keys: tuple[Any, ...] = tuple(
        _as_text(step, doc, operation.path[:index]) for index, step in enumerate(operation.path)
    )
    value = _plain(untyped(render_value(operation.value) + "\n"))
    assert _plain(untyped(result.text)) == intend(
        _plain(untyped(text)), operation._replace(path=text_keys, value=value)
    )


def _as_text(step: Any, doc: SpanDoc, holder: tuple[Any, ...]) -> Any:
    node = doc.node(holder)
    return str(step) if node is not None and node.kind == "mapping" else step


def _plain(value: Any) -> Any:
    if value in ("", "null", "~"):
        return None  # what an insertion fills
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=300)
@given(st.data())
def test_edits_one_after_the_other_compose(data: st.DataObject) -> None:
    text = data.draw(documents())
    doc = SpanDoc.parse_text(text)
    assume(not doc.fatal)
    todo = []
    tree = unshared(yaml.safe_load(text))
    for _ in range(data.draw(st.integers(1, 5))):
        operation = data.draw(operations(tree))
        if isinstance(edit(doc, [*todo, operation]), Edited):
            todo.append(operation)
            tree = intend(tree, operation)
    result = edit(doc, todo)
    assert isinstance(result, Edited)
    assert same(yaml.safe_load(result.text), tree)
    assert edits.apply(doc, result.splices) == result.text


@given(
    st.text("ab\n", max_size=30),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.text("xy", max_size=3)), max_size=6),
)
def test_a_draft_says_what_it_did(text: str, cuts: list[tuple[int, int, str]]) -> None:
    draft = edits.Draft(text)
    expected = text
    for start, length, new in cuts:
        start = min(start, len(expected))
        end = min(start + length, len(expected))
        assert draft.apply([edits.Splice(start, end, new)]) is None
        expected = expected[:start] + new + expected[end:]
    assert draft.text == expected
    assert edits.apply(SpanDoc.parse_text(text), draft.splices()) == expected
