"""Changed keys -> edits of a launch script: values where they are written, flags beside their relatives.

The script is read again after every edit: the changed key must then have its value, and every other key of every
command the one it had. So a variable that two flags share is not changed behind the back of one of them.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from primus_lint.source.rewrite import Edited
from primus_lint.source.splice import Draft, EditError, Splice
from primus_lint.source.text import SourceText
from primus_lint.tune.flag_steps import Step, flag_steps
from primus_lint.tune.rewrite import RELATIVES, locate_origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.readers.document import Origin, ResolvedDocument, Section
    from primus_lint.rules.finding import Change

_BREAK = re.compile(r"(?:[ \t]|\\\r?\n|\r?\n)+")
_VARIABLE = re.compile(r"""(?:[ \t]+|=)(?:"[^"\n]*"|\S+)""")  # the use of the variable that a value comes through
_WRITTEN = ("tensorboard_dir", "wandb_exp_name", "wandb_save_dir", "save", "profile_dir", "memory_snapshot_path")
_BEFORE = re.compile(r"(?:[ \t]|\\\r?\n|\r?\n)+$")


def rewrite_shell(changes: Iterable[Change], section: Section, document: ResolvedDocument) -> Edited | EditError | str:
    """The script with some keys changed, proved; or why that cannot be done."""
    steps = flag_steps(changes, section, document)
    if isinstance(steps, str):
        return steps
    assert document.source is not None and document.again is not None
    draft = Draft(document.source.text)
    now = document
    last = {(section.name, step.key): None if step.op == "delete" else _plain(step.value) for step in steps}
    while steps:
        step = next((step for step in steps if step.op != "insert" or _has_relative(step, section.name, now)), steps[0])
        steps.remove(step)
        if _values(now).get((section.name, step.key)) == last[section.name, step.key] and now is not document:
            continue  # the script itself followed an earlier step
        proved = _make(step, section.name, now, draft, last)
        if isinstance(proved, EditError):
            return proved
        now = proved
    return Edited(draft.text, draft.splices())


def _has_relative(step: Step, name: str, now: ResolvedDocument) -> bool:
    """Whether the script writes a flag beside which a new one belongs."""
    section = _named(name, now)
    return section is not None and any(
        locate_origin(section, relative, now) is not None for relative in RELATIVES.get(step.key, ())
    )


Values = dict[tuple[str, str], Any]  # by section and key


def _make(step: Step, name: str, now: ResolvedDocument, draft: Draft, last: Values) -> ResolvedDocument | EditError:
    """Make one step on `draft`: the first of its spellings that the re-read script proves. `last` are the values after
    all steps: a script that takes one of them by itself is right."""
    assert now.source is not None and now.again is not None
    section = _named(name, now)
    assert section is not None
    wanted = {**_values(now), (name, step.key): None if step.op == "delete" else _plain(step.value)}
    also: list[tuple[str, str]] = []
    leaves = False
    for splice in _spellings(step, section, now):
        trial = Draft(draft.text)
        if trial.apply([splice]) is not None:
            continue
        source = SourceText(
            now.source.path, now.source.encode(trial.text), trial.text, now.source.bom, now.source.encoding
        )
        after = now.again(source)
        differ = _differing(_values(after), wanted, last)
        if not differ and len(after.problems) <= len(now.problems):
            draft.apply([splice])
            return after
        leaves = leaves or any(problem.code == "no-training-command" for problem in after.problems)
        also = also or ([] if (name, step.key) in differ or len(after.sections) < len(now.sections) else differ)
    origin = locate_origin(section, step.key, now)
    if also:
        keys = list(dict.fromkeys(key if other == name else f"{key} of {other}" for other, key in also))
        through = f" through ${origin.variable}" if origin is not None and origin.variable is not None else ""
        return EditError(f"changing {step.flag}{through} would also change {', '.join(keys[:4])}")
    if leaves:
        return EditError(f"with {step.flag} {step.value} the script leaves before it trains")
    if origin is not None and origin.variable is not None:
        return EditError(f"{step.flag} takes its value from ${origin.variable}: change it where that is set")
    return EditError(f"{step.flag} cannot be edited in this script")


