"""The quick NamedTuple against `typing`'s."""

from __future__ import annotations

import pickle
import typing

from primus_lint.tuples import NamedTuple


class Quick(NamedTuple):
    """A pair."""

    left: int
    right: str = "r"

    @property
    def both(self) -> str:
        return f"{self.left}{self.right}"

    @classmethod
    def of(cls, text: str) -> Quick:
        return cls(int(text[0]), text[1:])


class Plain(typing.NamedTuple):
    """A pair."""

    left: int
    right: str = "r"


def test_it_is_what_typing_makes() -> None:
    quick, plain = Quick(1), Plain(1)
    assert tuple(quick) == tuple(plain) and quick._fields == plain._fields
    assert repr(quick).partition("(")[2] == repr(plain).partition("(")[2]
    assert Quick._field_defaults == Plain._field_defaults and Quick.__doc__ == Plain.__doc__
    assert set(Quick.__annotations__) == set(Plain.__annotations__)
    assert Quick.__module__ == __name__ and isinstance(quick, tuple) and not hasattr(quick, "__dict__")
    assert pickle.loads(pickle.dumps(quick)) == quick == quick._replace(left=1)
    assert quick.both == "1r" and Quick.of("2x") == Quick(2, "x")
