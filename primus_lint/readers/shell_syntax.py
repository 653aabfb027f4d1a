"""The grammar of shell scripts: commands, lists, pipelines, `if`, `case`, loops, functions."""

from __future__ import annotations

import itertools
import re

from primus_lint.readers.shell_lexer import Heredoc, Lexer, Word, behind, double_bracket
from primus_lint.readers.shell_text import Unit
from primus_lint.readers.shell_tree import (
    Arithmetic,
    Assign,
    Both,
    Case,
    CountingFor,
    For,
    Function,
    Group,
    If,
    Negate,
    Pipe,
    Program,
    Simple,
    Statement,
    Taken,
    Test,
    While,
    Written,
)

ASSIGN = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n]*)\])?(\+?)=", re.ASCII)
_REDIRECTS = ("<", ">", ">>", ">&", "<&", "<>", "&>", "&>>", ">|", "<<", "<<-", "<<<")
_DECLARE = ("export", "local", "declare", "readonly", "typeset")
_OPENERS = ("if", "while", "until", "for", "select", "case", "{", "[[", "function")
_MAX_DEPTH = 60


class _Parser:
    def __init__(self, unit: Unit) -> None:
        self.lexer = Lexer(unit)
        self.unit = unit
        self.peeked: list[Word | str | None] = []

    def next(self) -> Word | str | None:
        return self.peeked.pop() if self.peeked else self.lexer.token()

    def peek(self) -> Word | str | None:
        if not self.peeked:
            self.peeked.append(self.lexer.token())
        return self.peeked[-1]

    def keyword(self) -> str:
        token = self.peek()
        return token.keyword if isinstance(token, Word) else ""

    def place(self) -> int:
        """Where the next token begins."""
        token = self.peek()
        return token.start if isinstance(token, Word) else self.lexer.at

    def skip_breaks(self) -> None:
        while self.peek() == "\n":
            self.next()

    def program(self, *ends: str, depth: int = 0) -> Program:
        """Statements up to one of `ends` (not taken), or the end."""
        found: list[Statement] = []
        while (token := self.peek()) is not None:
            if (token in ends) if isinstance(token, str) else (self.keyword() in ends):
                break
            if isinstance(token, str) and token not in ("(", *_REDIRECTS):
                self.next()  # a separator, or what belongs to nothing
            else:
                found.append(self.both(depth))
        return tuple(found)

    def both(self, depth: int) -> Statement:
        left = self.pipe(depth)
        while self.peek() in ("&&", "||"):
            op = str(self.next())
            self.skip_breaks()
            left = Both(left, op, self.pipe(depth))
        return left

    def pipe(self, depth: int) -> Statement:
        negated = False
        while self.keyword() == "!":
            self.next()
            negated = not negated
        parts = [self.command(depth)]
        while self.peek() in ("|", "|&"):
            self.next()
            self.skip_breaks()
            parts.append(self.command(depth))
        found = parts[0] if len(parts) == 1 else Pipe(tuple(parts))
        return Negate(found) if negated else found

    def command(self, depth: int) -> Statement:
        token = self.peek()
        if depth < _MAX_DEPTH:
            if token == "(":
                found = self.bracket(depth)
            elif (word := self.keyword()) in _OPENERS:
                self.next()
                found = self.compound(word, depth + 1)
            else:
                return self.simple(depth)
            return self.redirected(found)
        if token == "(":
            self.next()
        return self.simple(depth)

    def redirected(self, inner: Statement) -> Statement:
        """A compound command with the redirections behind it. Its input is not followed."""
        files: list[tuple[Word, bool]] = []
        while self.peek() in _REDIRECTS:
            self.redirect([], files)
        return _written(inner, files)

    def bracket(self, depth: int) -> Statement:
        """`( ... )` or `(( ... ))`."""
        self.next()
        if self.lexer.text.startswith("(", self.lexer.at) and not self.peeked:
            inside = self.double_bracket(self.lexer.at + 1)
            if inside is not None:
                return inside
        body = self.program(")", depth=depth + 1)
        self.next()
        return Group(body, True)

    def double_bracket(self, start: int) -> Arithmetic | None:
        end = double_bracket(self.lexer.text, start)
        if end is None:
            return None
        self.lexer.at = end + 2
        return Arithmetic(self.unit, start, end)

    def compound(self, word: str, depth: int) -> Statement:
        if word == "if":
            return self.choice(depth)
        if word == "case":
            return self.case(depth)
        if word in ("for", "select"):
            return self.loop(depth)
        if word == "[[":
            return self.test()
        if word == "{":
            body = self.program("}", depth=depth)
            self.next()
            return Group(body, False)
        if word == "function":
            token = self.next()
            name = (token.literal or "") if isinstance(token, Word) else ""
            while self.peek() in ("(", ")"):
                self.next()
            return self.function(name, depth)
        condition = self.program("do", depth=depth)
        self.next()
        body = self.program("done", depth=depth)
        self.next()
        return While(condition, body, word == "until")

    def function(self, name: str, depth: int) -> Statement:
        self.skip_breaks()
        return Function(name, self.command(depth))

    def choice(self, depth: int) -> Statement:
        start = self.place()
        branches: list[tuple[Program | None, Program]] = []
        while True:
            condition = self.program("then", depth=depth)
            self.next()
            branches.append((condition, self.program("elif", "else", "fi", depth=depth)))
            end = self.keyword()
            self.next()
            if end == "else":
                branches.append((None, self.program("fi", depth=depth)))
                self.next()
            if end != "elif":
                return If(tuple(branches), self.unit, start)

    def case(self, depth: int) -> Statement:
        start = self.place()
        subject = self.next()
        branches: list[tuple[tuple[Word, ...], Program]] = []
        while self.peek() is not None and self.keyword() != "in":
            self.next()
        self.next()
        while self.peek() is not None:
            self.skip_breaks()
            if self.keyword() == "esac":
                break
            patterns: list[Word] = []
            while (token := self.next()) is not None and token != ")":
                if isinstance(token, Word):
                    patterns.append(token)
            branches.append((tuple(patterns), self.program(";;", ";;&", ";&", "esac", depth=depth)))
            if self.keyword() != "esac":
                self.next()
        self.next()
        empty = Word(self.unit, (), start, start)
        return Case(subject if isinstance(subject, Word) else empty, tuple(branches), start)

    def loop(self, depth: int) -> Statement:
        counting: list[Arithmetic] = []
        name, words = "", None
        token = self.next()
        if token == "(" and (inside := self.double_bracket(self.lexer.at + 1)) is not None:
            ends = [match.start() for match in re.finditer(";", self.unit.text[inside.start : inside.end])]
            bounds = [-1, *ends[:2], inside.end - inside.start]
            for first, last in itertools.pairwise(bounds):
                counting.append(Arithmetic(self.unit, inside.start + first + 1, inside.start + last))
        elif isinstance(token, Word):
            name = token.literal or ""
            self.skip_breaks()
            if self.keyword() == "in":
                self.next()
                items: list[Word] = []
                while isinstance(item := self.peek(), Word):
                    self.next()
                    items.append(item)
                words = tuple(items)
        self.program("do", "{", depth=depth)
        self.next()
        body = self.program("done", "}", depth=depth)
        self.next()
        if len(counting) == 3:
            return CountingFor(counting[0], counting[1], counting[2], body)
        return For(name, words, body)

    def test(self) -> Statement:
        words: list[Word | str] = []
        while (token := self.next()) is not None:
            if isinstance(token, Word) and token.keyword == "]]":
                break
            if token != "\n":
                words.append(token)
            if isinstance(token, Word) and token.keyword == "=~":
                match = re.compile(r"[ \t]*").match(self.lexer.text, self.lexer.at)
                self.lexer.at = match.end() if match else self.lexer.at
                words.append(self.lexer.word(" \t\n"))
        return Test(tuple(words))

    def simple(self, depth: int) -> Statement:
        """A command with the assignments before it, or the definition of a function."""
        assigns: list[Assign] = []
        declared: list[Assign] = []
        words: list[Word] = []
        inputs: list[Heredoc | Word | Taken] = []
        files: list[tuple[Word, bool]] = []
        token = self.peek()
        start = token.start if isinstance(token, Word) else self.lexer.at
        while (token := self.peek()) is not None:
            if isinstance(token, str):
                if token in _REDIRECTS:
                    self.redirect(inputs, files)
                    continue
                if token == "(" and len(words) == 1 and not assigns and words[0].literal:
                    self.next()
                    if self.peek() == ")":
                        self.next()
                        return self.function(words[0].literal, depth)
                    continue
                break
            self.next()
            match = ASSIGN.match(self.unit.text, token.start, token.end)
            declares = bool(words) and words[0].literal in _DECLARE
            if match and (not words or declares) and token.pieces and not token.pieces[0].quoted:
                (declared if declares else assigns).append(self.assign(token, match))
            else:
                words.append(token)
        found = Simple(tuple(assigns), tuple(words), tuple(declared), tuple(inputs), self.unit, start)
        return _written(found, files)

    def assign(self, token: Word, match: re.Match[str]) -> Assign:
        name, index, append = match.group(1), match.group(2), bool(match.group(3))
        if token.end == match.end() and self.unit.text[token.end : token.end + 1] == "(" and not self.peeked:
            self.next()
            items: list[Word] = []
            while (item := self.next()) is not None and item != ")":
                if isinstance(item, Word):
                    items.append(item)
            return Assign(name, index, append, None, tuple(items))
        return Assign(name, index, append, behind(token, match.end()), None)

    def redirect(self, inputs: list[Heredoc | Word | Taken], files: list[tuple[Word, bool]]) -> None:
        """One redirection: what the command reads goes to `inputs`, the files of its output to `files`."""
        op, stream = self.next(), self.lexer.stream
        target = self.peek()
        if not isinstance(target, Word):
            return
        if op in ("<<", "<<-"):
            heredoc = Heredoc.of(target, op == "<<-")
            self.lexer.heredocs.append(heredoc)
            inputs.append(heredoc)
        elif op == "<<<":
            inputs.append(target)
        elif op == "<":
            inputs.append(Taken(target))
        elif op in (">", ">|", ">>") and stream in ("", "1"):
            files.append((target, op == ">>"))
        self.next()


def _written(inner: Statement, files: list[tuple[Word, bool]]) -> Statement:
    """The last file gets the output."""
    return Written(inner, *files[-1]) if files else inner


def parse_shell(unit: Unit) -> Program:
    """The statements of a text; never raises for what the text says."""
    return _Parser(unit).program()
