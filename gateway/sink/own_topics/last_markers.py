"""Search for the last markers of topics, from the end of each backwards.

Anything may stand after the last marker. Windows of offsets are read, as a rule each four times as
large as the one after it, until one has a marker that is no CLAIM. A record that cannot be a marker
by its first bytes costs a few microseconds, and nothing of it is kept; of a window, only the last
ones that can be are kept and read, newest first. If none of these is a marker, the search continues
before them. Memory is thus bounded, and time by a deadline that all topics share. They take turns:
records of one topic that take long to be read must not make others late.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from gateway.core.errors import FatalError, GatewayError, ProtocolError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.records import Writer
from gateway.observe import event
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.reading.decoding import (
    WIRE_BYTES,
    LackingSchemaError,
    RegisteredSchemas,
    decode_as,
)
from gateway.sink.topics.log_bounds import LogBounds

__all__ = ["MOST_VALUES", "NamedOwners", "TopicTail", "search"]

MOST_VALUES: Final = 250_000
"""Maximum number of values of a marker, which bounds the time that one record takes. A PROGRESS has
seven for each partition that its Kafka transaction has written to."""
_LOG: Final = logging.getLogger(__name__)
_Record: TypeAlias = tuple[int, bytes]
"""Offset and value."""
_POLL_S: Final = 0.2
_AT_ONCE: Final = 5_000
_TURN_S: Final = 1.0
_LAST_TURN_S: Final = 0.2
"""Seconds for a topic whose turn comes at the deadline or after it, because of others."""
_FIRST_WINDOW: Final = 64
"""Number of offsets before the end that are read first; control records have offsets, too."""
_FARTHER: Final = 4
_KEPT_RECORDS: Final = 65_536
_KEPT_BYTES: Final = 16 << 20
_CLAIM_BYTES: Final = 4 << 20
"""Maximum size of the CLAIMs after the last other marker; one has about 100 bytes."""
_MOST_NAMED: Final = 20
"""Maximum number of warnings about unreadable markers per topic: there may be any number."""


@dataclass(frozen=True, slots=True)
class NamedOwners:
    """Owners named in a marker.

    Attributes:
        is_claim: Whether the marker is a CLAIM.
        writer: Writer; None if the marker does not name one.
        taken_from: Previous owner named in a CLAIM.
        reached: Position of a PROGRESS; 0 for other markers.
        timeline: Timeline that has this position; 0 if the marker does not name it.
    """

    is_claim: bool
    writer: Writer | None
    taken_from: Writer | None = None
    reached: Lsn = ZERO_LSN
    timeline: int = 0


class TopicTail:
    """End of a topic of markers, as far as it has been searched.

    Args:
        topic: Name of the topic.
        bounds: Bounds of its only partition.
        registered: Decoder of its records.

    Attributes:
        window: Offsets that are to be read next, or were read last.
        markers: The last marker that is no CLAIM, if there is one, and the CLAIMs after it, in the
            order of the topic. The first one's position may be that of a PROGRESS shortly before.
        has_records: Whether any record was found.
        lacks_schema: Whether the registry lacks the schema of a record that cannot be read and may
            be a marker after `markers`: it lacks that of the last of them, too, or there is none.
        is_overfull: Whether there are more CLAIMs than are kept.
        has_answered: Whether Kafka has answered with a record or with the end.
        failure: Kafka's error that has ended the search, and may pass.
    """

    def __init__(self, topic: str, bounds: LogBounds, registered: RegisteredSchemas) -> None:
        self._topic = topic
        self._start = bounds.start
        self._registered = registered
        self.window = LogBounds(max(bounds.start, bounds.end - _FIRST_WINDOW), bounds.end)
        self.markers: list[NamedOwners] = []
        self.has_records = self.lacks_schema = self.is_overfull = self.has_answered = False
        self.failure: GatewayError | None = None
        self._kept: deque[_Record] = deque()
        self._kept_bytes = self._records = 0
        self._has_dropped = False
        self._is_settled = False
        self._oldest = bounds.end
        self._claims: list[NamedOwners] = []
        self._last: NamedOwners | None = None
        self._before_last = 0
        self._claim_bytes = 0
        self._unreadable = 0

    def receive(self, message: Message) -> bool:
        """Keep a record if it may be a marker; return whether the window ends with it."""
        offset = message.offset() or 0
        self.has_answered = True
        if offset < self.window.end:
            self.has_records = True
            value = message.value()
            if isinstance(value, bytes) and len(value) > WIRE_BYTES and value[0] == 0:
                self._keep(offset, value)
            elif self._unreadable < _MOST_NAMED:
                self._warn(offset, "not in Confluent's wire format")
        return offset >= self.window.end - 1

    @property
    def unread_bytes(self) -> int:
        """Size of the records that were kept and are not read yet."""
        return self._kept_bytes

    def end_window(self, deadline: float) -> bool:
        """Read the records that were kept, newest first; return whether the search is over.

        At least one is read. If the search is not over, `unread_bytes` is not 0 after the deadline,
        and this is to be called again; or else `window` is the next one, unless `is_overfull` is
        set.
        """
        while self._kept:
            if self._read_newest():
                self._drop_all()
                return True
            if self._kept and time.monotonic() >= deadline:
                return False
        if self._last is not None:
            self._end_with(self._last)
            return True
        self.markers = [*reversed(self._claims), *self.markers]
        self._claims = []
        self.is_overfull = self._claim_bytes > _CLAIM_BYTES
        end = self._oldest if self._has_dropped else self.window.start
        size = self.window.end - end
        if _FARTHER * self._records <= _KEPT_RECORDS:  # or more would be dropped
            size *= _FARTHER
        self._drop_all()
        if end <= self._start:
            return not self.is_overfull
        self.window = LogBounds(max(self._start, end - size), end)
        return False

    def _read_newest(self) -> bool:
        """Read the newest record that is kept; return whether the search is over."""
        self._oldest, value = self._kept.pop()
        self._kept_bytes -= len(value)
        marker = self._named_owners(self._oldest, value)
        if self._last is not None:
            self._before_last += 1
            if marker is not None and marker.reached:
                last, reached, timeline = self._last, marker.reached, marker.timeline
                self._end_with(replace(last, reached=reached, timeline=timeline))
                return True
            if self._before_last < _FIRST_WINDOW:
                return False
            self._end_with(self._last)
            return True
        if marker is None:
            return False
        if marker.is_claim:
            self._claim_bytes += len(value)
            self._claims.append(marker)
            return False
        if not marker.reached:
            self._last = marker  # the position is that of a PROGRESS among a few records before
            return False
        self._end_with(marker)
        return True

    def _end_with(self, marker: NamedOwners) -> None:
        self.markers = [marker, *reversed(self._claims), *self.markers]

    def _keep(self, offset: int, value: bytes) -> None:
        self._kept.append((offset, value))
        self._records += 1
        self._kept_bytes += len(value)
        while len(self._kept) > _KEPT_RECORDS or (
            self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1
        ):
            self._kept_bytes -= len(self._kept.popleft()[1])
            self._records -= 1
            self._has_dropped = True

    def _drop_all(self) -> None:
        self._kept = deque()
        self._kept_bytes = self._records = 0
        self._has_dropped = False

    def _named_owners(self, offset: int, value: bytes) -> NamedOwners | None:
        """Return the owners named in a marker; None if it cannot be read and is skipped."""
        try:
            names = _names_in(self._registered.decode(value, "transaction"))
            self._settle(value, is_lacking=False)
            return names
        except ProtocolError as error:
            # Whoever wrote it owns the topics, whatever answers in the registry's place. A gateway
            # of another version may have another schema.
            is_lacking = isinstance(error, LackingSchemaError)
            if not self._registered.has_schema(value, "transaction"):
                with contextlib.suppress(ProtocolError):
                    names = _names_in(decode_as(value, "transaction", most_values=MOST_VALUES))
                    self._settle(value, is_lacking=is_lacking)
                    return names
            self.lacks_schema |= is_lacking and not self._is_settled
            if self._unreadable < _MOST_NAMED:
                self._warn(offset, error.reason)
            return None

    def _settle(self, value: bytes, *, is_lacking: bool) -> None:
        """Decide, at the newest marker that can be read, whether newer records may be markers.

        A registry that has the schema of this one has lost none, so that they are somebody else's.
        `is_lacking`: whether it has not returned that schema, or was not asked for it.
        """
        if not self._is_settled:
            self._is_settled = True
            self.lacks_schema = (
                self.lacks_schema and is_lacking and self._registered.lacks_schema(value)
            )

    def _warn(self, offset: int, reason: str) -> None:
        self._unreadable += 1
        event(
            _LOG,
            logging.WARNING,
            "marker cannot be read, skipped",
            topic=self._topic,
            offset=offset,
            error=reason,
        )


def search(
    consumer: Consumer, tails: Mapping[str, TopicTail], deadline: float
) -> tuple[dict[str, FatalError], set[str]]:
    """Search all topics at once.

    Args:
        consumer: Consumer of committed records that reports the ends of partitions.
        tails: Tails by topic.
        deadline: Time, in monotonic seconds, after which to give up.

    Returns:
        The errors of topics that may not be read, by name, and the topics in which the last marker
        was not found by the deadline.

    Raises:
        TransientError: Kafka reports an error that is of no topic.
        FatalError: it refuses access to more than a topic.
    """
    errors: dict[str, FatalError] = {}
    late: set[str] = set()
    left = dict(tails)
    while left:
        windows = {topic: tail for topic, tail in left.items() if not tail.unread_bytes}
        denied, unread = _read_windows(consumer, windows, deadline) if windows else ({}, set[str]())
        errors |= denied
        late |= unread
        found: set[str] = set()
        for topic in sorted(
            left.keys() - denied.keys() - unread, key=lambda topic: left[topic].unread_bytes
        ):
            now = time.monotonic()
            turn = max(min(now + _TURN_S, deadline), now + _LAST_TURN_S)
            if left[topic].end_window(turn):
                found.add(topic)
            elif left[topic].is_overfull or time.monotonic() >= deadline:
                late.add(topic)
        left = {topic: left[topic] for topic in left.keys() - denied.keys() - late - found}
    return errors, late


def _read_windows(
    consumer: Consumer, tails: Mapping[str, TopicTail], deadline: float
) -> tuple[dict[str, FatalError], set[str]]:
    """Read the window of each topic; return errors, and the topics that were not read to its end.

    An error of one topic that may pass must not hold up the others: it counts as late, and its tail
    has the `failure`.

    A topic that has been read is assigned no longer once it has more: somebody may write without
    an end.
    """
    consumer.assign([TopicPartition(topic, 0, tail.window.start) for topic, tail in tails.items()])
    left, late, unassigned = set(tails), set[str](), set[str]()
    denied: dict[str, FatalError] = {}
    while left and (rest := deadline - time.monotonic()) > 0:
        first = consumer.poll(min(_POLL_S, rest))
        if first is None:
            continue
        needless: set[str] = set()
        # A call for each record would take most of the time.
        for message in (first, *consumer.consume(_AT_ONCE, 0)):
            topic, error = message.topic() or "", message.error()
            if topic in tails and topic not in left:
                needless.add(topic)
            elif error is None:
                if topic in left and tails[topic].receive(message):
                    left.discard(topic)
            elif error.code() == KafkaError._PARTITION_EOF:
                if topic in left:
                    tails[topic].has_answered = True
                left.discard(topic)
            elif error.code() != KafkaError._ALL_BROKERS_DOWN:
                failure = classify_kafka_error(
                    error, doing=f"reading the last markers of topic {topic}"
                )
                if topic not in left:
                    raise failure
                left.discard(topic)
                if isinstance(failure, FatalError):
                    denied[topic] = failure
                    continue
                late.add(topic)
                tails[topic].failure = failure
                if error.code() == KafkaError._AUTO_OFFSET_RESET:  # records were deleted meanwhile
                    tails[topic].has_answered = True
        if left and (needless := needless - unassigned):
            consumer.incremental_unassign([TopicPartition(topic, 0) for topic in needless])
            unassigned |= needless
    return denied, late | left


def _names_in(datum: Mapping[str, Any]) -> NamedOwners:
    return NamedOwners(
        datum["kind"] == "CLAIM",
        _writer(datum["writer"]),
        _writer(datum["taken_from"]),
        Lsn(datum["end_lsn"]) if datum["kind"] == "PROGRESS" else ZERO_LSN,
        datum["timeline"] or 0,
    )


def _writer(datum: Mapping[str, Any] | None) -> Writer | None:
    return None if datum is None else Writer(**datum)
