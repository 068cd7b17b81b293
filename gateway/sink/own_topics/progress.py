"""Progress topic: committed state, written in each Kafka transaction and read back at start.

It is a compacted topic of one partition. Its keys contain the slot's identity, so many gateways can
share it. Keys and values are schemas/progress-key.avsc and schemas/progress.avsc in Confluent's
wire format; reading uses these files and never asks the registry.

Anybody may have written to the topic: a record that no gateway has written is skipped and logged.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.core.errors import FatalError, ProtocolError
from gateway.core.records import Record
from gateway.core.watermark import (
    CopyRequest,
    CopyState,
    StatePart,
    StatePartKind,
    Watermark,
    restarted,
)
from gateway.envelope.progress import (
    PROGRESS_FORMAT,
    Position,
    ProgressKey,
    ProgressKind,
    ProgressValue,
    TopicOffsets,
    checked_state,
    copy_name,
    decode_key,
    decode_value,
    encode_copy_state,
    encode_key,
    encode_offsets,
    encode_part,
    encode_position,
    encode_request,
    format_of,
)
from gateway.observe import event
from gateway.routing.ports import SchemaIds
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.delivery.record_limits import record_bytes
from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.reading.decoding import unframed
from schemas import load

__all__ = ["KafkaProgress", "read_progress", "read_slots", "read_systems"]

_READ_S: Final = 30.0
"""Seconds after which readers of the whole topic give up."""
_PARTS: Final = frozenset({"set", "moves"})
_ROOM: Final = 4096
"""Overhead of a record besides its value, in bytes."""
_LOG: Final = logging.getLogger(__name__)


class KafkaProgress:
    """`gateway.sink.delivery.committed_state.ProgressStore` in one topic.

    Args:
        kafka: librdkafka properties of the user.
        identity: Identity of the slot.
        schema_ids: Registry for the schemas ``<topic>-key`` and ``<topic>-value``.

    Raises:
        SchemaRefusedError: the registry refuses the schemas.
        TransientError: the registry cannot be reached.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        identity: SlotIdentity,
        schema_ids: SchemaIds,
        *,
        topic: str = "pgsluice.progress",
    ) -> None:
        self._kafka = kafka
        self._identity = identity
        self._topic = topic
        self._key_id = schema_ids.register(f"{topic}-key", load("progress-key"))
        self._value_id = schema_ids.register(f"{topic}-value", load("progress"))
        self._copies: tuple[CopyState, ...] = ()
        self._most_bytes = record_bytes(kafka) - _ROOM
        self._oversized: set[str] = set()

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    def encode(
        self,
        watermark: Watermark,
        done_requests: Iterable[CopyRequest] = (),
        parts: Iterable[StatePart] = (),
    ) -> list[Record]:
        """Return the records of `watermark`: its position, and the copies that have changed.

        `done_requests` are removed, `parts` are put in the place of what they were.
        """
        records: list[Record] = []
        if watermark.copies is not self._copies:
            known, now = _by_table(self._copies), _by_table(watermark.copies)
            for table, state in now.items():
                before = known.pop(table, None)
                # Of many tables that are copied, few have changed since the last commit.
                if before is not state and before != state:
                    name = copy_name(state)
                    records.append(self._record("copy", name, self._fitting(name, state)))
            records += [self._record("copy", copy_name(state), None) for state in known.values()]
            self._copies = watermark.copies
        records += [self._record("request", request.name, None) for request in done_requests]
        records += [
            self._record(kind, name, None if value is None else encode_part(value))
            for kind, name, value in parts
        ]
        records.append(self._record("position", "", encode_position(watermark)))
        return records

    def _fitting(self, name: str, state: CopyState) -> bytes:
        """Encode a state, without the table's description if the record would be too large.

        The result is then the state of a table that is to be copied from the start, as it has to be
        if a start comes before the state fits again.
        """
        value = encode_copy_state(state)
        if len(value) <= self._most_bytes:
            return value
        if name not in self._oversized:
            self._oversized.add(name)
            event(
                _LOG,
                logging.WARNING,
                "copy progress does not fit into a record; the copy starts over if the gateway "
                "restarts before the table is ready",
                subscription=state.subscription,
                relation=f"{state.schema}.{state.table}",
                bytes=len(value),
                keys=len(state.progress.again),
            )
        return encode_copy_state(restarted(state))

    def encode_request(self, request: CopyRequest) -> Record:
        """Return the record of a request to the gateway of this slot."""
        return self._record("request", request.name, encode_request(request))

    def encode_forgotten(self, topics: Iterable[str]) -> list[Record]:
        """Return the records that remove the next offsets of some topics."""
        return [self._record("offsets", topic, None) for topic in topics]

    def encode_offsets(
        self, offsets: Mapping[str, tuple[int, ...]], topic_ids: Mapping[str, str]
    ) -> list[Record]:
        """Return the records of the next offsets of some topics, with the topics' IDs."""
        return [
            self._record(
                "offsets", topic, encode_offsets(TopicOffsets(next_, topic_ids.get(topic, "")))
            )
            for topic, next_ in offsets.items()
        ]

    def read(self, timeout_s: float) -> CommittedState:
        """Return the last committed state of this slot.

        Raises:
            TransientError: Kafka did not return it within `timeout_s`.
            FatalError: a record of a format this gateway does not know, or none at all.
        """
        recovered = read_progress(self._kafka, self._topic, self._identity, timeout_s)
        self._copies = () if recovered.watermark is None else recovered.watermark.copies
        return recovered

    def _record(self, kind: ProgressKind, name: str, value: bytes | None) -> Record:
        key = encode_key(ProgressKey(*self._identity.key, kind, name))
        return (
            self._topic,
            0,
            _framed(self._key_id, key),
            None if value is None else _framed(self._value_id, value),
            [],
        )


