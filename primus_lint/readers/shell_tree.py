"""What a shell script consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from primus_lint.readers.shell_lexer import Heredoc, Word
from primus_lint.readers.shell_text import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Assign(NamedTuple):
    """`NAME=value`, `NAME+=value`, `NAME[index]=value`; `items` for `NAME=(...)`."""

    name: str
    subscript: str | None
    append: bool
    value: Word | None
    items: tuple[Word, ...] | None


class Taken(NamedTuple):
    """`< FILE`"""

    file: Word


class Simple(NamedTuple):
    """A command. `declared`: the assignments behind `export`, `local`, ...; `inputs`: here-documents, -strings and files."""

    assigns: tuple[Assign, ...]
    words: tuple[Word, ...]
    declared: tuple[Assign, ...]
    inputs: tuple[Heredoc | Word | Taken, ...]
    unit: Unit
    start: int


class Test(NamedTuple):
    """`[[ ... ]]`: words, and the operators between them as texts."""

    words: tuple[Word | str, ...]


class Arithmetic(NamedTuple):
    """`(( ... ))`, between two offsets."""

    unit: Unit
    start: int
    end: int


class Pipe(NamedTuple):
    parts: tuple[Statement, ...]


class Both(NamedTuple):
    """`left && right`, `left || right`."""

    left: Statement
    op: str
    right: Statement


class Negate(NamedTuple):
    inner: Statement


class If(NamedTuple):
    """(condition, body) in order; the condition of `else` is None."""

    branches: tuple[tuple[tuple[Statement, ...] | None, tuple[Statement, ...]], ...]
    unit: Unit
    start: int


class Case(NamedTuple):
    subject: Word
    branches: tuple[tuple[tuple[Word, ...], tuple[Statement, ...]], ...]
    start: int


class For(NamedTuple):
    """`words` is None for `for NAME` and `for NAME in "$@"`."""

    name: str
    words: tuple[Word, ...] | None
    body: tuple[Statement, ...]


class CountingFor(NamedTuple):
    """`for ((first; while; next))`."""

    first: Arithmetic
    condition: Arithmetic
    step: Arithmetic
    body: tuple[Statement, ...]


class While(NamedTuple):
    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]
    until: bool


class Group(NamedTuple):
    body: tuple[Statement, ...]
    subshell: bool


class Written(NamedTuple):
    """`inner > FILE`, `inner >> FILE`"""

    inner: Statement
    file: Word
    append: bool


class Function(NamedTuple):
    name: str
    body: Statement


Statement = (
    Simple | Test | Arithmetic | Pipe | Both | Negate | If | Case | For | CountingFor | While | Group | Written | Function
)  # fmt: skip
Program = tuple[Statement, ...]


def assigned(statements: Iterable[Statement]) -> Iterator[str]:
    """Names that statements may set."""
    for item in statements:
        if isinstance(item, Simple):
            yield from (assign.name for assign in (*item.assigns, *item.declared))
        elif isinstance(item, If):
            for condition, body in item.branches:
                yield from assigned((*(condition or ()), *body))
        elif isinstance(item, Case):
            yield from (name for _, body in item.branches for name in assigned(body))
        elif isinstance(item, (For, CountingFor, While, Group)):
            yield from assigned(item.body)
        elif isinstance(item, Both):
            yield from assigned((item.left, item.right))
        elif isinstance(item, Pipe):
            yield from assigned(item.parts)
        elif isinstance(item, (Negate, Written)):
            yield from assigned((item.inner,))
        elif isinstance(item, Function):
            yield from assigned((item.body,))
