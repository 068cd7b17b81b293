"""Progress that a gateway has committed, as records of the progress topic.

There is a record for the position, one for each copy, one for each table's topic, one for each
pending request, and one for each part of the state of sub-selects, so that a commit writes no more
than has changed. Avro bytes without the wire format's prefix, by schemas/progress.avsc.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, Literal, TypeAlias, get_args

import fastavro

from gateway.core.copy_progress import Progress
from gateway.core.errors import HeldCause, ProtocolError
from gateway.core.lsn import Lsn
from gateway.core.watermark import (
    CopyRequest,
    CopyState,
    LastCommit,
    Refusal,
    StatePart,
    Watermark,
)
from gateway.definitions.sql.expression import refuse_nodes
from gateway.definitions.tables.remembered import description_fault
from gateway.envelope.datums import read_datum, write_datum
from schemas.topic_names import topic_part

__all__ = [
    "PROGRESS_FORMAT",
    "Position",
    "ProgressKey",
    "ProgressKind",
    "ProgressValue",
    "TopicOffsets",
    "checked_state",
    "copy_name",
    "decode_key",
    "decode_value",
    "encode_copy_state",
    "encode_key",
    "encode_offsets",
    "encode_part",
    "encode_position",
    "encode_request",
    "format_of",
]

_FIELDS: Final = {
    "position": "position",
    "copy": "copy",
    "offsets": "offsets",
    "request": "request",
    "set": "part",
    "moves": "part",
}
"""Field of the value by the kind of the key."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

PROGRESS_FORMAT: Final = 11
"""Version of the records' meaning that this gateway writes and understands."""


ProgressKind: TypeAlias = Literal["position", "copy", "offsets", "request", "set", "moves"]


@dataclass(frozen=True, slots=True)
class ProgressKey:
    """Key of a record: kind and name of its subject; `name` is empty for the position."""

    system_identifier: str
    database: str
    slot: str
    kind: ProgressKind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """A `Watermark` without the copies."""

    timeline: int
    end_lsn: Lsn
    definitions: str
    last: LastCommit | None = None
    refusal: Refusal | None = None
    schemas: str = ""


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """End of a topic.

    Attributes:
        next: Next offset of each partition; the index is the partition. Empty for markers.
        topic_id: Kafka's ID of it; empty where none is known.
    """

    next: tuple[int, ...]
    topic_id: str = ""


ProgressValue: TypeAlias = Position | CopyState | TopicOffsets | CopyRequest | StatePart
"""Classes of values by the kind of the key."""


def copy_name(state: CopyState) -> str:
    """Return the name under which the state of a copy is kept."""
    return ".".join(map(topic_part, (state.subscription, state.schema, state.table)))


@lru_cache(4096)  # a commit writes those of all topics that it has written to
def encode_key(key: ProgressKey) -> bytes:
    """Encode a key."""
    return write_datum("progress-key", asdict(key))


@lru_cache(4096)  # a topic has the same ones again and again
def decode_key(data: bytes) -> ProgressKey:
    """Decode what `encode_key` makes.

    Raises:
        ProtocolError: it is something else.
    """
    return ProgressKey(**read_datum("progress-key", data))


def encode_position(watermark: Watermark) -> bytes:
    """Encode the position of a watermark."""
    return _value(
        position={
            "timeline": watermark.timeline,
            "end_lsn": watermark.end_lsn,
            "definitions": watermark.definitions,
            "schemas": watermark.schemas,
            "last": None if watermark.last is None else asdict(watermark.last),
            "refusal": None if watermark.refusal is None else asdict(watermark.refusal),
        }
    )


def encode_copy_state(state: CopyState) -> bytes:
    """Encode the state of one copy."""
    copied, again = state.progress.copied, state.progress.again
    progress = {
        # Lists: in a union, fastavro takes a tuple for something else.
        "copied": None if copied is None else list(copied),
        "complete": state.progress.complete,
        "again": [list(key) for key in again],
        "rows": state.progress.rows,
    }
    return _value(copy={**asdict(state), "progress": progress})


def encode_offsets(offsets: TopicOffsets) -> bytes:
    """Encode where a topic ended."""
    return _value(offsets={"next": list(offsets.next), "topic_id": offsets.topic_id})


def encode_request(request: CopyRequest) -> bytes:
    """Encode a request; its name is the key's."""
    fields = asdict(request)
    del fields["name"]
    return _value(request=fields)