def read_progress(
    kafka: Mapping[str, str | int | bool],
    topic: str,
    identity: SlotIdentity,
    timeout_s: float = _READ_S,
    *,
    settled: bool = True,
    succeeding: bool = False,
) -> CommittedState:
    """Return the last committed state of a slot; see `KafkaProgress.read` for errors.

    Args:
        kafka: librdkafka properties of the user.
        topic: Name of the progress topic.
        identity: Identity of the slot.
        timeout_s: Timeout in seconds.
        settled: Whether to wait for open Kafka transactions. Otherwise the result may be an older
            position, without waiting.
        succeeding: Whether a Kafka transaction of this slot's that stays open is passed over. A
            gateway that was killed leaves it until another one has the slot; nothing of this slot
            is behind it.
    """
    found: dict[ProgressKey, list[bytes]] = {}
    unreadable: list[str] = []

    def is_own(data: bytes) -> bool:
        key = _key(data, [])
        return key is not None and _slot_of(key) == identity.key

    own = is_own if succeeding else None
    for data, value in read_compacted(kafka, topic, timeout_s, settled=settled, is_own=own):
        key = _key(data, unreadable)
        if key is None or _slot_of(key) != identity.key:
            continue
        if value is None:
            found.pop(key, None)
        else:
            _note(found, key, value)
    return _read_back(found, topic, unreadable)


def _note(found: dict[ProgressKey, list[bytes]], key: ProgressKey, value: bytes) -> None:
    """Note a version of a record; of sets and moves only the last one counts."""
    if key.kind in _PARTS:
        found[key] = [value]
    else:
        found.setdefault(key, []).append(value)


def _slot_of(key: ProgressKey) -> tuple[str, str, str]:
    return key.system_identifier, key.database, key.slot


def _key(data: bytes, unreadable: list[str]) -> ProgressKey | None:
    try:
        return decode_key(unframed(data)[1])
    except ProtocolError as error:
        unreadable.append(f"a key: {error.reason}")
        return None


def _last_readable(
    key: ProgressKey, written: Sequence[bytes], topic: str, unreadable: list[str]
) -> ProgressValue | None:
    """Return the last value of a key that a gateway has written.

    A record of an unknown format is not skipped: continuing from an older position would publish
    the changes after it again.

    Raises:
        FatalError: another version has written the position.
    """
    for data in reversed(written):
        try:
            _, avro = unframed(data)
            if key.kind == "position" and format_of(avro) != PROGRESS_FORMAT:
                raise FatalError(
                    f"topic {topic}: the position has format {format_of(avro)}, this gateway knows "
                    f"{PROGRESS_FORMAT}",
                    hint="run the version of pgsluice that wrote it; if none did, another program "
                    "writes to this topic: revoke its access, then `pgsluice slot drop` and "
                    "`pgsluice run` copy all tables again",
                )
            value = decode_value(avro, key.kind, key.name)
        except ProtocolError as error:
            unreadable.append(f"{key.kind} {key.name}: {error.reason}")
            continue
        if isinstance(value, CopyState):
            value, why = checked_state(value)
            if why is not None:
                unreadable.append(f"{key.kind} {key.name}: {why}")
        return value
    # What was unsettled is not known then, which is not the same as nothing.
    return StatePart(key.kind, key.name, b"") if key.kind == "moves" else None


