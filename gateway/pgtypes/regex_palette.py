"""Characters that no set of a regular expression tells apart are one color.

Source: src/backend/regex/regc_color.c.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from gateway.pgtypes.regex_syntax import Chars, Choice, Group, Look, Node, Repeat, Sequence

__all__ = ["Palette"]

_MAX_CACHED_CHARACTERS: Final = 4_000
"""How many characters a table remembers before it starts anew."""


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Look(body) | Group(body) | Repeat(body):
            yield from _nodes(body)
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from _nodes(part)


class Palette(dict[str, int]):
    """The color of each character: characters that no set of a pattern tells apart share one.

    Reading an unknown character computes its color.
    """

    def __init__(self, root: Node) -> None:
        super().__init__()
        sets = {node for node in _nodes(root) if isinstance(node, Chars)}
        edges = {0} | {edge for s in sets for a, b in s.ranges for edge in (a, b + 1)}
        self._edges = sorted(edges)
        members: dict[frozenset[Chars], int] = {}
        self._colors: list[int] = []
        self._sets: dict[Chars, set[int]] = {s: set() for s in sets}
        for edge in self._edges:
            inside = frozenset(s for s in sets if any(a <= edge <= b for a, b in s.ranges))
            color = members.setdefault(inside, len(members))
            self._colors.append(color)
            for s in inside:
                self._sets[s].add(color)
        self.frozen = {s: frozenset(colors) for s, colors in self._sets.items()}

    def __missing__(self, character: str) -> int:
        color = self._colors[bisect_right(self._edges, ord(character)) - 1]
        if len(self) >= _MAX_CACHED_CHARACTERS:
            self.clear()
        self[character] = color
        return color
