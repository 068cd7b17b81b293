"""PostgreSQL's regular expressions, compiled: does a text match, and where.

    regex = compile_regex("^AB[0-9]+$")      # RegexError, UnsupportedRegexError
    regex.matches("AB12")                    # what the operator ~ says
    regex.find(subject, 0)                   # where, and what the groups captured

Character classes and case are those of the C collation; `Regex.uses_ctype` says whether that
matters for the pattern.

Source: src/backend/regex/regcomp.c, regexec.c.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.regex_automaton import Automaton, Conditions, Palette, Subject
from gateway.pgtypes.regex_lexer import Flags, RegexError
from gateway.pgtypes.regex_parser import Pattern, UnsupportedRegexError, parse_regex

__all__ = [
    "Regex",
    "Subject",
    "UnsupportedRegexError",
    "compile_regex",
]

_MAX_LENGTH: Final = 10_000


class Regex:
    """A compiled pattern.

    Attributes:
        groups: How many groups capture.
        uses_ctype: What it matches depends on the collation's character classes or case.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.groups, self.uses_ctype = pattern.groups, pattern.uses_ctype
        self._root = pattern.root
        self._palette = Palette(pattern.root)
        self._conditions = Conditions(pattern.root, self._palette)
        search = Automaton(pattern.root, self._conditions, self._palette)
        search.check_size()
        self._search = search.floating(stopping=True)

    def subject(self, text: str) -> Subject:
        """`text`, prepared for `find`."""
        return self._conditions.subject(text)

    def matches(self, text: str) -> bool:
        """A part of `text` matches: ``text ~ pattern``."""
        contexts = self._conditions.subject(text).contexts if self._conditions.inner else None
        return self._search.search(text, contexts)


@lru_cache(maxsize=500)
def compile_regex(pattern: str, *, folds: bool = False) -> Regex:
    """Compile `pattern`, an advanced regular expression; `folds`: case does not matter.

    Raises:
        EvaluationError: PostgreSQL does not accept it.
        UnsupportedRegexError: it cannot be reproduced.
    """
    if len(pattern) > _MAX_LENGTH:
        raise UnsupportedRegexError("it is too long")
    try:
        return Regex(parse_regex(pattern, Flags(folds=folds)))
    except RegexError as error:
        raise EvaluationError(f"invalid regular expression: {error}") from None