def _differing(found: Values, wanted: Values, last: Values) -> list[tuple[str, str]]:
    """Where two readings differ, sorted. Where a run writes may differ: scripts build its name from the sizes. What a
    run loads may not. Sequence parallelism without tensor parallelism is no difference: Megatron switches it off."""
    differ = [key for key in {*found, *wanted} if found.get(key) != wanted.get(key)]
    return sorted(
        key
        for key in differ
        if not (key in last and found.get(key) == last[key])
        and not (key[1] == "sequence_parallel" and found.get((key[0], "tensor_model_parallel_size")) == 1)
        and not (key[1] in _WRITTEN and isinstance(found.get(key), str) and isinstance(wanted.get(key), str))
    )


def _spellings(step: Step, section: Section, now: ResolvedDocument) -> list[Splice]:
    """Ways to write one step, the best first."""
    assert now.source is not None
    text = now.source.text
    origin = locate_origin(section, step.key, now)
    if step.op == "set":
        if origin is None or origin.span is None:
            return []
        start, end = origin.span
        return [Splice(start, end, word) for word in _words(step.value)]
    if step.op == "delete":
        if origin is None or origin.key_span is None:
            return []
        return _removals(origin, text)
    return [
        splice
        for word in ([""] if step.value is True else [" " + word for word in _words(step.value)])
        for splice in _insertions(step.flag + word, step.key, section, now)
    ]


def _words(value: Any) -> list[str]:
    """A value as words of a command: quoted where the shell needs it, plain (inside quotes that stand already), and with
    its quotes quoted (where `eval` reads the words once more)."""
    items = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
    quoted, plain = " ".join(shlex.quote(item) for item in items), " ".join(items)
    if quoted == plain:
        return [plain]
    return [quoted] if any(char in plain for char in "\"'$`\\") else [quoted, plain, f'"{quoted}"']


def _removals(origin: Origin, text: str) -> list[Splice]:
    """The flag with its value goes, with the blanks (and line continuation) before it."""
    assert origin.key_span is not None
    start = origin.key_span[0]
    end = origin.span[1] if origin.span is not None and origin.span[0] >= origin.key_span[1] else origin.key_span[1]
    while text[end : end + 1] in ("'", '"') and text[end : end + 1] == text[start - 1 : start]:
        end += 1  # the quotes around one word
        start -= 1
    before = _BEFORE.search(text, 0, start)
    comment = re.match(r"[ \t]*#", text[end:])
    lead = start if before is None or comment else before.start()
    after = _BREAK.match(text, end)
    tail = end if after is None else after.end()
    return [Splice(lead, end, ""), Splice(start, tail, ""), Splice(start, end, "")]


def _insertions(words: str, key: str, section: Section, now: ResolvedDocument) -> list[Splice]:
    """Behind the nearest relative that the script writes, separated as that one is; else behind the last flag."""
    assert now.source is not None
    text = now.source.text
    places = [locate_origin(section, relative, now) for relative in RELATIVES.get(key, ())]
    others = sorted(
        (origin for name in section.values if (origin := locate_origin(section, name, now)) is not None),
        key=lambda origin: origin.key_span or (0, 0),
    )
    out = []
    for origin in [*(place for place in places if place is not None), *reversed(others)]:
        if origin.key_span is None:
            continue
        start, end = origin.key_span
        if origin.span is not None and origin.span[0] >= end:
            end = origin.span[1]
            end += text[end : end + 1] in ("'", '"')
        elif origin.span is not None and (use := _VARIABLE.match(text, end)) is not None:
            end = use.end()
        before = _BEFORE.search(text, 0, start)
        gap = before.group() if before is not None else " "
        if "\n" in gap:  # one line break and the indent of the relative
            newline = gap.rfind("\n")
            head = "\\\n" if "\\" in gap[:newline] else "\n"
            gap = (" " if head[0] == "\\" else "") + head + gap[newline + 1 :]
        if re.match(r"[ \t]*\\?[ \t]*#", text[end:]):  # its comment stays with it
            out.append(Splice(start, start, words + gap))
        else:
            out.append(Splice(end, end, gap + words))
        if len(out) == 4:
            break
    return out


def _named(name: str, document: ResolvedDocument) -> Section | None:
    return next((section for section in document.sections if section.name == name), None)


def _values(document: ResolvedDocument) -> dict[tuple[str, str], Any]:
    found = {
        (section.name, key): _plain(value.value)
        for section in document.sections
        for key, value in section.values.items()
    }
    return found | {("", key): _plain(value.value) for key, value in document.top_level.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
