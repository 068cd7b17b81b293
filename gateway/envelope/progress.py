"""What a gateway has committed, as records of the progress topic.

A record for the position, one for each copy, one for each table's topic, and one for each request
that waits; so that a commit writes no more than has changed. Avro bytes without the wire format's
prefix, by schemas/progress.avsc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, Literal, TypeAlias

import fastavro

from gateway.copy.progress import Progress
from gateway.envelope.datums import read_datum, write_datum
from gateway.envelope.naming import topic_part
from gateway.errors import ProtocolError
from gateway.lsn import Lsn
from gateway.records import CopyRequest, CopyState, LastCommit, Refusal, Watermark

__all__ = [
    "PROGRESS_FORMAT",
    "Position",
    "ProgressKey",
    "ProgressKind",
    "ProgressValue",
    "copy_name",
    "decode_key",
    "decode_value",
    "encode_copy_state",
    "encode_key",
    "encode_offsets",
    "encode_position",
    "encode_request",
]

PROGRESS_FORMAT: Final = 7
"""Version of the records' meaning that this gateway writes and understands."""


ProgressKind: TypeAlias = Literal["position", "copy", "offsets", "request"]


@dataclass(frozen=True, slots=True)
class ProgressKey:
    """What a record is about; `name` is empty for the position."""

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


ProgressValue: TypeAlias = Position | CopyState | tuple[int, ...] | CopyRequest
"""By the kind of the key; the tuple has the next offset of each partition."""


def copy_name(state: CopyState) -> str:
    """Return the name under which the state of a copy is kept."""
    return ".".join(map(topic_part, (state.subscription, state.schema, state.table)))


@lru_cache(4096)  # a commit writes those of all topics that it has written to
def encode_key(key: ProgressKey) -> bytes:
    """Encode a key."""
    return write_datum("progress-key", asdict(key))


def decode_key(data: bytes) -> ProgressKey:
    """Decode what `encode_key` makes."""
    return ProgressKey(**read_datum("progress-key", data))


def encode_position(watermark: Watermark) -> bytes:
    """Encode the position of a watermark."""
    return _value(
        position={
            "timeline": watermark.timeline,
            "end_lsn": watermark.end_lsn,
            "definitions": watermark.definitions,
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


def encode_offsets(partitions: Sequence[int]) -> bytes:
    """Encode the next offsets of a topic; the index is the partition."""
    return _value(offsets=list(partitions))


def encode_request(request: CopyRequest) -> bytes:
    """Encode a request; its name is the key's."""
    said = asdict(request)
    del said["name"]
    return _value(request=said)


def decode_value(data: bytes, name: str = "") -> ProgressValue:
    """Decode the value of any kind; `name` is the key's.

    Raises:
        ProtocolError: written by a gateway of another format.
    """
    found: Any = fastavro.schemaless_reader(BytesIO(data), "int", "int")  # in every format
    if found != PROGRESS_FORMAT:
        raise ProtocolError(
            f"the record in Kafka has format {found}, this gateway knows {PROGRESS_FORMAT};"
            " start the version of pgsluice that wrote it",
            tag=b"",
            offset=0,
        )
    datum = read_datum("progress", data)
    if (position := datum["position"]) is not None:
        return Position(
            position["timeline"],
            Lsn(position["end_lsn"]),
            position["definitions"],
            _last_commit(position["last"]),
            None if position["refusal"] is None else Refusal(**position["refusal"]),
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
    return tuple(datum["offsets"])


def _last_commit(datum: Any) -> LastCommit | None:
    if datum is None:
        return None
    return LastCommit(Lsn(datum["commit_lsn"]), datum["xid"], datum["commit_time"])


def _value(**fields: Any) -> bytes:
    return write_datum("progress", {"format": PROGRESS_FORMAT, **fields})
