"""What the lexer of regular expressions hands out: kinds of tokens, contexts, options, errors.

Source: src/backend/regex/regguts.h, regerrs.h; manual, "ARE Embedded-Option Letters".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

__all__ = ["Context", "Flags", "RegexError", "Token"]

BAD_PATTERN: Final = "invalid regexp (reg version 0.8)"
BAD_COLLATING_ELEMENT: Final = "invalid collating element"
BAD_CLASS: Final = "invalid character class"
BAD_ESCAPE: Final = "invalid escape \\ sequence"
BAD_BACKREF: Final = "invalid backreference number"
UNBALANCED_BRACKETS: Final = "brackets [] not balanced"
UNBALANCED_PARENTHESES: Final = "parentheses () not balanced"
UNBALANCED_BRACES: Final = "braces {} not balanced"
BAD_COUNT: Final = "invalid repetition count(s)"
BAD_RANGE: Final = "invalid character range"
BAD_OPERAND: Final = "quantifier operand invalid"
BAD_OPTION: Final = "invalid embedded option"


class RegexError(Exception):
    """The pattern is not a regular expression; the message is PostgreSQL's, pg_regerror()."""


class Token(Enum):
    """The kinds of tokens; `Lexer.value` has what more there is to say."""

    NOTHING = auto()
    END = auto()
    PLAIN = auto()  # value: code point
    CLASS = auto()  # a shorthand such as \d; value: name of the class
    NOT_CLASS = auto()
    DOT = auto()
    START_LINE = auto()
    END_LINE = auto()
    START_STRING = auto()
    END_STRING = auto()
    START_WORD = auto()
    END_WORD = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()
    OPEN = auto()  # value: 1 if it captures
    LOOK = auto()  # value: (ahead, negative)
    CLOSE = auto()  # value: code point
    OR = auto()
    STAR = auto()  # value: 1 if greedy, as for the next three
    PLUS = auto()
    QUESTION = auto()
    CLOSE_BRACE = auto()
    OPEN_BRACE = auto()
    DIGIT = auto()
    COMMA = auto()
    BACKREF = auto()
    OPEN_BRACKET = auto()  # value: 0 if complemented
    CLOSE_BRACKET = auto()
    RANGE = auto()
    OPEN_COLLATING = auto()
    OPEN_EQUIVALENCE = auto()
    OPEN_CLASS = auto()
    CLOSE_INNER = auto()


class Context(Enum):
    """Where the lexer stands."""

    EXTENDED = auto()
    BASIC = auto()
    LITERAL = auto()
    EXTENDED_BRACES = auto()
    BASIC_BRACES = auto()
    BRACKET = auto()
    COLLATING = auto()
    EQUIVALENCE = auto()
    CLASS = auto()


@dataclass(slots=True)
class Flags:
    """Syntax and matching options; the defaults are those of the ``~`` operator.

    Attributes:
        extended: Not a basic regular expression.
        advanced: PostgreSQL's own extensions; REG_ADVF.
        quote: A literal string.
        folds: Case does not matter.
        expanded: White space and comments are skipped.
        newline_stops: ``.`` and complemented brackets do not match a newline.
        newline_anchors: ``^`` and ``$`` match at newlines, too.
    """

    extended: bool = True
    advanced: bool = True
    quote: bool = False
    folds: bool = False
    expanded: bool = False
    newline_stops: bool = False
    newline_anchors: bool = False

    def set_newline(self, *, stops: bool, anchors: bool) -> None:
        """Set both newline options."""
        self.newline_stops, self.newline_anchors = stops, anchors

    def apply(self, letter: str) -> bool:
        """Turn on what the option `letter` of ``(?...)`` stands for; False: there is none."""
        match letter:
            case "b":
                self.extended = self.advanced = self.quote = False
            case "c":
                self.folds = False
            case "e":
                self.extended, self.advanced, self.quote = True, False, False
            case "i":
                self.folds = True
            case "m" | "n":
                self.set_newline(stops=True, anchors=True)
            case "p":
                self.set_newline(stops=True, anchors=False)
            case "q":
                self.quote, self.extended, self.advanced = True, False, False
            case "s":
                self.set_newline(stops=False, anchors=False)
            case "t":
                self.expanded = False
            case "w":
                self.set_newline(stops=False, anchors=True)
            case "x":
                self.expanded = True
            case _:
                return False
        return True
