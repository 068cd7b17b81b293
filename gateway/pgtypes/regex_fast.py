"""Simple regular expressions for short texts: Python's `re`, where it cannot take long.

Whether a text matches at all does not depend on what a pattern prefers, so a translation that keeps
the sets of characters, the branches and the numbers of repetitions gives the same answer. It is
made only if nothing but single characters is repeated: then going back costs at most one more
power of the length of the text for each repetition, and `Fast.longest` is chosen so that this stays
small.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from gateway.pgtypes.regex_syntax import (
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
)

__all__ = ["Fast", "fast_search"]

_MAX_STEPS: Final = 200_000
"""Some milliseconds."""
_MAX_TEXT: Final = 10_000
_MAX_CODE_POINT: Final = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Fast:
    """`search` says whether a text of at most `longest` characters matches."""

    search: Callable[[str], re.Match[str] | None]
    longest: int


class _TooHard(Exception):
    """The pattern has more than single characters repeated, or looks further than one of them."""


@dataclass(slots=True)
class _Cost:
    """What has been translated: how many repetitions vary, and between how many ways."""

    repeats: int = 0
    ways: int = 1


def fast_search(root: Node) -> Fast | None:
    """The translation of a pattern, or None if it is not simple enough."""
    cost = _Cost()
    try:
        expression = _translate(root, cost)
    except _TooHard:
        return None
    power = cost.repeats + (not _is_anchored(root))
    longest = _MAX_TEXT
    while longest and cost.ways * (longest + 1) ** power > _MAX_STEPS:
        longest = longest * 9 // 10
    return Fast(re.compile(expression, re.DOTALL).search, longest) if longest else None


def _is_anchored(root: Node) -> bool:
    return isinstance(root, Sequence) and root.items[:1] == (Edge.START,)


def _single(node: Node) -> Chars | None:
    """The set of a node that is one character."""
    while isinstance(node, Group | Sequence):
        if isinstance(node, Group):
            node = node.body
        elif len(node.items) == 1:
            node = node.items[0]
        else:
            return None
    return node if isinstance(node, Chars) else None


def _translate(node: Node, cost: _Cost) -> str:
    match node:
        case Chars(ranges):
            return _set(ranges)
        case Edge.START:
            return r"\A"
        case Edge.END:
            return r"\Z"
        case Look(body, ahead, negative):
            return f"(?{'' if ahead else '<'}{'!' if negative else '='}{_set_of(body)})"
        case Group(body):
            return f"(?:{_translate(body, cost)})"
        case Sequence(items):
            return "".join(_translate(item, cost) for item in items)
        case Choice(branches):
            cost.ways *= len(branches)
            return f"(?:{'|'.join(_translate(branch, cost) for branch in branches)})"
        case Repeat(body, low, high):
            cost.repeats += low != high
            return f"{_set_of(body)}{{{low},{'' if high is None else high}}}"
        case Backref():
            raise _TooHard
    assert_never(node)


def _set_of(node: Node) -> str:
    single = _single(node)
    if single is None:
        raise _TooHard
    return _set(single.ranges)


def _set(ranges: Ranges) -> str:
    pairs = [(low, min(high, _MAX_CODE_POINT)) for low, high in ranges if low <= _MAX_CODE_POINT]
    if not pairs:
        return "[^\\x00-\\U0010ffff]"
    if len(pairs) == 1 and pairs[0][0] == pairs[0][1]:
        return f"\\U{pairs[0][0]:08x}"
    inside = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in pairs)
    return f"[{inside}]"
