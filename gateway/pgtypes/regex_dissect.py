"""Where a match and its groups begin and end: PostgreSQL prefers otherwise than Perl does.

The whole match is the earliest; its length is the longest or the shortest possible, as the first
quantifier with a preference wants. Groups are found by dividing the match among the parts of a
tree, from left to right, each part as long or as short as it prefers while the rest still matches.
Which parts the tree has decides what is preferred, so it is built as PostgreSQL's parser builds it.

    op    children       divides its text
    =     none           no further; an automaton is enough
    .     two            between the two
    |     two and more   gives all of it to the first that matches
    *     one            among its repetitions
    (     one            gives all of it to a group within a group

Source: src/backend/regex/regcomp.c, parseqatom(); regexec.c, cdissect().
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

from gateway.pgtypes.regex_automaton import Automaton, Subject
from gateway.pgtypes.regex_parser import UnsupportedRegexError
from gateway.pgtypes.regex_syntax import (
    LONGER,
    SHORTER,
    Backref,
    Chars,
    Choice,
    Edge,
    Group,
    Look,
    Node,
    Repeat,
    Sequence,
)

__all__ = ["Part", "Spans", "build_tree", "divide"]

_MAX_DEPTH: Final = 120
_PREFERENCE: Final = LONGER | SHORTER
_MIXED: Final = 4
_CAPTURES: Final = 8
_MESSY: Final = _MIXED | _CAPTURES

Spans = dict[int, tuple[int, int]]
"""Number of a group -> where it begins and ends; groups without a match are left out."""


@dataclass(slots=True)
class Part:
    """A node of the tree; `language` is what it matches, `group` the group that it is, or 0."""

    op: str
    flags: int
    language: Node
    children: list[Part] = field(default_factory=list)
    group: int = 0
    low: int = 1
    high: int | None = 1
    automaton: Automaton | None = None


def _up(flags: int) -> int:
    """What the parent of nodes with `flags` learns of them."""
    mixed = _MIXED if flags & _PREFERENCE == _PREFERENCE else 0
    return flags & ~_PREFERENCE | mixed


def _combine(first: int, second: int) -> int:
    return _up(first | second) | (first & _PREFERENCE or second & _PREFERENCE)


def build_tree(root: Node, depth: int = 0) -> Part:
    """The tree for a pattern without back references; `depth` is that of the node above it.

    Raises:
        UnsupportedRegexError: it is too deep.
    """
    if depth > _MAX_DEPTH:
        raise UnsupportedRegexError("it has too many parts")
    if not isinstance(root, Choice):
        return _branch(_items(root), depth)
    part = Part("|", LONGER, root)
    for branch in root.branches:
        child = _branch(_items(branch), depth)
        part.flags |= _up(part.flags | child.flags)
        part.children.append(child)
    if not part.flags & _MESSY:
        part.op, part.children = "=", []
    return part


def _items(branch: Node) -> tuple[Node, ...]:
    return branch.items if isinstance(branch, Sequence) else (branch,)


def _branch(items: tuple[Node, ...], depth: int) -> Part:
    """Concatenated items; what is not messy is kept together."""
    top = Part("=", 0, Sequence(items))
    for place, item in enumerate(items):
        match item:
            case Repeat(body, low, high, prefers):
                pass
            case Chars() | Group():
                body, low, high, prefers = item, 1, 1, 0
            case Edge() | Look() | Sequence() | Choice():
                continue  # a constraint, or what {0} has left
            case Backref():
                raise AssertionError(item)
            case _:
                assert_never(item)
        atom = build_tree(body.body, depth + 1) if isinstance(body, Group) else None
        captures = isinstance(body, Group) and body.number > 0
        if isinstance(body, Group) and captures:
            assert atom is not None
            atom = _captured(atom, body)
        flags = top.flags | prefers | (atom.flags if atom else 0)
        if captures or _up(flags) & _MESSY:
            atom = atom or Part("=", 0, body)
            piece = _quantified(atom, item, body, (low, high, prefers))
            rest_items = items[place + 1 :]
            rest = build_tree(Sequence(rest_items), depth + 1) if rest_items else None
            return _hard(top, items, place, (piece, rest), _combine(prefers, atom.flags))
        top.flags = flags
    return top


def _captured(atom: Part, group: Group) -> Part:
    if atom.group:
        atom = Part("(", atom.flags, group, [atom])
    atom.flags |= _CAPTURES
    atom.group = group.number
    return atom


def _quantified(
    atom: Part, item: Node, body: Node, quantifier: tuple[int, int | None, int]
) -> Part:
    """The part for a messy atom with its quantifier."""
    low, high, prefers = quantifier
    own = atom.flags & (_PREFERENCE | _MIXED)
    if low == high == 1 and (prefers == 0 or own in (0, prefers)):
        return atom
    flags = _combine(prefers, atom.flags)
    if not atom.flags & _CAPTURES:
        return Part("=", flags, item)
    if low > 0:
        # Only what the last repetition captured counts, so that the others need no division.
        others = Repeat(body, low - 1, None if high is None else high - 1)
        return Part(".", flags, item, [Part("=", flags & _PREFERENCE, others), atom])
    return Part("*", flags, item, [atom], low=low, high=high)


def _hard(
    top: Part, items: tuple[Node, ...], place: int, tail: tuple[Part, Part | None], flags: int
) -> Part:
    """`top`, which has what came before, and a `tail`: a messy piece, and the rest if any."""
    piece, rest = tail
    prefix = Part("=", top.flags, Sequence(items[:place]))
    if rest is None:
        if place == 0:
            return piece
        top.op, top.children = ".", [prefix, piece]
        top.flags |= _combine(top.flags, piece.flags)
        return top
    pair = Part(".", flags, Sequence(items[place:]), [piece, rest])
    pair.flags |= _combine(pair.flags, rest.flags)
    top.op = "."
    top.flags |= _combine(top.flags, pair.flags)
    if place == 0:
        top.children = pair.children
        return top
    if piece.op == rest.op == "=" and not _up(piece.flags | rest.flags) & _MESSY:
        pair.op, pair.children = "=", []
        pair.flags = _combine(piece.flags, rest.flags)
    top.children = [prefix, pair]
    return top


# Division


class _Division:
    """One match of one text; `spans` has what the groups have matched so far."""

    def __init__(self, subject: Subject, automaton: Callable[[Part], Automaton]) -> None:
        self.subject, self.automaton = subject, automaton
        self.spans: Spans = {}

    def longest(self, part: Part, start: int, stop: int) -> int | None:
        return self.automaton(part).longest(self.subject, start, stop)

    def shortest(self, part: Part, start: int, least: int, stop: int) -> int | None:
        return self.automaton(part).shortest(self.subject, start, least, stop)

    def fits(self, part: Part, start: int, stop: int) -> bool:
        return self.longest(part, start, stop) == stop

    def forget(self, part: Part) -> None:
        self.spans.pop(part.group, None)
        for child in part.children:
            self.forget(child)

    def divide(self, part: Part, start: int, stop: int) -> bool:
        """Divide what is known to match `part`."""
        match part.op:
            case ".":
                done = self._concatenation(part, start, stop)
            case "|":
                done = any(
                    self.fits(child, start, stop) and self.divide(child, start, stop)
                    for child in part.children
                )
            case "*":
                done = self._iteration(part, start, stop)
            case "(":
                done = self.divide(part.children[0], start, stop)
            case _:
                done = True
        if done and part.group:
            self.spans[part.group] = start, stop
        return done

    def _concatenation(self, part: Part, start: int, stop: int) -> bool:
        left, right = part.children
        shorter = bool(left.flags & SHORTER)
        middle: int | None
        if shorter:
            middle = self.shortest(left, start, start, stop)
        else:
            middle = self.longest(left, start, stop)
        while middle is not None:
            if (
                self.fits(right, middle, stop)
                and self.divide(left, start, middle)
                and self.divide(right, middle, stop)
            ):
                return True
            if middle == (stop if shorter else start):
                return False
            if shorter:
                middle = self.shortest(left, start, middle + 1, stop)
            else:
                middle = self.longest(left, start, middle - 1)
            self.forget(left)
            self.forget(right)
        return False

    def _iteration(self, part: Part, start: int, stop: int) -> bool:
        """Divide among as few repetitions as their preference leaves, none of them empty if it may.

        The ends of the repetitions are tried in the order of the preference; going back changes the
        last that can be changed. An empty text is no repetition for those that prefer to be
        short; for others it is an empty one where that can be.
        """
        child = part.children[0]
        low = max(part.low, 1)
        most = stop - start if part.high is None else min(stop - start, part.high)
        walk = _Walk(self, child, start, stop, low, max(most, low))
        shorter = bool(child.flags & SHORTER)
        may_be_none = part.low == 0 and start == stop
        return (shorter and may_be_none) or walk.run(shorter=shorter) or may_be_none


class _Walk:
    """The search for the ends of repetitions; ``ends[k]`` is where the k-th one ends."""

    def __init__(
        self, division: _Division, child: Part, start: int, stop: int, low: int, most: int
    ) -> None:
        self.division, self.child = division, child
        self.stop, self.low, self.most = stop, low, most
        self.ends = [start]

    def run(self, *, shorter: bool) -> bool:
        """Find ends that work."""
        limit = self.ends[0] if shorter else self.stop
        while True:
            k = len(self.ends)
            end = self._next(k, limit, shorter=shorter)
            if end is not None:
                self.ends.append(end)
                if end != self.stop:
                    if k < self.most and not self._idle(k, shorter=shorter):
                        limit = end if shorter else self.stop
                        continue
                    if k >= self.most:
                        self.ends.pop()
                elif k >= self.low:
                    failed = self._verify()
                    if failed is None:
                        return True
                    del self.ends[failed + 1 :]
            back = self._back(shorter=shorter)
            if back is None:
                return False
            limit = back

    def _next(self, k: int, limit: int, *, shorter: bool) -> int | None:
        previous = self.ends[-1]
        if not shorter:
            return self.division.longest(self.child, previous, limit)
        if limit == previous and limit != self.stop and not self._needs_empty(k, limit):
            limit += 1
        if k >= self.most:
            limit = self.stop
        return self.division.shortest(self.child, previous, limit, self.stop)

    def _needs_empty(self, k: int, at: int) -> bool:
        """An empty repetition is needed to reach the least number of them."""
        return k < self.low and self.low - k >= self.stop - at

    def _idle(self, k: int, *, shorter: bool) -> bool:
        return (
            not shorter
            and self.ends[k] == self.ends[k - 1]
            and not self._needs_empty(k, self.ends[k])
        )

    def _verify(self) -> int | None:
        """Divide each repetition; the number of the first for which that fails, or None."""
        for k in range(1, len(self.ends)):
            self.division.forget(self.child)
            if not self.division.divide(self.child, self.ends[k - 1], self.ends[k]):
                return k
        return None

    def _back(self, *, shorter: bool) -> int | None:
        """Give up the last end that can be changed: the limit for the next try, or None."""
        while len(self.ends) > 1:
            end = self.ends.pop()
            k, previous = len(self.ends), self.ends[-1]
            if shorter:
                if end < self.stop:
                    return end + 1
            elif end > previous and (end - 1 > previous or self._needs_empty(k, previous)):
                return end - 1
        return None


def divide(
    tree: Part, subject: Subject, start: int, stop: int, automaton: Callable[[Part], Automaton]
) -> Spans:
    """What the groups of `tree` match in a match of the whole from `start` to `stop`."""
    division = _Division(subject, automaton)
    found = division.divide(tree, start, stop)
    assert found, "an automaton and its tree disagree"
    return division.spans
