"""Unsettled slices and keys of one table, and their records in the progress topic.

    <OID>/s<digest>    a slice: its columns, its value, the subscriptions
    <OID>/k<digest>    a key, the subscriptions
    <OID>/w            the subscriptions for which the table has to be copied again
    <OID>/p<digest>    a subscription, since when rows move, how many have

A value is a format and packed lists (`gateway.subselects.sets.entries`). A commit writes what has
changed. A record that does not read may have been any of them: the table is copied again then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gateway.core.copy_progress import Key
from gateway.core.errors import ProtocolError
from gateway.subselects.formula import Value
from gateway.subselects.moves.progress import MoveProgress
from gateway.subselects.sets.entries import pack, read_varint, unpack, varint

__all__ = ["MoveRecord", "MoveState", "Slice", "StoredMoves", "read_back"]

_FORMAT: Final = 1
_END_MS: Final = 1 << 47
"""A time beyond any that is meant, in milliseconds since 1970, and one that can be shown."""
_MOST_ROWS: Final = 1 << 63

_Found = TypeVar("_Found")
MoveRecord: TypeAlias = tuple[str, bytes | None]
"""Name and value; None removes it."""


class Slice(NamedTuple):
    """Rows of an outer table that have one value in some columns."""

    columns: tuple[str, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class MoveState:
    """Unsettled slices and keys, with the subscriptions for which they are.

    Attributes:
        slices: Slices whose rows the subscriber may or may not have.
        keys: Keys of which the subscriber may lack the row, or values of it.
        whole: Subscriptions for which the table has to be copied again.
        progress: For each subscription whose rows move since when, and how many have.
    """

    slices: Mapping[Slice, frozenset[str]] = field(default_factory=dict)
    keys: Mapping[Key, frozenset[str]] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    progress: Mapping[str, MoveProgress] = field(default_factory=dict)

    def hidden(self) -> MoveState:
        """Return a state without values, from which the tables of all that moves are copied."""
        moving = (name for of in (*self.slices.values(), *self.keys.values()) for name in of)
        return MoveState(whole=self.whole.union(moving), progress=self.progress)


class StoredMoves:
    """Records of one table's moves.

    Args:
        table_oid: OID of the outer table.
        committed: State that Kafka has.
    """

    def __init__(self, table_oid: int, committed: MoveState) -> None:
        self._oid = table_oid
        self._committed = committed

    def pop_records(self, state: MoveState) -> list[MoveRecord]:
        """Return the records of what has changed since the last call; they are committed once."""
        before, self._committed = self._committed, state
        records = _changed(before.slices, state.slices, self._slice_record)
        records += _changed(before.keys, state.keys, self._key_record)
        if before.whole != state.whole:
            value = _encode([_texts(sorted(state.whole))]) if state.whole else None
            records.append((f"{self._oid}/w", value))
        for name in {**before.progress, **state.progress}:
            if (found := state.progress.get(name)) != before.progress.get(name):
                records.append(self._progress_record(name, found))
        return records

    def _slice_record(self, slice_: Slice, of: frozenset[str]) -> MoveRecord:
        found = [_texts(slice_.columns), slice_.value]
        name = f"{self._oid}/s{_digest(found)}"
        return name, _encode([*found, _texts(sorted(of))]) if of else None

    def _key_record(self, key: Key, of: frozenset[str]) -> MoveRecord:
        name = f"{self._oid}/k{_digest([key])}"
        return name, _encode([key, _texts(sorted(of))]) if of else None

    def _progress_record(self, subscription: str, found: MoveProgress | None) -> MoveRecord:
        name = f"{self._oid}/p{_digest([_texts([subscription])])}"
        return name, None if found is None else _encode([_texts([subscription, *map(str, found)])])


def _changed(
    before: Mapping[_Found, frozenset[str]],
    now: Mapping[_Found, frozenset[str]],
    record: Callable[[_Found, frozenset[str]], MoveRecord],
) -> list[MoveRecord]:
    return [
        record(found, now.get(found, frozenset()))
        for found in {**before, **now}
        if before.get(found) != now.get(found)
    ]


def read_back(table_oid: int, records: Mapping[str, bytes]) -> MoveState:
    """Return the state of a table's moves from committed records.

    Args:
        table_oid: OID of the outer table.
        records: Values by name; those of other tables are ignored.

    Raises:
        ProtocolError: a record does not read, whoever has written it: the table has to be copied
            again for all subscriptions whose filters have sub-selects.
    """
    slices: dict[Slice, frozenset[str]] = {}
    keys: dict[Key, frozenset[str]] = {}
    whole: frozenset[str] = frozenset()
    progress: dict[str, MoveProgress] = {}
    for name, data in records.items():
        oid, _, rest = name.partition("/")
        if oid != f"{table_oid}":
            continue
        try:
            match rest[:1], _decode(data):
                case "s", [columns, value, of]:
                    slices[Slice(_names(columns), tuple(value))] = frozenset(_names(of))
                case "k", [key, of]:
                    keys[tuple(map(_known, key))] = frozenset(_names(of))
                case "w", [of]:
                    whole = frozenset(_names(of))
                case "p", [of]:
                    subscription, since_ms, rows = _names(of)
                    progress[subscription] = _progress(int(since_ms), int(rows))
                case _:
                    raise ValueError("it is of no kind that is known")
        except (ValueError, ProtocolError) as error:
            raise ProtocolError(
                f"record {name} of moves does not read: {error}", tag=b"", offset=0
            ) from None
    return MoveState(slices, keys, whole, progress)


def _progress(since_ms: int, rows: int) -> MoveProgress:
    if not (0 <= since_ms < _END_MS and 0 <= rows < _MOST_ROWS):
        raise ValueError("a time or a number is out of range")
    return MoveProgress(since_ms, rows)


def _encode(lists: Iterable[Sequence[bytes | None]]) -> bytes:
    return varint(_FORMAT) + pack([pack(each) for each in lists])


def _decode(data: bytes) -> list[list[bytes | None]]:
    version, offset = read_varint(data, 0)
    if version != _FORMAT:
        raise ValueError(f"it has format {version}")
    return [unpack(_known(part)) for part in unpack(data[offset:])]


def _digest(lists: Iterable[Sequence[bytes | None]]) -> str:
    return blake2b(pack([pack(each) for each in lists]), digest_size=16).hexdigest()


def _texts(names: Iterable[str]) -> list[bytes]:
    return [name.encode() for name in names]


def _names(parts: Iterable[bytes | None]) -> tuple[str, ...]:
    return tuple(_known(part).decode() for part in parts)


def _known(part: bytes | None) -> bytes:
    if part is None:
        raise ValueError("a text is missing")
    return part
