"""Records of a subscription's topics in commit order, as its markers delimit it.

The last record of each Kafka transaction in the marker topic is a PROGRESS, which names what was
written to each partition. Source transactions are whole between two of them, so records need only
be put in order within one Kafka transaction, by (`commit_lsn`, `seq`) and the ``t`` before them: no
memory is needed for more. Within a partition the order is Kafka's, whatever the headers of its
records say.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn, header_lsn
from gateway.observe import event
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.properties import connect_first, consumer_properties, make_client
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.reading.topic_reader import Followed, decoded
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import LogBounds, read_bounds, read_partition_bounds

__all__ = ["Since", "follow", "in_order"]

_LOG: Final = logging.getLogger(__name__)
_ANSWER_S: Final = 15.0
_POLL_S: Final = 0.2
_LATE_S: Final = 10.0
"""Seconds after which records that a marker names are no longer awaited at the end of a topic. A
broker ends a Kafka transaction in one partition a little later than in another."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_MOST_AHEAD: Final = 1000
"""Records of a partition that are held in memory before a marker names them."""

_Partition = tuple[str, int]
_Place = tuple[bytes, int, int]
"""Sort key of a record: commit_lsn, seq, number of ``t`` at these in its partition."""


@dataclass(frozen=True, slots=True)
class Since:
    """Lower bound: transactions that commit at or after an LSN, or a time.

    Attributes:
        lsn: LSN; None if `time` is the bound.
        time: Commit time; of rows of copies the time of publication.
    """

    lsn: Lsn | None = None
    time: datetime | None = None

    def excludes(self, record: Followed) -> bool:
        """Whether a record is of an earlier transaction."""
        if self.lsn is not None:
            return record.headers.get("commit_lsn", "") < header_lsn(self.lsn).decode()
        return self.time is not None and record.time < self.time


@dataclass(slots=True)
class _Cut:
    """A Kafka transaction, or what is known of one that has not ended.

    Attributes:
        ranges: First offset and the offset after the last record, by partition.
        times: Commit times of its transactions, by header `commit_lsn`.
        end_lsn: LSN until which everything has been published.
        published: Time of its last marker.
    """

    ranges: dict[_Partition, tuple[int, int]] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    end_lsn: int = 0
    published: datetime = _NEVER

    def is_before(self, since: Since) -> bool:
        """Whether all its records are to be left out."""
        if since.lsn is not None:
            return self.end_lsn <= since.lsn
        return since.time is not None and max((self.published, *self.times.values())) < since.time


def follow(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    topics: Sequence[str],
    markers: str | None,
    *,
    from_beginning: bool,
    since: Since | None,
    to_end: bool,
    begun: Callable[[], object] = lambda: None,
) -> Generator[Followed]:
    """Yield the committed records of `topics` in commit order.

    Args:
        kafka: librdkafka properties of the user.
        registry: Registry with the schemas.
        topics: Existing topics of one subscription.
        markers: Its marker topic; None if there is none, and `to_end`.
        from_beginning: Whether to include existing records.
        since: Lower bound of the existing records to include, instead.
        to_end: Whether to stop at the current end; otherwise never. Records that no marker names
            come last.
        begun: Called when everything that is committed from now on will be yielded.

    Raises:
        TransientError: Kafka or the registry cannot be reached.
        FatalError: not authorised.
    """
    # One per topic: a topic that names too many schemas must not keep others from being read.
    schemas = {topic: RegisteredSchemas(registry) for topic in topics}
    partitions = _Partitions(kafka, topics, follows=not to_end)
    cuts = _Cuts(kafka, registry, markers, from_end=not from_beginning and since is None)
    since = since or Since()
    try:
        begun()
        if from_beginning:
            partitions.begin_all()
        waiting = True
        for cut in cuts.read(to_end=to_end):
            if isinstance(cut, Followed):
                yield cut
                continue
            if waiting and not from_beginning and cut.is_before(since):
                continue
            waiting = False
            for message in partitions.read(cut.ranges):
                record = decoded(message, schemas[message.topic() or ""], cut.times)
                if not since.excludes(record):
                    yield record
        if to_end:
            for message in partitions.rest():
                record = decoded(message, schemas[message.topic() or ""])
                if not since.excludes(record):
                    yield record
    except KafkaException as raised:
        raise classify_kafka_error(raised.args[0], doing="reading topics") from None
    finally:
        cuts.close()
        partitions.close()


