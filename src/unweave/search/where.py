r"""Filters such as ``label = 'cat' and path like 'holiday/%'``.

    expression   comparison, not expression, expression and expression, expression or expression, (expression)
    comparison   column = value  (also != <> < <= > >=), column [not] in (value, …), column [not] like 'pattern',
                 column is [not] null
    column       path, label, class_name
    value        a number, or a text in single quotes; '' inside of one is a quote, bytes that are not Unicode are as
                 in the index: ``\xff``
    pattern      % stands for any text, _ for one character; a backslash is itself

As in SQL, a comparison with a missing value is neither true nor false. A text compared with ``label`` is the name of a
class. An expression is parsed here and evaluated by Arrow's functions; nothing is executed.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unweave.data.sources.base import escape_name
from unweave.errors import UnweaveError

COLUMNS = ("path", "label", "class_name")
LARGEST_INTEGER = 2**63
"""Labels are 64-bit integers; other numbers are compared as floating-point numbers."""
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|-?\d+(?:\.\d+)?|[A-Za-z_]\w*|<>|!=|<=|>=|[=<>(),])")
_COMPARE: dict[str, Callable[..., Any]] = {
    "=": pc.equal, "!=": pc.not_equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater,
    ">=": pc.greater_equal,
}  # fmt: skip


def matching_rows(table: pa.Table, where: str) -> np.ndarray:
    """Which rows of a table with the columns path, label and class_name satisfy an expression: (n,) bool.

    Examples:
        >>> table = pa.table({"path": ["a.jpg", "b.png"], "label": [0, 1], "class_name": ["cat", "dog"]})
        >>> matching_rows(table, "label = 'cat' or path like '%.png' and label < 1").tolist()
        [True, False]
        >>> matching_rows(table, "class_name not in ('cat', 'cow')").tolist()
        [False, True]
    """
    found = _Parser(table, where).result()
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def is_unicode(text: str) -> bool:
    r"""Whether a text has no bytes that cannot be decoded.

    Examples:
        >>> is_unicode("ä"), is_unicode(b"\xff".decode("utf-8", "surrogateescape"))
        (True, False)
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _Parser:
    """Recursive descent; every rule returns a column of true, false and null."""

    def __init__(self, table: pa.Table, where: str) -> None:
        self._table, self._where = table, where
        self._tokens = self._split(where)
        self._place = 0

    def _split(self, where: str) -> list[str]:
        tokens, place, end = [], 0, len(where.rstrip())
        while place < end:
            match = _TOKEN.match(where, place)
            if match is None:
                raise self._error(f"cannot be read at {where[place:].strip()[:30]!r}")
            tokens.append(match[0].strip())
            place = match.end()
        return tokens

    def result(self) -> Any:
        """The whole expression."""
        found = self._or()
        if self._place < len(self._tokens):
            raise self._error(f"continues with {self._tokens[self._place]!r} where it should end or have and, or")
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def _or(self) -> Any:
        found = self._and()
        while self._take("or"):
            found = pc.or_kleene(found, self._and())
        return found

    def _and(self) -> Any:
        found = self._not()
        while self._take("and"):
            found = pc.and_kleene(found, self._not())
        return found

    def _not(self) -> Any:
        if self._take("not"):
            return pc.invert(self._not())
        if self._take("("):
            found = self._or()
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Any:
        name = self._next(f"a column ({', '.join(COLUMNS)})").lower()
        if name not in COLUMNS:
            raise self._error(f"has {name!r} where a column is expected: {', '.join(COLUMNS)}")
        if self._take("is"):
            negated = self._take("not")
            self._expect("null")
            found = pc.is_null(self._table[name])
            return pc.invert(found) if negated else found
        negated = self._take("not")
        if self._take("like"):
            found = self._like(name)
        elif self._take("in"):
            found = self._in(name)
        elif negated:
            raise self._error("has 'not' after a column: in or like must follow")
        else:
            sign = self._next("=, !=, <, >, in, like or is")
            if sign not in _COMPARE:
                raise self._error(f"has {sign!r} after {name}: use =, !=, <, <=, >, >=, in, like or is")
            value = self._value()
            found = _COMPARE[sign](self._column(name, value), value)
        return pc.invert(found) if negated else found

    def _like(self, name: str) -> Any:
        pattern = self._value()
        if not isinstance(pattern, str):
            raise self._error("has a number after like: a text in single quotes is expected")
        parts = {"%": ".*", "_": "."}
        regex = "".join(parts.get(character) or re.escape(character) for character in pattern)
        # Arrow's own `like` takes a backslash for an escape in some patterns.
        return pc.match_substring_regex(self._column(name, pattern), rf"(?s)\A{regex}\z")

    def _in(self, name: str) -> Any:
        self._expect("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._expect(")")
        found = pc.equal(self._column(name, values[0]), values[0])
        for value in values[1:]:
            found = pc.or_kleene(found, pc.equal(self._column(name, value), value))
        return found

    def _column(self, name: str, value: str | float) -> Any:
        """The column to compare with a value."""
        if isinstance(value, str):
            return self._table["class_name" if name == "label" else name]
        if name != "label":
            raise self._error(f"compares {name} with the number {value}: a text in single quotes is expected")
        return self._table[name]

    def _value(self) -> str | float:
        token = self._next("a number or a text in single quotes")
        if token.startswith("'"):
            text = token[1:-1].replace("''", "'")
            try:
                return text if is_unicode(text) else escape_name(text)
            except UnicodeEncodeError:
                raise self._error("has a text that is neither Unicode nor the bytes of a name") from None
        try:
            number = float(token)
            return int(token) if token.lstrip("-").isdigit() and abs(number) < LARGEST_INTEGER else number
        except ValueError:
            raise self._error(
                f"has {token!r} where a number or a text in single quotes is expected, such as '{token}'"
            ) from None

    def _take(self, word: str) -> bool:
        """Whether the next token is this word, which is then consumed."""
        if self._place < len(self._tokens) and self._tokens[self._place].lower() == word:
            self._place += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            found = self._next(repr(word))
            raise self._error(f"has {found!r} where {word!r} is expected")

    def _next(self, expected: str) -> str:
        if self._place == len(self._tokens):
            raise self._error(f"ends where {expected} is expected")
        self._place += 1
        return self._tokens[self._place - 1]

    def _error(self, problem: str) -> UnweaveError:
        shown = self._where if len(self._where) <= 80 else self._where[:77] + "…"
        return UnweaveError(f"`where` {' '.join(shown.split())!r} {problem}")
