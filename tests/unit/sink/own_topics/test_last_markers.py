"""Search for last markers, window by window, in logs of any content."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from gateway.core.lsn import Lsn
from gateway.core.records import Writer
from gateway.envelope.envelope import wire_prefix
from gateway.envelope.markers import encode_claim, encode_progress, encode_writer
from gateway.sink.own_topics import last_markers
from gateway.sink.own_topics.last_markers import NamedOwners, TopicTail, search
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.topics.log_bounds import LogBounds

A, B = (Writer("1", "shop", slot, "gw") for slot in "ab")
PREFIX = wire_prefix(7)
Value = Callable[[int], bytes | None]


class NoSchemas:
    """A registry that has lost everything."""

    def find_text(self, _: int) -> None:
        return None


class Logs:
    """A consumer of logs: an end, and records by offset, None where there is none.

    Of a topic without a log nothing comes.

    Attributes:
        delivered: Number of delivered records.
    """

    def __init__(self, **logs: tuple[int, Value] | None) -> None:
        self._logs = logs
        self._next: dict[str, int] = {}
        self.delivered = 0

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._next = {place.topic: place.offset for place in places}

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._next.pop(place.topic, None)

    def poll(self, _: float) -> Message | None:
        return next(iter(self.consume(1, 0)), None)

    def consume(self, number: int, _: float) -> list[Message]:
        found: list[Message] = []
        for topic in [*self._next]:
            found += self._read(topic, number - len(found))
        self.delivered += len(found)
        return found

    def _read(self, topic: str, number: int) -> list[Message]:
        found: list[Message] = []
        if (log := self._logs[topic]) is None:
            return found
        end, value = log
        while len(found) < number and topic in self._next:
            offset = self._next[topic]
            if offset >= end:
                eof = KafkaError(KafkaError._PARTITION_EOF)
                found.append(Message(topic=topic, partition=0, offset=end, error=eof))
                del self._next[topic]
                break
            if (wire := value(offset)) is not None:
                found.append(Message(topic=topic, partition=0, offset=offset, value=wire))
            self._next[topic] = offset + 1
        return found


def progress(writer: Writer, position: int) -> bytes:
    return PREFIX + encode_writer(writer) + encode_progress(position)


def claim(writer: Writer, taken_from: Writer | None = None) -> bytes:
    return PREFIX + encode_writer(writer, taken_from) + encode_claim()


def tail(topic: str, end: int, start: int = 0) -> TopicTail:
    return TopicTail(topic, LogBounds(start, end), RegisteredSchemas(NoSchemas()))  # type: ignore[arg-type]


def find(end: int, value: Value, start: int = 0) -> tuple[TopicTail, Logs, set[str]]:
    one, logs = tail("t", end, start), Logs(t=(end, value))
    errors, late = search(logs, {"t": one}, time.monotonic() + 60)  # type: ignore[arg-type]
    assert errors == {}
    return one, logs, late


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(b"?", id="no marker"),
        pytest.param(b"\0\0\0\0\7????", id="like a marker"),
        pytest.param(None, id="aborted"),
    ],
)
def test_the_last_marker_is_found_before_any_number_of_other_records(junk: bytes | None) -> None:
    at = 20_000
    last, first = progress(B, 9), progress(A, 5)

    found, logs, late = find(60_000, lambda n: last if n == at else first if n < at else junk)

    assert (found.markers, late) == ([NamedOwners(False, B, reached=Lsn(9))], set())
    assert logs.delivered < 6 * 60_000


def test_claims_far_from_the_marker_before_them_are_all_kept_in_their_order() -> None:
    records = {100: progress(A, 5), 5_000: claim(B, A), 9_000: claim(A)}

    found, _, _ = find(10_000, lambda n: records.get(n, b"?"))

    assert found.markers == [
        NamedOwners(False, A, reached=Lsn(5)),
        NamedOwners(True, B, A),
        NamedOwners(True, A),
    ]


def test_more_claims_than_a_gateway_writes_take_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_markers, "_CLAIM_BYTES", 100_000)
    endless = claim(B)

    found, logs, late = find(1_000_000, lambda _: endless)

    assert late == {"t"}
    assert found.is_overfull
    assert logs.delivered < 50_000


def test_large_records_like_markers_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_markers, "_KEPT_BYTES", 10_000)
    first, junk = progress(A, 5), b"\0" * 4_000

    found, _, late = find(500, lambda n: first if n == 7 else junk)

    assert (found.markers, late) == ([NamedOwners(False, A, reached=Lsn(5))], set())


def test_a_topic_without_markers_is_read_to_its_start() -> None:
    found, _, late = find(3_000, lambda _: b"?", start=1_000)

    assert (found.markers, found.has_records, found.lacks_schema, late) == ([], True, False, set())


def test_an_endless_topic_is_read_to_the_end_that_it_had_and_one_deadline_is_that_of_all() -> None:
    tails = {"written": tail("written", 3), "silent": tail("silent", 1)}
    logs = Logs(written=(1_000_000, lambda _: b"?"), silent=None)

    errors, late = search(logs, tails, time.monotonic() + 0.2)  # type: ignore[arg-type]

    assert (errors, late) == ({}, {"silent"})
    assert [one.has_answered for one in tails.values()] == [True, False]
