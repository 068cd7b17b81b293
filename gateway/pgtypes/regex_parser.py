"""Regular expression text -> tree.

Errors come in PostgreSQL's order, because tokens are read when its parser reads them.

Source: src/backend/regex/regcomp.c, parse() and what it calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gateway.pgtypes import regex_tokens as errors
from gateway.pgtypes.regex_lexer import Lexer
from gateway.pgtypes.regex_names import CHARACTER_NAMES
from gateway.pgtypes.regex_syntax import (
    ANYTHING,
    EMPTY,
    LONGER,
    SHORTER,
    WORD,
    Backref,
    Chars,
    Choice,
    Edge,
    Group,
    Look,
    Node,
    Ranges,
    Repeat,
    Sequence,
    character_class,
    complement,
    fold_ascii,
    union,
)
from gateway.pgtypes.regex_tokens import Flags, RegexError, Token

__all__ = ["Pattern", "UnsupportedRegexError", "parse_regex"]

_MAX_COUNT: Final = 255
_MAX_DEPTH: Final = 80
_NEWLINE: Final[Ranges] = ((10, 10),)
_QUANTIFIERS: Final = {Token.STAR: (0, None), Token.PLUS: (1, None), Token.QUESTION: (0, 1)}
_NO_OPERAND: Final = frozenset((Token.STAR, Token.PLUS, Token.QUESTION, Token.OPEN_BRACE))


class UnsupportedRegexError(Exception):
    """PostgreSQL accepts the pattern (or may do so), but it cannot be reproduced; says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression, read.

    Attributes:
        root: The tree.
        groups: How many groups capture.
        uses_ctype: What it matches depends on the collation's character classes or case.
        has_backref: It has a back reference.
        folds: Case does not matter.
    """

    root: Node
    groups: int
    uses_ctype: bool
    has_backref: bool
    folds: bool


def parse_regex(text: str, flags: Flags | None = None) -> Pattern:
    """Read `text`, an ARE unless `flags` or its own prefix say otherwise.

    Classes and case are those of the C collation.

    Raises:
        RegexError: PostgreSQL does not accept it; with pg_regerror()'s text.
        UnsupportedRegexError: nested too deeply, or a back reference that PostgreSQL leaves open.
    """
    parser = _Parser(text, replace(flags) if flags else Flags())
    root = parser.choice(Token.END, look=False)
    return Pattern(
        root,
        parser.lexer.groups,
        parser.uses_ctype,
        parser.has_backref,
        parser.flags.folds,
    )


class _Parser:
    """Recursive descent over the lexer's tokens."""

    def __init__(self, text: str, flags: Flags) -> None:
        self.flags = flags
        self.lexer = Lexer(text, flags)
        self.uses_ctype = self.has_backref = False
        self.complete: dict[int, bool] = {}
        """Groups that are closed; False: it, or something around it, was repeated {0} times."""
        self.depth = 0

    def _see(self, *kinds: Token) -> bool:
        return self.lexer.kind in kinds

    def choice(self, stopper: Token, *, look: bool) -> Node:
        """Branches up to `stopper`; in a lookaround constraint nothing captures."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UnsupportedRegexError("it is nested too deeply")
        branches = [self._branch(stopper, look=look)]
        while self._see(Token.OR):
            self.lexer.next()
            branches.append(self._branch(stopper, look=look))
        if not self._see(stopper):
            raise RegexError(errors.UNBALANCED_PARENTHESES)
        self.depth -= 1
        return Choice(tuple(branches)) if len(branches) > 1 else branches[0]

    def _branch(self, stopper: Token, *, look: bool) -> Node:
        items = []
        ends = (Token.OR, Token.END, stopper)
        while not self._see(*ends):
            constraint = self._constraint()
            items.append(self._quantified(look=look) if constraint is None else constraint)
        return Sequence(tuple(items))

    # Constraints

    def _constraint(self) -> Node | None:
        """A constraint, which nothing may quantify, or None if there is an atom."""
        found: Node
        match self.lexer.kind:
            case Token.START_LINE:
                behind = Look(Chars(_NEWLINE), ahead=False, negative=False)
                found = Choice((Edge.START, behind)) if self.flags.newline_anchors else Edge.START
            case Token.END_LINE:
                ahead = Look(Chars(_NEWLINE), ahead=True, negative=False)
                found = Choice((Edge.END, ahead)) if self.flags.newline_anchors else Edge.END
            case Token.START_STRING:
                found = Edge.START
            case Token.END_STRING:
                found = Edge.END
            case Token.START_WORD:
                found = self._word_edge(behind=False, ahead=True)
            case Token.END_WORD:
                found = self._word_edge(behind=True, ahead=False)
            case Token.WORD_EDGE:
                found = Choice(
                    (
                        self._word_edge(behind=False, ahead=True),
                        self._word_edge(behind=True, ahead=False),
                    )
                )
            case Token.NO_WORD_EDGE:
                found = Choice(
                    (
                        self._word_edge(behind=True, ahead=True),
                        self._word_edge(behind=False, ahead=False),
                    )
                )
            case Token.LOOK:
                assert isinstance(self.lexer.value, tuple)
                is_ahead, negative = self.lexer.value
                self.lexer.next()
                found = Look(self.choice(Token.CLOSE, look=True), is_ahead, negative)
            case _:
                return None
        self.lexer.next()
        return found

    def _word_edge(self, *, behind: bool, ahead: bool) -> Node:
        self.uses_ctype = True
        return Sequence(
            (
                Look(Chars(WORD), ahead=False, negative=not behind),
                Look(Chars(WORD), ahead=True, negative=not ahead),
            )
        )

    # Atoms and quantifiers

    def _quantified(self, *, look: bool) -> Node:
        before = self.lexer.groups
        atom = self._atom(look=look)
        low, high, prefers = self._quantifier()
        if (low, high) == (0, 0):
            for number in range(before + 1, self.lexer.groups + 1):
                self.complete[number] = False
            return EMPTY
        if (low, high, prefers) == (1, 1, 0):
            return atom
        return Repeat(atom, low, high, prefers)

    def _atom(self, *, look: bool) -> Node:
        kind, value = self.lexer.kind, self.lexer.value
        if kind in _NO_OPERAND:
            raise RegexError(errors.BAD_OPERAND)
        if kind is Token.CLOSE and (self.flags.advanced or not self.flags.extended):
            raise RegexError(errors.UNBALANCED_PARENTHESES)
        match kind:
            case Token.OPEN:
                return self._group(captures=bool(value) and not look, look=look)
            case Token.OPEN_BRACKET:
                return self._bracket(negated=value == 0)
            case Token.BACKREF:
                return self._backref(look=look)
            case Token.DOT:
                stops = self.flags.newline_stops
                found = Chars(complement(_NEWLINE) if stops else ANYTHING)
            case Token.CLASS:
                assert isinstance(value, str)
                found = Chars(self._class(value))
            case Token.NOT_CLASS:
                assert isinstance(value, str)
                found = Chars(complement(self._class(value)))
            case _:
                assert isinstance(value, int)
                found = Chars(self._folded(((value, value),)))
        self.lexer.next()
        return found

    def _folded(self, ranges: Ranges) -> Ranges:
        if not self.flags.folds:
            return ranges
        # ASCII digits and punctuation have no case anywhere.
        self.uses_ctype |= any(
            high > 0x7F or (low <= last and high >= first)
            for low, high in ranges
            for first, last in ((0x41, 0x5A), (0x61, 0x7A))
        )
        return fold_ascii(ranges)

    def _group(self, *, captures: bool, look: bool) -> Node:
        number = 0
        if captures:
            self.lexer.groups += 1
            number = self.lexer.groups
        self.lexer.next()
        body = self.choice(Token.CLOSE, look=look)
        self.lexer.next()
        if number:
            self.complete[number] = True
        return Group(body, number)

    def _backref(self, *, look: bool) -> Node:
        number = self.lexer.value
        assert isinstance(number, int)
        if look or number not in self.complete:
            raise RegexError(errors.BAD_BACKREF)
        if not self.complete[number]:
            raise UnsupportedRegexError("it refers to a group that is repeated {0} times")
        self.has_backref = True
        self.lexer.next()
        return Backref(number, self.flags.folds)

    def _quantifier(self) -> tuple[int, int | None, int]:
        kind = self.lexer.kind
        if kind in _QUANTIFIERS:
            low, high = _QUANTIFIERS[kind]
            prefers = LONGER if self.lexer.value else SHORTER
            self.lexer.next()
            return low, high, prefers
        if not self._see(Token.OPEN_BRACE):
            return 1, 1, 0
        self.lexer.next()
        low = self._count()
        bounds: tuple[int, int | None]
        prefers = 0
        if self._see(Token.COMMA):
            self.lexer.next()
            bounds = low, self._count() if self._see(Token.DIGIT) else None
            if bounds[1] is not None and low > bounds[1]:
                raise RegexError(errors.BAD_COUNT)
            prefers = LONGER if self.lexer.value else SHORTER
        else:
            bounds = low, low
        if not self._see(Token.CLOSE_BRACE):
            raise RegexError(errors.BAD_COUNT)
        self.lexer.next()
        return *bounds, prefers

    def _count(self) -> int:
        number = 0
        while self._see(Token.DIGIT) and number < _MAX_COUNT:
            assert isinstance(self.lexer.value, int)
            number = number * 10 + self.lexer.value
            self.lexer.next()
        if self._see(Token.DIGIT) or number > _MAX_COUNT:
            raise RegexError(errors.BAD_COUNT)
        return number

    # Brackets

    def _class(self, name: str) -> Ranges:
        found = character_class(name, folds=self.flags.folds)
        if found is None:
            raise RegexError(errors.BAD_CLASS)
        ranges, depends = found
        self.uses_ctype |= depends
        return ranges

    def _bracket(self, *, negated: bool) -> Node:
        parts: list[Ranges] = []
        self.lexer.next()
        while not self._see(Token.CLOSE_BRACKET, Token.END):
            parts.append(self._part())
        self.lexer.next()
        ranges = union(parts)
        if negated:
            if self.flags.newline_stops:
                ranges = union((ranges, _NEWLINE))
            ranges = complement(ranges)
        return Chars(ranges)

    def _part(self) -> Ranges:
        """One character, range or class of a bracket expression."""
        match self.lexer.kind:
            case Token.RANGE:
                raise RegexError(errors.BAD_RANGE)
            case Token.OPEN_EQUIVALENCE:
                code = self._element()
                return self._folded(((code, code),))
            case Token.OPEN_CLASS:
                name = self._inner()
                if not name:
                    raise RegexError(errors.BAD_CLASS)
                return self._class(name)
            case Token.CLASS | Token.NOT_CLASS:
                value = self.lexer.value
                assert isinstance(value, str)
                ranges = self._class(value)
                negated = self._see(Token.NOT_CLASS)
                self.lexer.next()
                return complement(ranges) if negated else ranges
        first = last = self._end_of_range()
        if self._see(Token.RANGE):
            self.lexer.next()
            if not self._see(Token.PLAIN, Token.RANGE, Token.OPEN_COLLATING):
                raise RegexError(errors.BAD_RANGE)
            last = self._end_of_range()
            if last < first:
                raise RegexError(errors.BAD_RANGE)
        return self._folded(((first, last),))

    def _end_of_range(self) -> int:
        if self._see(Token.OPEN_COLLATING):
            return self._element()
        code = self.lexer.value
        assert isinstance(code, int)
        self.lexer.next()
        return code

    def _inner(self) -> str:
        """The text within ``[. .]``, ``[= =]`` or ``[: :]``."""
        self.lexer.next()
        start = end = self.lexer.at
        if self._see(Token.PLAIN):
            start -= 1
        while self._see(Token.PLAIN):
            end = self.lexer.at
            self.lexer.next()
        self.lexer.next()
        return self.lexer.text[start:end]

    def _element(self) -> int:
        """A collating element: a character, or the name of one."""
        name = self._inner()
        if len(name) == 1:
            return ord(name)
        if name not in CHARACTER_NAMES:
            raise RegexError(errors.BAD_COLLATING_ELEMENT)
        return CHARACTER_NAMES[name]
