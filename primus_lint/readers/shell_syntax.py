"""A small part of the shell's grammar: assignments, commands, `if`, `case`, loops.

Enough to follow how a launch script puts its flags together; everything else is kept as a command or skipped.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from primus_lint.readers.shell_lexer import Lexer, Piece, Word

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_OPENERS = {"if": "fi", "while": "done", "until": "done", "for": "done", "case": "esac"}
_DECLARE = ("export", "local", "declare", "readonly", "typeset")


class Assign(NamedTuple):
    name: str
    append: bool
    words: tuple[Word, ...]
    array: bool
    exported: bool


class Command(NamedTuple):
    words: tuple[Word, ...]


class Choice(NamedTuple):
    """`if` or `case`: (condition words, body) in order; an `else` has no condition. `subject`: the word of `case`,
    whose conditions are patterns."""

    branches: tuple[tuple[tuple[Word, ...] | None, tuple[Statement, ...]], ...]
    subject: Word | None


class Loop(NamedTuple):
    variable: str
    body: tuple[Statement, ...]


Statement = Assign | Command | Choice | Loop


class _Parser:
    def __init__(self, text: str) -> None:
        self.lexer = Lexer(text)
        self.text = text
        self.peeked: list[Word | str | None] = []

    def next(self) -> Word | str | None:
        return self.peeked.pop() if self.peeked else self.lexer.token()

    def peek(self) -> Word | str | None:
        if not self.peeked:
            self.peeked.append(self.lexer.token())
        return self.peeked[-1]

    def keyword(self) -> str:
        token = self.peek()
        return (token.literal or "") if isinstance(token, Word) and len(token.pieces) == 1 else ""

    def block(self, *ends: str, depth: int = 0) -> tuple[Statement, ...]:
        """Statements up to one of the words `ends` (not taken), or the end."""
        found: list[Statement] = []
        while (token := self.peek()) is not None:
            word = self.keyword()
            if word in ends or (token in ends and isinstance(token, str)):
                break
            if isinstance(token, str):
                self.next()
            elif word in _OPENERS and depth < 50:
                self.next()
                found.append(self._compound(word, depth + 1))
            elif word in ("then", "do", "else", "elif", "fi", "done", "esac", "{", "}", "!", "function"):
                self.next()
            else:
                found.extend(self._simple())
        return tuple(found)

    def _compound(self, word: str, depth: int) -> Statement:
        if word == "if":
            return self._if(depth)
        if word == "case":
            return self._case(depth)
        variable = ""
        if word == "for":
            token = self.peek()
            variable = (token.literal or "") if isinstance(token, Word) else ""
        self.block("do", depth=depth)
        self.next()
        body = self.block("done", depth=depth)
        self.next()
        return Loop(variable, body)

    def _if(self, depth: int) -> Statement:
        branches: list[tuple[tuple[Word, ...] | None, tuple[Statement, ...]]] = []
        while True:
            condition = self.block("then", depth=depth)
            self.next()
            body = self.block("elif", "else", "fi", depth=depth)
            words = condition[0].words if len(condition) == 1 and isinstance(condition[0], Command) else ()
            branches.append((words, body))
            end = self.keyword()
            self.next()
            if end == "else":
                branches.append((None, self.block("fi", depth=depth)))
                self.next()
            if end != "elif":
                return Choice(tuple(branches), None)

    def _case(self, depth: int) -> Statement:
        subject = self.next()
        branches: list[tuple[tuple[Word, ...] | None, tuple[Statement, ...]]] = []
        while self.peek() is not None and self.keyword() != "in":
            self.next()
        self.next()
        while self.peek() is not None and self.keyword() != "esac":
            patterns: list[Word] = []
            while (token := self.next()) is not None and token != ")":
                if isinstance(token, Word):
                    patterns.append(token)
            branches.append((tuple(patterns), self.block(";;", ";;&", "esac", depth=depth)))
            if self.keyword() != "esac":
                self.next()
            while self.peek() == "\n":
                self.next()
        self.next()
        return Choice(tuple(branches), subject if isinstance(subject, Word) else None)

    def _simple(self) -> list[Statement]:
        """One simple command with the assignments before it."""
        found: list[Statement] = []
        words: list[Word] = []
        exported = False
        test = False
        while (token := self.peek()) is not None:
            if isinstance(token, str):
                if token in ("<", ">", ">>", ">&", "<&", "&>", ">|", "<<", "<<-", "<<<"):
                    self._redirect()
                    continue
                if test and token not in ("\n", ";"):  # && || ( ) < > inside [[ ]]
                    self.next()
                    words.append(Word((Piece("opaque", token, 0, 0, False),), 0, 0))
                    continue
                break
            self.next()
            assign = _ASSIGN.match(self.text, token.start, token.end)
            first = words[0].literal if words else None
            if assign and (not words or first in _DECLARE) and token.pieces and not token.pieces[0].quoted:
                found.append(self._assign(token, assign, exported or first == "export"))
                continue
            words.append(token)
            test = test or token.literal == "[["
            if token.literal == "]]":
                test = False
        if words and words[0].literal == "export" and len(words) == 1:
            return found
        if words and words[0].literal not in _DECLARE:
            found.append(Command(tuple(words)))
        return found

    def _assign(self, token: Word, match: re.Match[str], exported: bool) -> Assign:
        name, append = match.group(1), bool(match.group(2))
        if token.end == match.end() and self.text[token.end : token.end + 1] == "(" and not self.peeked:
            self.next()
            items: list[Word] = []
            while (item := self.next()) is not None and item != ")":
                if isinstance(item, Word):
                    items.append(item)
            return Assign(name, append, tuple(items), True, exported)
        pieces = list(token.pieces)
        head = pieces[0]
        cut = match.end() - head.start
        pieces[0] = head._replace(text=head.text[cut:], start=head.start + cut)
        value = Word(tuple(piece for piece in pieces if piece.text or piece.quoted), match.end(), token.end)
        return Assign(name, append, (value,), False, exported)

    def _redirect(self) -> None:
        op = self.next()
        target = self.peek()
        if isinstance(target, Word):
            self.next()
            if op in ("<<", "<<-"):
                mark = "".join(piece.text for piece in target.pieces)
                self.lexer.heredocs.append(mark)


def parse_shell(text: str) -> tuple[Statement, ...]:
    """The statements of a script; never raises for what the text says."""
    return _Parser(text).block()
