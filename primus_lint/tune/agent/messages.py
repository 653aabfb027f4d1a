"""What a language model may answer, as models: everything that comes in is checked against them before it is used."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

MOST_TEXT = 4000
Scalar = int | float | bool | None | Annotated[str, StringConstraints(max_length=400)]
Value = Scalar | Annotated[list[Scalar], Field(max_length=200)]
Note = Annotated[str, StringConstraints(max_length=1000)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Loose(BaseModel):
    """A part of the protocol: servers add fields of their own."""

    model_config = ConfigDict(extra="ignore")


class Evaluate(Strict):
    """Changed arguments against the recipe as it stands."""

    changes: dict[Annotated[str, StringConstraints(max_length=80)], Value] = Field(min_length=1, max_length=40)


class Compare(Strict):
    first: int
    second: int


class Explain(Strict):
    trial: int


class Write(Strict):
    text: Note


class Finish(Strict):
    summary: Note = ""


TOOLS: dict[str, tuple[type[Strict], str]] = {
    "evaluate": (
        Evaluate,
        "Score a recipe exactly: legal or not (and by which rule), memory by pipeline rank, seconds of a step by bottleneck. "
        "`changes` are arguments that differ from the recipe as it stands; null unsets one.",
    ),
    "compare": (Compare, "Where two trials differ, in arguments and in seconds by bottleneck."),
    "explain_bottleneck": (
        Explain,
        "What limits a trial, and what one step on each axis around it would cost or gain.",
    ),
    "note": (Write, "Keep a remark for later."),
    "finish": (Finish, "End the session; nothing more is worth trying."),
}


class Function(Loose):
    name: str = Field(max_length=100)
    arguments: str | dict[str, Any] = ""

    @property
    def text(self) -> str:
        """The arguments as the protocol sends them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class ToolCall(Loose):
    id: Annotated[str, StringConstraints(max_length=200)] | None = None
    function: Function


class Message(Loose):
    content: Any = None  # a text, or parts of one
    tool_calls: list[ToolCall] | None = Field(default=None, max_length=32)

    @property
    def text(self) -> str:
        """What it says beside its calls, as much of it as is worth keeping."""
        return self.content[:MOST_TEXT] if isinstance(self.content, str) else ""


class Choice(Loose):
    message: Message


class Usage(Loose):
    total_tokens: int | None = Field(default=None, ge=0)


class Reply(Loose):
    choices: list[Choice] = Field(min_length=1)
    usage: Usage | None = None


def schema() -> list[dict[str, Any]]:
    """The tools in the form that the protocol wants."""
    return [
        {"type": "function", "function": {"name": name, "description": text, "parameters": model.model_json_schema()}}
        for name, (model, text) in TOOLS.items()
    ]


def arguments(name: str, given: str | dict[str, Any]) -> Strict | str:
    """The checked arguments of a tool call, or what is wrong with them, in words for the model."""
    if name not in TOOLS:
        return f"there is no tool {name[:40]!r}; there are {', '.join(TOOLS)}"
    model = TOOLS[name][0]
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            return "the arguments are no JSON"
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg'][:200]}"


def reply(data: dict[str, Any]) -> Reply | str:
    """A checked reply, or what is wrong with it."""
    try:
        return Reply.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        return f"the reply is not of the protocol: {'.'.join(map(str, first['loc']))[:80]}: {first['msg'][:100]}"
