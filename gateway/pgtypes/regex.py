"""PostgreSQL's regular expressions, compiled: does a text match, and where.

    regex = compile_regex("^AB([0-9]+)$")    # EvaluationError, UnsupportedRegexError
    regex.matches("AB12")                    # True: what the operator ~ says
    Scan(regex, "AB12").find(0).spans        # {1: (2, 4)}

Character classes and case are those of the C collation; `Regex.uses_ctype` says whether that
matters for the pattern.

Source: src/backend/regex/regcomp.c, regexec.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.regex_automaton import Automaton, Conditions, Subject
from gateway.pgtypes.regex_dissect import Part, Spans, build_tree, divide
from gateway.pgtypes.regex_fast import fast_search
from gateway.pgtypes.regex_palette import Palette
from gateway.pgtypes.regex_parser import Pattern, UnsupportedRegexError, parse_regex
from gateway.pgtypes.regex_syntax import SHORTER
from gateway.pgtypes.regex_tokens import Flags, RegexError

__all__ = [
    "Match",
    "Regex",
    "Scan",
    "UnsupportedRegexError",
    "compile_regex",
]

_MAX_LENGTH: Final = 10_000


class Regex:
    """A compiled pattern.

    Attributes:
        groups: How many groups capture.
        uses_ctype: What it matches depends on the collation's character classes or case.
        tree: How a match is divided among its parts.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.groups, self.uses_ctype = pattern.groups, pattern.uses_ctype
        self._root = pattern.root
        self._palette = Palette(pattern.root)
        self._conditions = Conditions(pattern.root, self._palette)
        search = Automaton(pattern.root, self._conditions, self._palette)
        search.check_size()
        self._search = search.floating(stopping=True)
        self._fast = fast_search(pattern.root)
        self.tree = build_tree(pattern.root)
        self._starts: Automaton | None = None

    def matches(self, text: str) -> bool:
        """A part of `text` matches: ``text ~ pattern``."""
        if self._fast is not None and len(text) <= self._fast.longest:
            return self._fast.search(text) is not None
        return self.matches_long(text)

    def matches_long(self, text: str) -> bool:
        """The same as `matches`, in linear time for any text."""
        contexts = self._conditions.subject(text).contexts if self._conditions.inner else None
        return self._search.search(text, contexts)

    def subject(self, text: str) -> Subject:
        """`text` with what the pattern's constraints ask of it."""
        return self._conditions.subject(text)

    def starts(self, subject: Subject) -> list[bool]:
        """For each position, whether a match begins there."""
        if self._starts is None:
            automaton = Automaton(self._root, self._conditions, self._palette)
            self._starts = automaton.reverse().floating(stopping=False)
        return self._starts.positions(subject, backwards=True)

    def automaton(self, part: Part) -> Automaton:
        """The automaton of a part of the tree."""
        if part.automaton is None:
            part.automaton = Automaton(part.language, self._conditions, self._palette)
        return part.automaton


@dataclass(frozen=True, slots=True)
class Match:
    """Where a match and its groups begin and end, in characters from 0."""

    start: int
    end: int
    spans: Spans

    def span(self, group: int) -> tuple[int, int] | None:
        """Of a group, or of the whole for 0; None if the group has not matched."""
        return self.spans.get(group) if group else (self.start, self.end)


class Scan:
    """The matches of one pattern in one text.

    Attributes:
        captures: Look for the groups, too.
    """

    def __init__(self, regex: Regex, text: str, *, captures: bool = True) -> None:
        self.text = text
        self._regex = regex
        self._captures = captures and regex.groups > 0
        self._subject = regex.subject(text)
        self._starts: list[bool] | None = None

    def find(self, at: int) -> Match | None:
        """The first match that begins at or after `at`; what stands before it is still seen."""
        if self._starts is None:
            self._starts = self._regex.starts(self._subject)
        try:
            start = self._starts.index(True, at)
        except ValueError:
            return None
        tree, stop = self._regex.tree, len(self.text)
        automaton = self._regex.automaton(tree)
        if tree.flags & SHORTER:
            end = automaton.shortest(self._subject, start, start, stop)
        else:
            end = automaton.longest(self._subject, start, stop)
        assert end is not None, "an automaton and its reverse disagree"
        spans: Spans = {}
        if self._captures:
            spans = divide(tree, self._subject, start, end, self._regex.automaton)
        return Match(start, end, spans)


def _flags(options: str) -> Flags:
    flags = Flags()
    for letter in options:
        # parse_re_flags() says of e that it takes EREs, but clears that bit again.
        if not flags.apply("b" if letter == "e" else letter):
            raise EvaluationError("invalid regular expression option")
    return flags


@lru_cache(maxsize=500)
def compile_regex(pattern: str, options: str = "") -> Regex:
    """Compile `pattern`, an advanced regular expression; `options` as in the manual, without g.

    Raises:
        EvaluationError: PostgreSQL does not accept it.
        UnsupportedRegexError: it cannot be reproduced.
    """
    flags = _flags(options)
    if len(pattern) > _MAX_LENGTH:
        raise UnsupportedRegexError("it is too long")
    try:
        if flags.quote and (flags.expanded or flags.newline_stops or flags.newline_anchors):
            raise RegexError("invalid argument to regex function")
        return Regex(parse_regex(pattern, flags))
    except RegexError as error:
        raise EvaluationError(f"invalid regular expression: {error}") from None
