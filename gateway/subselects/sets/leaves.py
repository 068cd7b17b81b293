"""Parts in which a set is kept in Kafka: leaves of a tree over the places of its entries.

A leaf has the entries whose places begin with its bits. One that has grown beyond `MOST` is split
in two by the next bit, so a commit writes some `MOST` entries for each that has changed, whatever
the size of the set. At every commit the leaves cover all places, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.subselects.sets.entries import PLACES, Entries, place_of

__all__ = ["MOST", "Leaf", "Leaves"]

MOST: Final = 64
"""Number of entries beyond which a leaf is split."""
_DEEPEST: Final = 32


class Leaf(NamedTuple):
    """The places that begin with `bits` bits, which are `prefix`."""

    bits: int
    prefix: int

    @property
    def low(self) -> int:
        """First of its places."""
        return self.prefix << (_DEEPEST - self.bits)

    @property
    def high(self) -> int:
        """First place after it."""
        return (self.prefix + 1) << (_DEEPEST - self.bits)


class Leaves:
    """Leaves of one set, and which of them have changed since they were last written.

    Args:
        leaves: Those that Kafka has; by default one for everything, to be written.
        most: Number of entries beyond which a leaf is split.
    """

    def __init__(self, leaves: set[Leaf] | None = None, *, most: int = MOST) -> None:
        self._most = most
        self._leaves = leaves or {Leaf(0, 0)}
        self._changed = set() if leaves else {Leaf(0, 0)}
        self._removed: set[Leaf] = set()

    def note(self, entry: bytes) -> None:
        """Note that the count of an entry has changed."""
        self._changed.add(self._leaf_of(entry))

    def reset(self) -> None:
        """Note that everything has changed: there is one leaf again."""
        self._removed |= self._leaves
        self._leaves = {Leaf(0, 0)}
        self._changed = {Leaf(0, 0)}

    def pop_changed(
        self, entries: Entries
    ) -> Iterator[tuple[Leaf, list[tuple[bytes, int]] | None]]:
        """Yield the leaves to write, with their entries; None for one that there is no more.

        A leaf can come twice, first as one that there is no more. Exhaust it.
        """
        removed, waiting = self._removed, sorted(self._changed)
        self._removed, self._changed = set(), set()
        yield from ((leaf, None) for leaf in sorted(removed))
        while waiting:
            leaf = waiting.pop()
            # Places are spread evenly: one that has far more is not read to find it out.
            expected = len(entries) >> leaf.bits
            found = [] if expected > 4 * self._most else entries.within(leaf.low, leaf.high)
            is_small = expected <= 4 * self._most and len(found) <= self._most
            if is_small or leaf.bits == _DEEPEST:
                yield leaf, found
                continue
            halves = (
                Leaf(leaf.bits + 1, leaf.prefix << 1),
                Leaf(leaf.bits + 1, leaf.prefix << 1 | 1),
            )
            self._leaves.discard(leaf)
            self._leaves.update(halves)
            waiting += halves
            yield leaf, None

    def _leaf_of(self, entry: bytes) -> Leaf:
        place = place_of(entry)
        for bits in range(_DEEPEST + 1):
            leaf = Leaf(bits, place >> (_DEEPEST - bits))
            if leaf in self._leaves:
                return leaf
        raise AssertionError("leaves cover all places")

    @staticmethod
    def cover(leaves: set[Leaf]) -> bool:
        """Whether leaves cover all places, each once."""
        next_place = 0
        for leaf in sorted(leaves, key=lambda each: (each.low, each.bits)):
            if leaf.low != next_place:
                return False
            next_place = leaf.high
        return next_place == PLACES
