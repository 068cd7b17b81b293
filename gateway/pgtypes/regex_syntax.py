"""What a regular expression says, as values: sets of characters, and the tree the parser makes.

Characters are code points. The tree keeps PostgreSQL's distinction between atoms, which can be
quantified, and constraints, which match an empty string where something holds.

Source: manual, "POSIX Regular Expressions"; src/backend/regex/regcomp.c.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

__all__ = [
    "ANYTHING",
    "EMPTY",
    "LONGER",
    "MAX_CODE_POINT",
    "SHORTER",
    "WORD",
    "Backref",
    "Chars",
    "Choice",
    "Edge",
    "Group",
    "Look",
    "Node",
    "Ranges",
    "Repeat",
    "Sequence",
    "character_class",
    "complement",
    "fold_ascii",
    "union",
]

MAX_CODE_POINT: Final = 0x7FFFFFFE
"""CHR_MAX: the greatest that an escape in a pattern may name."""

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ascending, disjoint, both ends included."""

LONGER: Final = 1
SHORTER: Final = 2
"""What a quantifier prefers; 0 leaves it to what is repeated."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


class Edge(Enum):
    """The ends of the string, as a constraint."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Look:
    """A lookaround constraint: `body` matches (or does not) behind or ahead of here."""

    body: Node
    ahead: bool
    negative: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Parentheses; `number` is 0 when they do not capture."""

    body: Node
    number: int


@dataclass(frozen=True, slots=True)
class Backref:
    """What group `number` has matched, once more."""

    number: int
    folds: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """`body` from `low` to `high` times; None is without end."""

    body: Node
    low: int
    high: int | None
    prefers: int = 0


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; a branch."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the branches."""

    branches: tuple[Node, ...]


Node: TypeAlias = Chars | Edge | Look | Group | Backref | Repeat | Sequence | Choice

EMPTY: Final = Sequence(())
ANYTHING: Final[Ranges] = ((0, MAX_CODE_POINT),)


def union(sets: Iterable[Ranges]) -> Ranges:
    """The characters that are in any of `sets`."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(pair for ranges in sets for pair in ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """The characters that are not in `ranges`."""
    found, at = [], 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    if at <= MAX_CODE_POINT:
        found.append((at, MAX_CODE_POINT))
    return tuple(found)


def fold_ascii(ranges: Ranges) -> Ranges:
    """`ranges` with both cases of every ASCII letter in it: what matters under the C collation."""
    both = [ranges]
    for first, last, offset in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
        for low, high in ranges:
            low, high = max(low, first), min(high, last)
            if low <= high:
                both.append(((low + offset, high + offset),))
    return union(both)


def _ranges(text: str) -> Ranges:
    """The set of `text`, pairs of characters being the ends of ranges."""
    return union([((ord(a), ord(b)),) for a, b in zip(text[::2], text[1::2], strict=True)])


_FIXED: Final = {
    "ascii": _ranges("\x00\x7f"),
    "blank": _ranges("\t\t  "),
    "cntrl": _ranges("\x00\x1f\x7f\x9f"),
    "xdigit": _ranges("09afAF"),
}
"""Classes that are the same under every collation."""
_C_CTYPE: Final = {
    "alnum": _ranges("09azAZ"),
    "alpha": _ranges("azAZ"),
    "digit": _ranges("09"),
    "graph": _ranges("!~"),
    "lower": _ranges("az"),
    "print": _ranges(" ~"),
    "punct": _ranges("!/:@[`{~"),
    "space": _ranges("\t\r  "),
    "upper": _ranges("AZ"),
    "word": _ranges("09azAZ__"),
}
"""Classes as the C collation has them."""
WORD: Final = _C_CTYPE["word"]


def character_class(name: str, *, folds: bool) -> tuple[Ranges, bool] | None:
    """The class `name` under the C collation, and whether it depends on the collation.

    None: there is no such class. `folds`: case does not matter.

    Source: cclasscvec().
    """
    if folds and name in ("lower", "upper"):
        name = "alpha"
    if name in _FIXED:
        return _FIXED[name], False
    if name in _C_CTYPE:
        return _C_CTYPE[name], True
    return None
