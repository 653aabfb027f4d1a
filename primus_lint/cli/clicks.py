"""Options as data -> click options."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.cli.options import Option

F = TypeVar("F", bound="Callable[..., Any]")


class Number(click.types.FloatParamType):
    """A number from 0 on: seconds, percent, a price."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not 0 <= number < math.inf:
            self.fail(f"{value!r} is no number that is 0 or more", param, ctx)
        return number


def options(table: tuple[Option, ...]) -> Callable[[F], F]:
    """A decorator that adds the options of a table to a command."""

    def decorate(function: F) -> F:
        for option in reversed(table):
            names = [option.flag, *([option.short] if option.short else []), option.dest]
            more: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
            if option.kind == "flag":
                more["is_flag"] = True
            else:
                more.update(type=_type(option), multiple=option.multiple)
                if option.dest == "gpu":
                    more["shell_complete"] = _devices
                if option.default is not None:
                    more.update(default=option.default, show_default=True)
            function = click.option(*names, **more)(function)
        return function

    return decorate


def _devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from primus_lint.hardware import names

    return [name for name in names() if name.startswith(incomplete.lower())]


def _type(option: Option) -> Any:
    if option.kind == "count":
        return click.IntRange(min=1)
    if option.kind == "number":
        return Number()
    if option.kind == "choice":
        return click.Choice(option.choices)
    if option.kind == "file":
        return click.Path(exists=True, dir_okay=False)
    if option.kind == "folder":
        return click.Path(exists=True, file_okay=False)
    return click.Path(dir_okay=False) if option.kind == "output" else str
