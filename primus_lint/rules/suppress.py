"""Inline suppressions: `# primus-lint: ignore[rule] reason` on the line or above it, `file-ignore[...]` anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.rules import catalogue
from primus_lint.rules.finding import Finding, Place
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.settings import Settings
    from primus_lint.source.comments import Comment
    from primus_lint.source.text import SourceText
    from primus_lint.subject import Subject


class Suppression(NamedTuple):
    """One comment. `line` is where it stands, `covers` the lines whose findings it hides (None: the whole file)."""

    names: tuple[str, ...]
    reason: str
    path: str
    line: int
    column: int
    covers: tuple[int, int] | None

    def hides(self, path: str, line: int) -> bool:
        return path == self.path and (self.covers is None or self.covers[0] <= line <= self.covers[1])


def suppressions(source: SourceText) -> list[Suppression]:
    """All suppression comments of a file."""
    if "primus-lint:" not in source.text:
        return []
    import re

    pattern = re.compile(r"#\s*primus-lint:\s*(file-ignore|ignore)\[([^\]]*)\]\s*(.*)")
    found = []
    for comment in _comments(source):
        match = pattern.search(source.text[comment.span[0] : comment.span[1]])
        if match is None:
            continue
        line, column = source.position(comment.span[0])
        covers: tuple[int, int] | None = (line, line)
        if match[1] == "file-ignore":
            covers = None
        elif comment.own_line:
            covers = _next_lines(source, line)
        names = tuple(name.strip() for name in match[2].split(",") if name.strip())
        found.append(Suppression(names, match[3].strip(), source.path, line, column, covers))
    return found


def _comments(source: SourceText) -> list[Comment]:
    from primus_lint.readers import format_of

    if format_of(source) == "shell":
        from primus_lint.readers import shell_comments

        return shell_comments.comments(source)
    from primus_lint.source.comments import comments
    from primus_lint.source.spans import SpanDoc

    return comments(SpanDoc.parse(source))


def _next_lines(source: SourceText, line: int) -> tuple[int, int]:
    """The next line that holds more than a comment, with those of a script that continue it."""
    from primus_lint.readers import format_of

    last = len(source.line_starts)
    first = line + 1
    while first <= last and source.line_text(first).lstrip()[:1] in ("", "#"):
        first += 1
    end = first
    while end < last and source.line_text(end).endswith("\\") and format_of(source) == "shell":
        end += 1
    return first, end


def malformed(source: SourceText) -> list[Suppression]:
    """Comments addressed to primus-lint that it cannot read: each as a suppression of nothing, its text as the reason."""
    if "primus-lint:" not in source.text.lower():
        return []
    import re

    address = re.compile(r"#\s*primus-lint:\s*(.*)", re.IGNORECASE)
    good = re.compile(r"#\s*primus-lint:\s*(?:(?:file-ignore|ignore)\[[^\]]*\]|target(?:[\s:]|$))")
    found = []
    for comment in _comments(source):
        match = address.search(comment.text)
        if match is not None and good.match(comment.text, match.start()) is None:
            line, column = source.position(comment.span[0] + match.start())
            found.append(Suppression((), match[1].strip(), source.path, line, column, (line, line)))
    return found


def suppress(findings: list[Finding], checked: Checked, settings: Settings | None) -> list[Finding]:
    """Mark what is suppressed; return findings about the suppressions themselves (unknown rule, unused)."""
    from primus_lint.rules.select import selected

    own: list[Finding] = []
    used = mark(findings, checked)
    known = catalogue.codes_by_name()
    for path, source in checked.document.sources.items():
        if path != checked.path:
            continue
        own += [
            _about(
                "malformed-comment",
                f"primus-lint cannot read {item.reason!r}, which does nothing: write ignore[rule-name] reason, "
                "file-ignore[rule-name] reason or target gpu=NAME nodes=N",
                item,
            )
            for item in malformed(source)
        ]
        for item in suppressions(source):
            own += [
                _about("unknown-rule-in-suppression", f"no rule is called {name!r}", item)
                for name in item.names
                if name not in known
            ]
            own += [
                _about(
                    "unknown-rule-in-suppression",
                    f"{name} is called {catalogue.by_code()[known[name]].name} now; the comment still holds",
                    item,
                    "info",
                )
                for name in item.names
                if name in catalogue.former()
            ]
            if not item.names:
                own.append(_about("unknown-rule-in-suppression", "name the rules: ignore[rule-name] reason", item))
            elif item not in used and all(
                name in known and _judged(known[name], checked, settings) for name in item.names
            ):
                own.append(
                    _about("unused-suppression", f"nothing here breaks {', '.join(item.names)}: remove it", item)
                )
            if item.names and not item.reason:
                text = f"say why {', '.join(item.names)} may be broken here: ignore[rule-name] reason"
                own.append(_about("suppression-without-reason", text, item, "info"))
    return [about for about in own if selected(about.code, about.name, about.severity, checked.path, settings)]


def _judged(code: str, checked: Checked, settings: Settings | None) -> bool:
    """Whether this run says for sure that a rule is not broken: it is selected, one file is enough to know, and what it
    looks at was there."""
    from primus_lint.rules.select import selected

    rule = catalogue.by_code()[code]
    if not rule.from_one_file or not selected(code, rule.name, rule.severity, checked.path, settings):
        return False
    return all(had_passes(rule, subject) for subject in checked.subjects)


def had_passes(rule: catalogue.Entry, subject: Subject) -> bool:
    """Whether a rule about memory or time had its account or projection to judge by."""
    if rule.module not in ("memory", "throughput", "derived"):
        return True
    if rule.module == "memory":
        return None not in (subject.ledger, subject.accelerator, subject.target.world_size)
    return subject.projection is not None


def mark(findings: list[Finding], checked: Checked) -> set[Suppression]:
    """Mark the findings that a comment in the file, or in a file that they point into, suppresses; the comments used."""
    used = set()
    for source in checked.document.sources.values():
        for item in suppressions(source):
            wanted = {catalogue.codes_by_name().get(name) for name in item.names}
            for finding in findings:
                if not finding.suppressible or (finding.code not in wanted and finding.name not in item.names):
                    continue
                places = [finding.place, *finding.related] if finding.place else list(finding.related)
                if any(item.hides(place.path, place.line) for place in places):
                    finding.suppressed = item.reason or "suppressed"
                    used.add(item)
    return used


def _about(name: str, message: str, item: Suppression, severity: str = "warning") -> Finding:
    code = catalogue.codes_by_name().get(name, "U999")
    return Finding(code, name, severity, message, place=Place(item.path, item.line, item.column))
