"""Changed keys -> steps on command-line flags, for every format that is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.readers.document import ResolvedDocument, Section
    from primus_lint.rules.finding import Change


class Step(NamedTuple):
    """One change of the flags: "set" gives the flag that stands another value, "delete" takes it away with its value,
    "insert" adds `flag` (with `value`, or alone when that is True)."""

    op: str
    key: str
    flag: str
    value: Any = None


def flag_steps(changes: Iterable[Change], section: Section, document: ResolvedDocument) -> list[Step] | str:
    """The steps of some changes; a text that says why when one has no flag. Null and false take a flag away."""
    from primus_lint.readers.tables import flags
    from primus_lint.tune.rewrite import locate_origin

    known = flags(document.framework_version)
    out: list[Step] = []
    for change in changes:
        origin = locate_origin(section, change.key, document)
        if change.op == "rename":
            return f"{change.key} cannot be renamed in a list of flags"
        value = None if change.op == "drop" else change.value
        if isinstance(value, bool) and origin is not None and section.get(change.key) is value:
            continue  # it stands already
        names = [text for text, flag in known.items() if flag.key == change.key]
        wanted = [text for text in names if known[text].off is (value is False)]
        removed = origin is not None and (value is None or isinstance(value, bool))
        if origin is not None and removed:
            out.append(Step("delete", change.key, str(origin.key_path[-1])))
        if value is None or (not wanted and (value is False or removed)):
            continue  # without its flag the argument has its default: off, or on for one that only switches off
        if origin is not None and not removed:
            out.append(Step("set", change.key, str(origin.key_path[-1]), value))
        elif wanted:
            out.append(Step("insert", change.key, wanted[0], value))
        else:
            return f"{change.key} has no flag in this version"
    return out
