"""Several edits in one go, with proof: the new text is parsed again and must be the tree that was meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from primus_lint.source.comments import comments
from primus_lint.source.delete import delete
from primus_lint.source.insert import append, insert_after, insert_before, insert_item, lands_in_flow
from primus_lint.source.places import name
from primus_lint.source.render import render_value
from primus_lint.source.spans import SourceText, Span, SpanDoc
from primus_lint.source.splice import Draft, EditError, Splice, apply_splices
from primus_lint.source.values import default_span, rename_key, replace_default, replace_value


class Operation(NamedTuple):
    """One change of the tree.

    op     "set"          the value at `path` becomes `value`
           "set-default"  the default in the `${NAME:default}` at `path` becomes the text `value`
           "insert"       a new key, the last step of `path`, gets `value`; at the end of its mapping, or behind the
                          key `after`, or before the key `before`; `comment` goes on its line
           "insert-item"  `value` becomes an item of a list, before the one at `path` (or at its end)
           "delete"       the key or item at `path` goes
           "rename"       the key at `path` becomes `value`
    """

    op: str
    path: tuple[Any, ...]
    value: Any = None
    comment: str | None = None
    after: Any = None
    before: Any = None


class Edited(NamedTuple):
    """A proven edit: the new text, and the splices of the old text that make it."""

    text: str
    splices: list[Splice]


def edit(doc: SpanDoc, operations: Iterable[Operation]) -> Edited | EditError:
    """Make all operations, each on the outcome of those before it; all or none."""
    todo = list(operations)
    draft = Draft(doc.source.text)
    now = doc
    for operation in todo:
        splices = plan(now, operation)
        if isinstance(splices, EditError):
            return splices
        failed = draft.apply(splices)
        if failed is not None:
            return failed
        now = _parse_as(doc, draft.text)
        if now.fatal:
            return EditError(f"{operation.op} {name(operation.path)} would break the file: {now.problems[-1].message}")
    splices = draft.splices()
    return verify(doc, draft.text, todo, splices) or Edited(draft.text, splices)


def plan(doc: SpanDoc, operation: Operation) -> list[Splice] | EditError:
    """The splices of one operation."""
    op, path, value = operation.op, operation.path, operation.value
    if op == "set":
        place = doc.node(path)
        if place is None:
            return EditError(f"there is no {name(path)}")
        parent = doc.node(path[:-1]) if path else None
        flow = parent is not None and parent.style == "flow"
        if not place.is_alias and _same(place.value, value):
            return []
        return replace_value(doc, path, render_value(value, place.style, flow=flow))
    if op == "set-default":
        return replace_default(doc, path, value)
    if op == "rename":
        return rename_key(doc, path, value)
    if op == "delete":
        return delete(doc, path)
    if not path:
        return EditError("the document itself cannot be inserted")
    holder, key = path[:-1], path[-1]
    if op == "insert-item":
        parent = doc.node(holder)
        flow = parent is not None and (parent.style == "flow" or parent.kind == "scalar")
        return insert_item(doc, holder, key, render_value(value, flow=flow))
    text = render_value(value, flow=lands_in_flow(doc, holder))
    if operation.after is not None:
        return insert_after(doc, (*holder, operation.after), key, text, operation.comment)
    if operation.before is not None:
        return insert_before(doc, (*holder, operation.before), key, text, operation.comment)
    return append(doc, holder, key, text, operation.comment)


def verify(
    old: SpanDoc, new_text: str, operations: Iterable[Operation], splices: Iterable[Splice] | None = None
) -> EditError | None:
    """None if the new text parses to the old tree with the operations made on it, types included.

    With the splices that made it also: nothing outside of them changed, and no comment outside of them is lost.
    """
    new = _parse_as(old, new_text)
    if new.fatal:
        return EditError(f"the edited text cannot be read: {new.problems[-1].message}")
    expected = _copy(old.to_python())
    for operation in operations:
        try:
            expected = _intend(expected, operation)
        except (KeyError, IndexError, TypeError) as error:
            return EditError(f"{operation.op} {name(operation.path)} does not fit the tree: {error!r}")
    if not _same(new.to_python(), expected):
        return EditError("the edited text does not mean what was intended")
    if splices is None:
        return None
    cuts = list(splices)
    if apply_splices(old.source.text, cuts) != new_text:
        return EditError("the edited text is not the old one with these splices")
    kept = [each.text for each in comments(old) if not any(_touch(cut, each.span) for cut in cuts)]
    left = [each.text for each in comments(new)]
    for comment in kept:
        if comment not in left:
            return EditError(f"the comment {comment!r} would be lost")
        left.remove(comment)
    return None


def _touch(cut: Splice, span: Span) -> bool:
    return cut.start < span.end and span.start < cut.end


def _parse_as(old: SpanDoc, text: str) -> SpanDoc:
    source = old.source
    return SpanDoc.parse(SourceText(source.path, source.encode(text), text, source.bom, source.encoding))


def _copy(value: Any) -> Any:
    """A copy without shared parts: an edit in one place must not show in another, as it would through an alias."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _intend(tree: Any, operation: Operation) -> Any:
    op, path, value = operation.op, operation.path, _plain(operation.value)
    if not path:
        if op != "set":
            raise KeyError("no path")
        return value
    *steps, last = path
    holder: Any = tree
    above: Any = None
    for step in steps:
        above, holder = holder, holder[step]
    if holder is None and op in ("insert", "insert-item"):  # nothing behind the colon yet
        holder = {} if op == "insert" else []
        if not steps:
            tree = holder
        else:
            above[steps[-1]] = holder
    if op == "insert-item":
        holder.insert(last, value)
    elif op == "delete":
        del holder[last]
    elif op == "rename":
        item = holder.pop(last)
        holder[value] = item
    elif op == "set-default":
        start, end = default_span(holder[last]) or (0, 0)
        holder[last] = holder[last][:start] + value + holder[last][end:]
    else:
        if op == "set":
            holder[last]
        holder[last] = value
    return tree


def _plain(value: Any) -> Any:
    """Tuples are written as lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _same(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return len(one) == len(two) and all(key in two and _same(item, two[key]) for key, item in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(_same, one, two))
    return bool(one == two) or (one != one and two != two)