def read_slots(
    kafka: Mapping[str, str | int | bool], topic: str, slot: str, timeout_s: float = _READ_S
) -> list[CommittedState]:
    """Return the last committed state for each server and database with a slot of this name.

    For callers that cannot query the server's identity. Raises as `read_progress`.
    """
    found: dict[tuple[str, str], dict[ProgressKey, list[bytes]]] = {}
    unreadable: list[str] = []
    for data, value in read_compacted(kafka, topic, timeout_s, settled=False):
        key = _key(data, unreadable)
        if key is None or key.slot != slot:
            continue
        of_server = found.setdefault((key.system_identifier, key.database), {})
        if value is None:
            of_server.pop(key, None)
        else:
            _note(of_server, key, value)
    return [_read_back(records, topic, unreadable) for records in found.values() if records]


def _read_back(
    found: Mapping[ProgressKey, Sequence[bytes]], topic: str, unreadable: list[str]
) -> CommittedState:
    values = []
    for key, written in found.items():
        value = _last_readable(key, written, topic, unreadable)
        if value is not None:
            values.append((key, value))
    return replace(_recovered(values), unreadable=tuple(unreadable))


def _recovered(records: Iterable[tuple[ProgressKey, ProgressValue]]) -> CommittedState:
    position: Position | None = None
    copies: list[CopyState] = []
    requests: list[CopyRequest] = []
    offsets: dict[str, tuple[int, ...]] = {}
    topic_ids: dict[str, str] = {}
    parts: dict[StatePartKind, dict[str, bytes]] = {}
    for key, value in records:
        match value:
            case Position():
                position = value
            case CopyState():
                copies.append(value)
            case CopyRequest():
                requests.append(value)
            case TopicOffsets():
                if value.next:
                    offsets[key.name] = value.next
                if value.topic_id:
                    topic_ids[key.name] = value.topic_id
            case StatePart(kind, name, bytes() as data):
                parts.setdefault(kind, {})[name] = data
    if position is None:
        return CommittedState(None, offsets, tuple(requests), topic_ids=topic_ids, parts=parts)
    watermark = Watermark(
        position.end_lsn,
        position.timeline,
        position.definitions,
        tuple(copies),
        position.last,
        position.refusal,
        position.schemas,
    )
    return CommittedState(watermark, offsets, tuple(requests), topic_ids=topic_ids, parts=parts)


def read_systems(
    kafka: Mapping[str, str | int | bool],
    topic: str,
    identity: SlotIdentity,
    definitions: str,
    timeout_s: float = _READ_S,
) -> list[str]:
    """Return system identifiers of other servers whose slot of the same name was read.

    Args:
        kafka: librdkafka properties of the user.
        topic: Name of the progress topic.
        identity: Identity of the slot; only slots of the same database and name count.
        definitions: Fingerprint; slots with other definitions do not count: they are other gateways
            that share the topic.
        timeout_s: Timeout in seconds.

    Raises:
        TransientError, FatalError: as `KafkaProgress.read`.
    """
    found: dict[str, Position] = {}
    for data, value in read_compacted(kafka, topic, timeout_s, settled=False):
        key = _key(data, [])
        if key is None or key.kind != "position" or not value:
            continue
        if (key.database, key.slot) == identity.key[1:]:
            with contextlib.suppress(ProtocolError):
                position = decode_value(unframed(value)[1], "position")
                assert isinstance(position, Position)
                found[key.system_identifier] = position
    return [
        system
        for system, position in found.items()
        if system != identity.system_identifier
        and position.end_lsn > 0
        and position.definitions == definitions
    ]


def _by_table(states: Iterable[CopyState]) -> dict[tuple[str, str, str], CopyState]:
    return {(state.subscription, state.schema, state.table): state for state in states}


def _framed(schema_id: int, avro: bytes) -> bytes:
    """Return a datum in Confluent's wire format: a zero byte, the schema's id, the Avro bytes."""
    return b"\0" + schema_id.to_bytes(4, "big") + avro