def encode_part(value: bytes) -> bytes:
    """Encode the value of a part of the state."""
    return _value(part=value)


def format_of(data: bytes) -> int:
    """Return the version of a value's meaning, which stands first in all of them.

    Raises:
        ProtocolError: it has none.
    """
    try:
        found = fastavro.schemaless_reader(BytesIO(data), "int", "int")
    except (EOFError, IndexError, ValueError, OverflowError) as error:
        raise ProtocolError(f"no format: {error}", tag=b"", offset=0) from None
    assert isinstance(found, int)
    return found


def decode_value(data: bytes, kind: ProgressKind, name: str = "") -> ProgressValue:
    """Decode the value of a key of `kind`; `name` is the key's.

    Whoever may write to the topic can have written it: whatever is in it is as a gateway writes it,
    or it is refused.

    Raises:
        ProtocolError: of another format, of another kind, or not as a gateway writes it.
    """
    found = format_of(data)
    if found != PROGRESS_FORMAT:
        raise ProtocolError(
            f"the record has format {found}, this gateway knows {PROGRESS_FORMAT}",
            tag=b"",
            offset=0,
        )
    datum = read_datum("progress", data)
    given = [name for name in dict.fromkeys(_FIELDS.values()) if datum[name] is not None]
    if given != [_FIELDS[kind]]:
        raise ProtocolError(f"it is not that of a {kind}", tag=b"", offset=0)
    if kind in ("set", "moves"):
        return StatePart(kind, name, datum["part"])
    value = _value_of(datum, name)
    why = _fault(value, name)
    if why is not None:
        raise ProtocolError(why, tag=b"", offset=0)
    return value


def _fault(value: ProgressValue, name: str) -> str | None:
    """Return why no gateway has written it."""
    match value:
        case Position():
            if value.end_lsn < 0 or value.timeline < 0:
                return "a position below zero"
        case CopyState():
            if copy_name(value) != name:
                return "it is of another table than its key"
            if not 0 <= value.oid < 1 << 32:
                return f"{value.oid} is no OID"
            if value.cause not in get_args(HeldCause):
                return "it is held for what holds no table"
        case CopyRequest():
            if value.table is None and value.where:
                return "a condition without a table"
            if (value.table is None) != (value.schema is None):
                return "a table without a schema"
            # Its condition is refused by name when it is looked at: somebody waits for it.
        case TopicOffsets():
            if any(offset < 0 for offset in value.next):
                return "an offset below zero"
    return None


def checked_state(state: CopyState) -> tuple[CopyState, str | None]:
    """Return a state without texts that no gateway has written, and what is wrong with one.

    A condition that may not be followed lets the whole table be copied; how a table was published
    counts only for rows of tables that are gone.
    """
    if state.topic and not _TOPIC.fullmatch(state.topic):
        return replace(state, topic=""), "its topic can be none"
    if state.taken and (why := description_fault(state.taken)) is not None:
        return replace(state, taken=""), f"how it was published: {why}"
    if state.asked and (why := refuse_nodes(state.asked)) is not None:
        return replace(state, asked="", progress=Progress()), f"its condition: {why}"
    return state, None


def _value_of(datum: dict[str, Any], name: str) -> ProgressValue:
    if (position := datum["position"]) is not None:
        return Position(
            position["timeline"],
            Lsn(position["end_lsn"]),
            position["definitions"],
            _last_commit(position["last"]),
            None if position["refusal"] is None else Refusal(**position["refusal"]),
            position["schemas"],
        )
    if (copy := datum["copy"]) is not None:
        point, progress = copy["consistent_point"], copy["progress"]
        copied = progress["copied"]
        return CopyState(
            **{
                **copy,
                "consistent_point": None if point is None else Lsn(point),
                "progress": Progress(
                    None if copied is None else tuple(copied),
                    progress["complete"],
                    tuple(map(tuple, progress["again"])),
                    progress["rows"],
                ),
            }
        )
    if (request := datum["request"]) is not None:
        return CopyRequest(name, **request)
    return TopicOffsets(tuple(datum["offsets"]["next"]), datum["offsets"]["topic_id"])


def _last_commit(datum: Any) -> LastCommit | None:
    if datum is None:
        return None
    return LastCommit(Lsn(datum["commit_lsn"]), datum["xid"], datum["commit_time"])


def _value(**fields: Any) -> bytes:
    return write_datum("progress", {"format": PROGRESS_FORMAT, **fields})
