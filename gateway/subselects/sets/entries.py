"""Counted keys: the port, and its implementation in memory.

A key is a sequence of texts, packed: for each the length plus one as a varint, and its bytes; NULL
is a zero. Its place is a digest of 32 bits; keys are found by themselves and by ranges of places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, Protocol

from gateway.core.errors import ProtocolError

__all__ = [
    "PLACES",
    "Entries",
    "MemoryEntries",
    "all_of",
    "pack",
    "place_of",
    "place_of_first",
    "read_varint",
    "unpack",
    "varint",
]

PLACES: Final = 1 << 32
_NARROW: Final = 14
"""Bits that make a shard of keys: a hundred in each when there are more than a million."""
_AT_ONCE: Final = 4096
_MOST_BYTES_OF_VARINT: Final = 10


def varint(number: int) -> bytes:
    """Return a natural number in groups of seven bits, the least significant first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_LENGTHS: Final = tuple(varint(length + 1) for length in range(256))


def pack(parts: Sequence[bytes | None]) -> bytes:
    """Return the key of `parts`."""
    pieces: list[bytes] = []
    for part in parts:
        if part is None:
            pieces.append(b"\0")
            continue
        size = len(part)
        pieces.append(_LENGTHS[size] if size < 256 else varint(size + 1))
        pieces.append(part)
    return b"".join(pieces)


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the number at `offset`, and the offset after it.

    Raises:
        ProtocolError: it does not end.
    """
    number = shift = 0
    for byte in data[offset : offset + _MOST_BYTES_OF_VARINT]:
        number |= (byte & 0x7F) << shift
        offset += 1
        if byte < 0x80:
            return number, offset
        shift += 7
    raise ProtocolError("a number does not end", tag=b"", offset=offset)


def unpack(data: bytes) -> list[bytes | None]:
    """Return the parts of a key.

    Raises:
        ProtocolError: it is no key.
    """
    parts: list[bytes | None] = []
    offset = 0
    while offset < len(data):
        size, offset = read_varint(data, offset)
        if size == 0:
            parts.append(None)
            continue
        end = offset + size - 1
        if end > len(data):
            raise ProtocolError("a part of a key is cut off", tag=b"", offset=offset)
        parts.append(data[offset:end])
        offset = end
    return parts


def place_of(key: bytes) -> int:
    """Return the place of a key."""
    return int.from_bytes(blake2b(key, digest_size=4).digest(), "big")


def place_of_first(key: bytes) -> int:
    """Return the place of a key's first part, by which keys with the same one are together."""
    size, offset = read_varint(key, 0)
    return place_of(key[offset : offset + max(size - 1, 0)])


class Entries(Protocol):
    """Keys with how often each occurs."""

    def get(self, key: bytes) -> int:
        """Return how often a key occurs."""
        ...

    def put(self, key: bytes, count: int) -> None:
        """Set how often a key occurs."""
        ...

    def within(self, low: int, high: int) -> list[tuple[bytes, int]]:
        """Return the keys with places from `low` until before `high`, and their counts."""
        ...

    def clear(self) -> None:
        """Remove all keys."""
        ...

    def close(self) -> None:
        """Release what it holds outside of memory."""
        ...

    def __len__(self) -> int: ...


def all_of(entries: Entries) -> Iterator[tuple[bytes, int]]:
    """Return all keys and their counts, some thousand at a time; they may be changed meanwhile."""
    steps = len(entries) // _AT_ONCE + 1
    for step in range(steps):
        yield from entries.within(PLACES * step // steps, PLACES * (step + 1) // steps)


class MemoryEntries:
    """`Entries` in memory.

    Args:
        place: Function from a key to its place.
        bits: Number of leading bits of a place whose keys are kept together.
    """

    def __init__(self, place: Callable[[bytes], int] = place_of, *, bits: int = _NARROW) -> None:
        self._place = place
        self._shift = 32 - bits
        self._shards: dict[int, dict[bytes, int]] = {}
        self._size = 0

    def get(self, key: bytes) -> int:
        """Return how often a key occurs."""
        shard = self._shards.get(self._place(key) >> self._shift)
        return 0 if shard is None else shard.get(key, 0)

    def put(self, key: bytes, count: int) -> None:
        """Set how often a key occurs."""
        number = self._place(key) >> self._shift
        shard = self._shards.setdefault(number, {})
        before = len(shard)
        if count:
            shard[key] = count
        else:
            shard.pop(key, None)
        self._size += len(shard) - before
        if not shard:
            del self._shards[number]

    def within(self, low: int, high: int) -> list[tuple[bytes, int]]:
        """Return the keys with places from `low` until before `high`, and their counts."""
        first, last = low >> self._shift, (high - 1) >> self._shift
        numbers = (
            range(first, last + 1)
            if last - first < len(self._shards)
            else [number for number in self._shards if first <= number <= last]
        )
        found: list[tuple[bytes, int]] = []
        for number in numbers:
            shard = self._shards.get(number)
            if shard is None:
                continue
            is_whole = low <= number << self._shift and (number + 1) << self._shift <= high
            found += (
                shard.items()
                if is_whole
                else [(key, n) for key, n in shard.items() if low <= self._place(key) < high]
            )
        return found

    def clear(self) -> None:
        """Remove all keys."""
        self._shards.clear()
        self._size = 0

    def close(self) -> None:
        """Do nothing: there is only memory."""

    def __len__(self) -> int:
        return self._size
