from __future__ import annotations

import pytest

from primus_lint.source.comments import comments
from primus_lint.source.spans import SpanDoc

from .corpus import FILES, needs_corpus

TEXT = """\
%YAML 1.1  # d
--- # s
# own
a: 1 # trailing
b: 'x # no' # yes
c: "y # no
  # no"
d: x#no
e: |  # header
  # no
  z # no
# out
f:
  # deep
  - 1
g: [1, # in
  # in too
  'a#b', {h: 1}]# tight
i: &anchor#odd 1
j: !!str # tag
  x
k: *anchor#odd
""".replace("#odd", "")


def test_only_what_is_outside_of_scalars() -> None:
    found = comments(SpanDoc.parse_text(TEXT))
    assert [each.text for each in found] == [
        "# d", "# s", "# own", "# trailing", "# yes", "# header", "# out", "# deep", "# in", "# in too", "# tight",
        "# tag",
    ]  # fmt: skip
    assert [each.line for each in found] == [1, 2, 3, 4, 5, 9, 12, 14, 16, 17, 18, 20]
    assert [each.text for each in found if each.own_line] == ["# own", "# out", "# deep", "# in too"]
    for each in found:
        assert TEXT[slice(*each.span)] == each.text


def test_line_breaks_are_not_part_of_a_comment() -> None:
    found = comments(SpanDoc.parse_text("# a\r\nb: 1 # c\r\n#\r\n# end"))
    assert [(each.text, each.line) for each in found] == [("# a", 1), ("# c", 2), ("#", 3), ("# end", 4)]


@pytest.mark.parametrize("text", ["", "a: 1\n", "a: 'x # y'\n", "%TAG ! tag:x#y,2000:\n---\na: 1\n", "a: 'x # c\n"])
def test_no_comments(text: str) -> None:
    assert comments(SpanDoc.parse_text(text)) == []


def test_comments_alone() -> None:
    assert [each.text for each in comments(SpanDoc.parse_text("# a\n\n# b"))] == ["# a", "# b"]


@needs_corpus
def test_the_scanner_of_ruamel_sees_the_same_in_real_files() -> None:
    from .ruamel_witness import comment_lines

    for path in FILES[::20]:
        text = path.read_bytes().decode("utf-8-sig")
        assert [each.text.rstrip() for each in comments(SpanDoc.parse_text(text))] == comment_lines(text), path
