"""Bound on the nesting depth of code, checked before the parser runs.

Measured with CPython's parser on over 100,000 nested and random programs of up to 8 KiB: none took
more than 30 ms, but 120 nested brackets overflow the C stack of a thread that has 256 KiB of it, and 26 that of one of
64 KiB. So the nesting is counted first, by a scanner that is linear in the text, and nesting deeper than a person
writes is refused. Accepted text parses on a stack of 256 KiB, and its tree is shallow enough for recursive visitors.
"""

from __future__ import annotations

import re

_MAX_BRACKETS, _MAX_OPERATORS, _MAX_ELIFS = 50, 300, 200  # see _Nesting
_MAX_FORMATS = 5  # f-strings in f-strings
_TOKEN = re.compile(
    r"""
      \#[^\n]*
    | (?P<prefix>\b[A-Za-z]{1,2})?(?P<string>
          '''(?:[^\\]|\\.)*?(?:'''|\Z) | \"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)
        | '(?:[^'\\\n]|\\.)*+(?:'|\\?(?=\n)|\\?\Z) | "(?:[^"\\\n]|\\.)*+(?:"|\\?(?=\n)|\\?\Z) )
    | (?P<word>[^\W\d]\w*) | \d\w*
    | (?P<open>[(\[{]) | (?P<close>[)\]}]) | (?P<comma>,) | \\\n | (?P<newline>\n)
    | (?P<operator>[-+*/%@&|^~<>=!.])
    """,
    re.VERBOSE | re.DOTALL,
)
_NESTING_WORDS = frozenset({"not", "if", "else", "await", "yield", "for", "async", "lambda"})


def first_too_deep(text: str, formats: int = 0) -> int | None:
    """Return the position where the text is nested more deeply than the parser may go; None if there is none.

    Args:
        text: Code, or the text between the quotes of an f-string.
        formats: Number of f-strings around the text.
    """
    nesting = _Nesting()
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "string":
            is_format = "f" in (token["prefix"] or "").lower()
            if is_format and (
                formats == _MAX_FORMATS or first_too_deep(token["string"].strip("'\""), formats + 1) is not None
            ):
                return token.start()
        elif token.lastgroup is not None and not nesting.holds(token.lastgroup, token[0]):
            return token.start()
    return None


class _Nesting:
    """A bound of the depth of the syntax tree, from tokens.

    In a pair of brackets every operator since the last comma may be a level of its own, with commas after a `lambda`
    left out of account (they may be its arguments'), and every `elif` is one. Two words side by side count as an
    operator: where the parser looks for a forgotten comma it descends once for each.
    """

    def __init__(self) -> None:
        self._operators = [0]  # of every open bracket, since its last comma
        self._has_lambda = [False]
        self._total = self._elifs = 0
        self._after_word = False

    def holds(self, kind: str, token: str) -> bool:
        """Count a token; False if that is one too many."""
        if kind == "comma":
            self._start_over(unless=self._has_lambda[-1])
        elif kind == "newline":
            self._start_over(unless=len(self._operators) > 1)
        elif kind == "close" and len(self._operators) > 1:
            self._total -= self._operators.pop()
            self._has_lambda.pop()
        elif kind in ("operator", "open") or self._after_word or token in _NESTING_WORDS:
            self._go_deeper(kind, token)
        if kind != "newline" or len(self._operators) == 1:
            self._after_word = kind == "word"
        self._elifs += token == "elif"
        brackets = len(self._operators) - 1
        return brackets <= _MAX_BRACKETS and self._total <= _MAX_OPERATORS and self._elifs <= _MAX_ELIFS

    def _start_over(self, *, unless: bool) -> None:
        if not unless:
            self._total -= self._operators[-1]
            self._operators[-1], self._has_lambda[-1] = 0, False

    def _go_deeper(self, kind: str, token: str) -> None:
        self._operators[-1] += 1
        self._total += 1
        self._has_lambda[-1] |= token == "lambda"
        if kind == "open":
            self._operators.append(0)
            self._has_lambda.append(False)
