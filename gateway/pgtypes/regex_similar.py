"""SIMILAR TO: SQL regular expression -> PostgreSQL's own.

Source: manual, "SIMILAR TO Regular Expressions"; src/backend/utils/adt/regexp.c,
similar_escape_internal().
"""

from __future__ import annotations

from typing import Final

from gateway.pgtypes.errors import EvaluationError

__all__ = ["similar_to_escape", "versions_agree"]

_SEPARATORS: Final = ("){1,1}?(", "){1,1}(?:")
"""What the first and the second escape-double-quote become."""


def similar_to_escape(pattern: bytes, escape: bytes = b"\\") -> bytes:
    """The regular expression for ``SIMILAR TO pattern ESCAPE escape``.

    Raises:
        EvaluationError: the escape string is longer than one character, or there are more than two
            escape-double-quote separators.
    """
    return _translate(pattern, escape, nested_brackets=True)


def versions_agree(pattern: bytes, escape: bytes = b"\\") -> bool:
    """Releases before May 2025, which take the first ``]`` for the end of a bracket, say the same.

    Raises:
        EvaluationError: as `similar_to_escape`.
    """
    new = _translate(pattern, escape, nested_brackets=True)
    return new == _translate(pattern, escape, nested_brackets=False)


class _Bracket:
    """How far a bracket expression has been read; `depth` is 0 outside of one."""

    def __init__(self, *, nested: bool) -> None:
        self.depth = 0
        self._nested = nested
        self._place = 0
        """1: behind ``[``; 2: behind ``[^``; 3 and more: further."""

    def open(self) -> None:
        self.depth = self._place = 1

    def passed(self) -> None:
        """An escaped character was read."""
        self._place = 3

    def read(self, c: str) -> None:
        if not self._nested:
            self.depth = 0 if c == "]" else 1
        elif c == "]" and self._place > 2:
            self.depth -= 1
        elif c == "[":
            self.depth += 1
            self._place = 3
        elif c == "^":
            self._place += 1
        else:
            self._place = 3


def _translate(pattern: bytes, escape: bytes, *, nested_brackets: bool) -> bytes:
    mark = escape.decode()
    if len(mark) > 1:
        raise EvaluationError("invalid escape string")
    # With a multi-byte escape character, other multi-byte characters take a way of their own.
    wide = bool(mark) and not mark.isascii()
    out, quotes, after_escape = ["^(?:"], 0, False
    bracket = _Bracket(nested=nested_brackets)
    for c in pattern.decode():
        if wide and not c.isascii():
            if not after_escape and c == mark:
                after_escape = True
            else:
                out.append("\\" + c if after_escape else c)
                after_escape = False
        elif after_escape:
            if c == '"' and not bracket.depth:
                if quotes == len(_SEPARATORS):
                    raise EvaluationError(
                        "SQL regular expression may not contain more than two "
                        "escape-double-quote separators"
                    )
                out.append(_SEPARATORS[quotes])
                quotes += 1
            else:
                out.append("\\" + c)
                bracket.passed()
            after_escape = False
        elif c == mark:
            after_escape = True
        elif bracket.depth:
            out.append("\\\\" if c == "\\" else c)
            bracket.read(c)
        else:
            if c == "[":
                bracket.open()
            out.append(_OUTSIDE.get(c, c))
    return "".join((*out, ")$")).encode()


_OUTSIDE: Final = {
    "%": ".*",
    "_": ".",
    "(": "(?:",
    "\\": "\\\\",
    ".": "\\.",
    "^": "\\^",
    "$": "\\$",
}
