"""Unsettled slices and keys of one table, committed with the batch.

In the progress topic they are one record for each table: a format, then three lists, each with its
length first. Names of subscriptions, then slices (columns, value, numbers of subscriptions), then
keys (key, numbers of subscriptions); texts and lists are packed as keys of sets are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.core.copy_progress import Key
from gateway.core.errors import ProtocolError
from gateway.subselects.formula import Value
from gateway.subselects.sets.entries import pack, read_varint, unpack, varint

__all__ = ["MoveState", "Slice", "decode_state", "encode_state"]

_FORMAT: Final = 1


class Slice(NamedTuple):
    """Rows of an outer table that have one value in some columns."""

    columns: tuple[str, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class MoveState:
    """What is unsettled, and for which subscriptions.

    Attributes:
        slices: Slices whose rows the subscriber may or may not have.
        keys: Keys of which the subscriber may lack the row, or values of it.
        whole: Subscriptions for which the table has to be copied again.
    """

    slices: Mapping[Slice, frozenset[str]] = field(default_factory=dict)
    keys: Mapping[Key, frozenset[str]] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()


def encode_state(state: MoveState) -> bytes:
    """Encode a state."""
    names = sorted(state.whole.union(*state.slices.values(), *state.keys.values()))
    numbers = {name: b"%d" % number for number, name in enumerate(names)}

    def subscriptions(found: Iterable[str]) -> bytes:
        return pack(sorted(numbers[name] for name in found))

    slices = [
        pack((pack(_encoded(s.columns)), pack(s.value), subscriptions(of)))
        for s, of in state.slices.items()
    ]
    keys = [pack((pack(key), subscriptions(of))) for key, of in state.keys.items()]
    lists = (_encoded(names), slices, keys, [subscriptions(state.whole)])
    return varint(_FORMAT) + pack([pack(each) for each in lists])


def decode_state(data: bytes) -> MoveState:
    """Decode what `encode_state` makes, whoever has written it.

    Raises:
        ProtocolError: it is something else, or of another format.
    """
    version, offset = read_varint(data, 0)
    if version != _FORMAT:
        raise ProtocolError(f"moves of format {version} are not known", tag=b"", offset=0)
    try:
        named, slices, keys, whole = (unpack(_text(part)) for part in unpack(data[offset:]))
        names = [_text(name).decode() for name in named]

        def subscriptions(packed: bytes | None) -> frozenset[str]:
            return frozenset(names[int(_text(number))] for number in unpack(_text(packed)))

        found: dict[Slice, frozenset[str]] = {}
        for each in slices:
            columns, value, of = unpack(_text(each))
            texts = tuple(_text(name).decode() for name in unpack(_text(columns)))
            found[Slice(texts, tuple(unpack(_text(value))))] = subscriptions(of)
        listed: dict[Key, frozenset[str]] = {}
        for each in keys:
            key, of = unpack(_text(each))
            listed[tuple(_text(part) for part in unpack(_text(key)))] = subscriptions(of)
        (all_of,) = whole
        return MoveState(found, listed, subscriptions(all_of))
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"moves do not read: {error}", tag=b"", offset=offset) from None


def _encoded(texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def _text(part: bytes | None) -> bytes:
    if part is None:
        raise ValueError("a text is missing")
    return part
