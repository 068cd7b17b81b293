r"""Regular expression text -> tokens, one at a time: what a character means depends on the parser.

The parser keeps `groups` up to date, because ``\12`` is a back reference or an octal number
depending on how many groups have been opened.

Source: src/backend/regex/regc_lex.c; manual, "Regular Expression Details".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.pgtypes import regex_tokens as errors
from gateway.pgtypes.regex_syntax import MAX_CODE_POINT
from gateway.pgtypes.regex_tokens import Context, Flags, RegexError, Token

__all__ = ["Lexer"]

_SPACE: Final = " \t\n\v\f\r"
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS: Final = frozenset("0123456789")


_SKIPPING: Final = frozenset(
    (Context.EXTENDED, Context.BASIC, Context.EXTENDED_BRACES, Context.BASIC_BRACES)
)
_BRACES: Final = frozenset((Context.EXTENDED_BRACES, Context.BASIC_BRACES))
_INNER: Final = {Context.COLLATING: ".", Context.EQUIVALENCE: "=", Context.CLASS: ":"}
_QUANTIFIERS: Final = {"*": Token.STAR, "+": Token.PLUS, "?": Token.QUESTION}
_SIMPLE_ESCAPES: Final[Mapping[str, tuple[Token, int | str]]] = {
    "a": (Token.PLAIN, 7),
    "b": (Token.PLAIN, 8),
    "B": (Token.PLAIN, 0x5C),
    "e": (Token.PLAIN, 0x1B),
    "f": (Token.PLAIN, 12),
    "n": (Token.PLAIN, 10),
    "r": (Token.PLAIN, 13),
    "t": (Token.PLAIN, 9),
    "v": (Token.PLAIN, 11),
    "d": (Token.CLASS, "digit"),
    "D": (Token.NOT_CLASS, "digit"),
    "s": (Token.CLASS, "space"),
    "S": (Token.NOT_CLASS, "space"),
    "w": (Token.CLASS, "word"),
    "W": (Token.NOT_CLASS, "word"),
    "A": (Token.START_STRING, 0),
    "Z": (Token.END_STRING, 0),
    "m": (Token.START_WORD, 0),
    "M": (Token.END_WORD, 0),
    "y": (Token.WORD_EDGE, 0),
    "Y": (Token.NO_WORD_EDGE, 0),
}


@dataclass(slots=True)
class Lexer:
    """Reads tokens; `kind` and `value` are the next one.

    Attributes:
        groups: How many capturing groups have been opened; the parser counts.
    """

    text: str
    flags: Flags
    at: int = 0
    groups: int = 0
    kind: Token = Token.NOTHING
    value: int | str | tuple[bool, bool] = 0
    context: Context = Context.EXTENDED
    last: Token = field(default=Token.NOTHING, init=False)

    def __post_init__(self) -> None:
        self._prefixes()
        if self.flags.quote:
            self.context = Context.LITERAL
        elif not self.flags.extended:
            self.context = Context.BASIC
        self.next()

    # Prefixes

    def _prefixes(self) -> None:
        """``***:``, ``***=`` and ``(?options)``."""
        flags = self.flags
        if flags.quote:
            return
        if len(self.text) >= 4 and self.text.startswith("***"):
            match self.text[3]:
                case "?":
                    raise RegexError(errors.BAD_PATTERN)
                case "=":
                    flags.quote, flags.extended, flags.advanced = True, False, False
                    flags.expanded = False
                    flags.set_newline(stops=False, anchors=False)
                    self.at = 4
                    return
                case ":":
                    flags.extended = flags.advanced = True
                    self.at = 4
                case _:
                    raise RegexError(errors.BAD_OPERAND)
        if not (flags.extended and flags.advanced):
            return
        if self._ahead("(?") and self.text[self.at + 2 : self.at + 3] in _LETTERS:
            self._options()

    def _options(self) -> None:
        self.at += 2
        while self.at < len(self.text) and self.text[self.at] in _LETTERS:
            if not self.flags.apply(self.text[self.at]):
                raise RegexError(errors.BAD_OPTION)
            self.at += 1
        if not self._ahead(")"):
            raise RegexError(errors.BAD_OPTION)
        self.at += 1
        if self.flags.quote:
            self.flags.expanded = False
            self.flags.set_newline(stops=False, anchors=False)

    # Tokens

    def _ahead(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _set(self, kind: Token, value: int | str | tuple[bool, bool] = 0) -> None:
        self.kind, self.value = kind, value

    def next(self) -> None:
        """Read one more token.

        Raises:
            RegexError: there is none that makes sense.
        """
        self.last = self.kind
        if self.flags.expanded and self.context in _SKIPPING:
            self._skip()
        if self.at >= len(self.text):
            if self.context in _BRACES:
                raise RegexError(errors.UNBALANCED_BRACES)
            if self.context in (Context.EXTENDED, Context.BASIC, Context.LITERAL):
                self._set(Token.END)
                return
            raise RegexError(errors.UNBALANCED_BRACKETS)
        c = self.text[self.at]
        self.at += 1
        match self.context:
            case Context.LITERAL:
                self._set(Token.PLAIN, ord(c))
            case Context.EXTENDED:
                self._extended(c)
            case Context.BASIC:
                self._basic(c)
            case Context.BRACKET:
                self._bracket(c)
            case Context.EXTENDED_BRACES | Context.BASIC_BRACES:
                self._braces(c)
            case inner:
                if c == _INNER[inner] and self._ahead("]"):
                    self.at += 1
                    self.context = Context.BRACKET
                    self._set(Token.CLOSE_INNER)
                else:
                    self._set(Token.PLAIN, ord(c))

    def _skip(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in _SPACE:
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _greedy(self) -> int:
        """1, or 0 after eating the ``?`` that makes a quantifier non-greedy."""
        if self.flags.advanced and self._ahead("?"):
            self.at += 1
            return 0
        return 1

    def _extended(self, c: str) -> None:
        match c:
            case "|":
                self._set(Token.OR)
            case "*" | "+" | "?":
                self._set(_QUANTIFIERS[c], self._greedy())
            case "{":
                if self.flags.expanded:
                    self._skip()
                if self.text[self.at : self.at + 1] in _DIGITS:
                    self.context = Context.EXTENDED_BRACES
                    self._set(Token.OPEN_BRACE)
                else:
                    self._set(Token.PLAIN, ord(c))
            case "(":
                self._open()
            case ")":
                self._set(Token.CLOSE, ord(c))
            case "[":
                self._open_bracket()
            case ".":
                self._set(Token.DOT)
            case "^":
                self._set(Token.START_LINE)
            case "$":
                self._set(Token.END_LINE)
            case "\\":
                if self.at >= len(self.text):
                    raise RegexError(errors.BAD_ESCAPE)
                if self.flags.advanced:
                    self._escape()
                else:
                    self._set(Token.PLAIN, ord(self.text[self.at]))
                    self.at += 1
            case _:
                self._set(Token.PLAIN, ord(c))

    def _open(self) -> None:
        if not (self.flags.advanced and self._ahead("?")):
            self._set(Token.OPEN, 1)
            return
        self.at += 1
        for text, kind, value in (
            (":", Token.OPEN, 0),
            ("=", Token.LOOK, (True, False)),
            ("!", Token.LOOK, (True, True)),
            ("<=", Token.LOOK, (False, False)),
            ("<!", Token.LOOK, (False, True)),
        ):
            if self._ahead(text):
                self.at += len(text)
                self._set(kind, value)
                return
        if not self._ahead("#"):
            raise RegexError(errors.BAD_OPERAND)
        end = self.text.find(")", self.at)
        self.at = len(self.text) if end < 0 else end + 1
        self.next()

    def _open_bracket(self) -> None:
        for text, kind in (("[:<:]]", Token.START_WORD), ("[:>:]]", Token.END_WORD)):
            if self._ahead(text):
                self.at += len(text)
                self._set(kind)
                return
        self.context = Context.BRACKET
        if self._ahead("^"):
            self.at += 1
            self._set(Token.OPEN_BRACKET, 0)
        else:
            self._set(Token.OPEN_BRACKET, 1)

    def _bracket(self, c: str) -> None:
        first = self.last is Token.OPEN_BRACKET
        if c == "]" and not first:
            self.context = Context.EXTENDED if self.flags.extended else Context.BASIC
            self._set(Token.CLOSE_BRACKET)
        elif c == "\\" and self.flags.advanced:
            if self.at >= len(self.text):
                raise RegexError(errors.BAD_ESCAPE)
            self._escape()
            if self.kind not in (Token.PLAIN, Token.CLASS, Token.NOT_CLASS):
                raise RegexError(errors.BAD_ESCAPE)
        elif c == "-" and not first and not self._ahead("]"):
            self._set(Token.RANGE, ord(c))
        elif c == "[":
            self._open_inner()
        else:
            self._set(Token.PLAIN, ord(c))

    def _open_inner(self) -> None:
        if self.at >= len(self.text):
            raise RegexError(errors.UNBALANCED_BRACKETS)
        for text, context, kind in (
            (".", Context.COLLATING, Token.OPEN_COLLATING),
            ("=", Context.EQUIVALENCE, Token.OPEN_EQUIVALENCE),
            (":", Context.CLASS, Token.OPEN_CLASS),
        ):
            if self._ahead(text):
                self.at += 1
                self.context = context
                self._set(kind)
                return
        self._set(Token.PLAIN, ord("["))

    def _braces(self, c: str) -> None:
        if c in _DIGITS:
            self._set(Token.DIGIT, int(c))
        elif c == ",":
            self._set(Token.COMMA)
        elif c == "}" and self.context is Context.EXTENDED_BRACES:
            self.context = Context.EXTENDED
            self._set(Token.CLOSE_BRACE, self._greedy())
        elif c == "\\" and self.context is Context.BASIC_BRACES and self._ahead("}"):
            self.at += 1
            self.context = Context.BASIC
            self._set(Token.CLOSE_BRACE, 1)
        else:
            raise RegexError(errors.BAD_COUNT)

    # Escapes

    def _escape(self) -> None:
        c = self.text[self.at]
        self.at += 1
        if c not in _LETTERS and c not in _DIGITS:
            self._set(Token.PLAIN, ord(c))
        elif c in _SIMPLE_ESCAPES:
            self._set(*_SIMPLE_ESCAPES[c])
        elif c == "c":
            if self.at >= len(self.text):
                raise RegexError(errors.BAD_ESCAPE)
            self._set(Token.PLAIN, ord(self.text[self.at]) & 0o37)
            self.at += 1
        elif c in "uUx":
            low, high = {"u": (4, 4), "U": (8, 8), "x": (1, 255)}[c]
            code = self._number(16, low, high) & 0xFFFFFFFF
            if code > MAX_CODE_POINT:
                raise RegexError(errors.BAD_ESCAPE)
            self._set(Token.PLAIN, code)
        elif c in _DIGITS:
            self._digits(c)
        else:
            raise RegexError(errors.BAD_ESCAPE)

    def _digits(self, c: str) -> None:
        """A back reference, or else an octal number."""
        start = self.at - 1
        if c != "0":
            self.at = start
            number = self._number(10, 1, 255) & 0xFFFFFFFF
            if self.at == start + 1 or 0 < number <= self.groups:
                self._set(Token.BACKREF, number)
                return
        self.at = start
        code = self._number(8, 1, 3)
        if code > 0xFF:
            self.at -= 1
            code >>= 3
        self._set(Token.PLAIN, code)

    def _number(self, base: int, low: int, high: int) -> int:
        """From `low` to `high` digits."""
        start, number = self.at, 0
        digits = "0123456789abcdef"[:base]
        while self.at < len(self.text) and self.at - start < high:
            digit = digits.find(self.text[self.at].lower()) if self.text[self.at].isascii() else -1
            if digit < 0:
                break
            number = number * base + digit
            self.at += 1
        if self.at - start < low:
            raise RegexError(errors.BAD_ESCAPE)
        return number

    # Basic regular expressions

    def _basic(self, c: str) -> None:
        at_start = self.last in (Token.NOTHING, Token.OPEN)
        if c == "*" and not (at_start or self.last is Token.START_LINE):
            self._set(Token.STAR, 1)
        elif c == "[":
            self._open_bracket()
        elif c == ".":
            self._set(Token.DOT)
        elif c == "^" and at_start:
            self._set(Token.START_LINE)
        elif c == "$":
            if self.flags.expanded:
                self._skip()
            last = self.at >= len(self.text) or self._ahead("\\)")
            self._set(Token.END_LINE if last else Token.PLAIN, ord(c))
        elif c == "\\":
            self._basic_escape()
        else:
            self._set(Token.PLAIN, ord(c))

    def _basic_escape(self) -> None:
        if self.at >= len(self.text):
            raise RegexError(errors.BAD_ESCAPE)
        c = self.text[self.at]
        self.at += 1
        match c:
            case "{":
                self.context = Context.BASIC_BRACES
                self._set(Token.OPEN_BRACE)
            case "(":
                self._set(Token.OPEN, 1)
            case ")":
                self._set(Token.CLOSE, ord(c))
            case "<":
                self._set(Token.START_WORD)
            case ">":
                self._set(Token.END_WORD)
            case "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                self._set(Token.BACKREF, int(c))
            case _:
                self._set(Token.PLAIN, ord(c))