class _Cuts:
    """Reader of the marker topic."""

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        registry: Registry,
        topic: str | None,
        *,
        from_end: bool,
    ) -> None:
        self._topic = topic
        self._schemas = RegisteredSchemas(registry)
        self._consumer = make_client(Consumer, consumer_properties(kafka, follows=True))
        begin = OFFSET_BEGINNING
        if topic is not None:
            connect_first(self._consumer, topic)
        if topic is not None and from_end:
            begin = read_partition_bounds(self._consumer, topic, timeout_s=_ANSWER_S).end
        if topic is not None:
            self._consumer.assign([TopicPartition(topic, 0, begin)])

    def close(self) -> None:
        self._consumer.close()

    def read(self, *, to_end: bool) -> Iterator[_Cut | Followed]:
        """Yield Kafka transactions, and markers that cannot be read."""
        cut = _Cut()
        while self._topic is not None:
            message = _polled(self._consumer)
            if message is None:
                continue
            if message.error() is not None:
                if to_end:
                    return
                continue
            try:
                marker = self._schemas.decode(message.value(), "transaction")
            except ProtocolError:
                yield decoded(message, self._schemas)  # logs why
                continue
            if marker["kind"] == "END" and marker["commit_lsn"] is not None:
                time_ = _time(marker["commit_time"])
                if time_ is not None:
                    cut.times[_header(marker["commit_lsn"])] = time_
            elif marker["kind"] == "PROGRESS":
                cut.end_lsn = marker["end_lsn"]
                cut.published = decoded(message, self._schemas).time
                for span in marker["offsets"]:
                    place = (span["topic"], span["partition"])
                    cut.ranges[place] = (span["first_offset"], span["next_offset"])
                yield cut
                cut = _Cut()


class _Partitions:
    """Reader of the topics' partitions, each from where it begins."""

    def __init__(
        self, kafka: Mapping[str, str | int | bool], topics: Sequence[str], *, follows: bool
    ) -> None:
        self._kafka = kafka
        self._consumer = make_client(Consumer, consumer_properties(kafka, follows=follows))
        self._topics = topics
        self._messages: dict[_Partition, deque[Message]] = {}
        self._reached: dict[_Partition, int] = {}
        self._ended: set[_Partition] = set()
        self._paused: set[_Partition] = set()

    def close(self) -> None:
        self._consumer.close()

    def begin_all(self) -> None:
        """Begin with the oldest record of every partition."""
        places = []
        for topic in self._topics:
            described = self._consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
            places += [(topic, number) for number in described.partitions]
        self._begin(dict.fromkeys(places, OFFSET_BEGINNING))

    def read(self, ranges: Mapping[_Partition, tuple[int, int]]) -> Iterator[Message]:
        """Yield what there is of some partitions until an offset, in commit order."""
        wanted = {
            place: (first, end)
            for place, (first, end) in ranges.items()
            if place[0] in self._topics and 0 <= first < end
        }
        self._begin({p: first for p, (first, _) in wanted.items() if p not in self._messages})
        ends = {place: end for place, (_, end) in wanted.items()}
        self._fetch(ends)
        return in_order(self._popped(place, end) for place, end in ends.items())

    def rest(self) -> Iterator[Message]:
        """Yield everything else that there is now of the partitions that were begun."""
        ends = {place: bounds.end for place, bounds in self._bounds(self._messages).items()}
        self._fetch(ends)
        return in_order(self._popped(place, end) for place, end in ends.items())

    def _begin(self, places: Mapping[_Partition, int]) -> None:
        """Begin to read partitions, each at this offset or at its oldest record."""
        for place, bounds in self._bounds(places).items():
            self._messages[place] = deque()
            self._reached[place] = max(bounds.start, places[place])
        if places:
            begun = [TopicPartition(*place, self._reached[place]) for place in places]
            self._consumer.incremental_assign(begun)

    def _bounds(self, places: Collection[_Partition]) -> dict[_Partition, LogBounds]:
        # Asked for one by one, those of many partitions far away would take minutes.
        return read_bounds(self._kafka, places, committed=True, timeout_s=_ANSWER_S)

    def _fetch(self, ends: Mapping[_Partition, int]) -> None:
        """Wait until the partitions are read until these offsets, or no more comes of them."""
        lacking = {place for place, end in ends.items() if self._reached[place] < end}
        if resumed := lacking & self._paused:
            self._consumer.resume([TopicPartition(*place) for place in resumed])
            self._paused -= resumed
        deadline = time.monotonic() + _LATE_S
        while lacking:
            message = _polled(self._consumer)
            if message is None or message.error() is not None:
                if message is not None:
                    self._ended.add(self._advance(message, 0))
                if lacking <= self._ended and time.monotonic() >= deadline:
                    self._give_up(lacking, ends)
                    return
            else:
                place = self._advance(message, 1)
                self._ended.discard(place)
                self._messages[place].append(message)
                if place in lacking:
                    deadline = time.monotonic() + _LATE_S
                if len(self._messages[place]) >= _MOST_AHEAD and place not in lacking:
                    self._consumer.pause([TopicPartition(*place)])
                    self._paused.add(place)
            lacking = {place for place in lacking if self._reached[place] < ends[place]}

    def _advance(self, message: Message, more: int) -> _Partition:
        place = (message.topic() or "", message.partition() or 0)
        self._reached[place] = max(self._reached[place], (message.offset() or 0) + more)
        return place

    def _give_up(self, lacking: Iterable[_Partition], ends: Mapping[_Partition, int]) -> None:
        for place in sorted(lacking):
            event(
                _LOG,
                logging.WARNING,
                "topic lacks records that a marker names",
                topic=place[0],
                partition=place[1],
                until_offset=ends[place],
                found_until=self._reached[place],
            )

    def _popped(self, place: _Partition, end: int) -> list[Message]:
        messages = self._messages[place]
        found = []
        while messages and (messages[0].offset() or 0) < end:
            found.append(messages.popleft())
        return found


def _polled(consumer: Consumer) -> Message | None:
    """Return the next record, or the end of a partition; None if nothing comes for a moment.

    Raises:
        TransientError, FatalError: it cannot be read.
    """
    message = consumer.poll(_POLL_S)
    error = None if message is None else message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return message
    assert message is not None
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        return None
    raise classify_kafka_error(error, doing="reading", topic=message.topic())


def in_order(partitions: Iterable[Sequence[Message]]) -> Iterator[Message]:
    """Merge partitions by the positions in the headers, without a change of a partition's order.

    A ``t`` is in all partitions: the first one is yielded, before what follows it in any of them.
    """
    truncated: dict[str | None, _Place] = {}
    for place, message in heapq.merge(*map(_placed, partitions), key=lambda one: one[0]):
        if _is_truncate(message):
            if truncated.get(message.topic()) == place:
                continue
            truncated[message.topic()] = place
        yield message


def _placed(messages: Iterable[Message]) -> Iterator[tuple[_Place, Message]]:
    """Yield the messages of one partition, each with its place.

    Rows of a copy have the position of its ``t``; so the number of these is part of the place.
    """
    position, truncates = (b"", 0), 0
    for message in messages:
        headers = dict[str, Any](message.headers() or ())
        lsn, seq = headers.get("commit_lsn"), headers.get("seq")
        if isinstance(lsn, bytes) and isinstance(seq, bytes) and seq.isdigit():
            here = (lsn, int(seq[:20]))
            if here > position:
                position, truncates = here, 0
        truncates += _is_truncate(message)
        yield (*position, truncates), message


def _is_truncate(message: Message) -> bool:
    return dict[str, Any](message.headers() or ()).get("op") == b"t"


def _header(lsn: int) -> str:
    return header_lsn(lsn % (1 << 64)).decode()


def _time(text: str | None) -> datetime | None:
    """Return a time that PostgreSQL has printed; None for one that Python's dates do not have."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
