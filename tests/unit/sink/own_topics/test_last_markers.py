"""Search for last markers, window by window, in logs of any content."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

import schemas
from gateway.core.lsn import Lsn
from gateway.core.records import Writer
from gateway.envelope.envelope import wire_prefix
from gateway.envelope.markers import (
    encode_claim,
    encode_end,
    encode_end_of,
    encode_progress,
    encode_writer,
)
from gateway.sink.own_topics import last_markers
from gateway.sink.own_topics.last_markers import NamedOwners, TopicTail, search
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.topics.log_bounds import LogBounds
from tests.support.gateway.fakes import ManualClock

A, B = (Writer("1", "shop", slot, "gw") for slot in "ab")
PREFIX = wire_prefix(7)
Value = Callable[[int], bytes | None]


class NoSchemas:
    """A registry that has lost everything."""

    def find_text(self, _: int) -> None:
        return None


class Slow(NoSchemas):
    """A registry that needs two seconds of its own clock to say that it has no schema."""

    def __init__(self) -> None:
        self.now = 0.0

    def find_text(self, _: int) -> None:
        self.now += 2


class Has(NoSchemas):
    """A registry that has the schema of markers under one id."""

    def __init__(self, number: int) -> None:
        self._number = number

    def find_text(self, number: int) -> str | None:  # type: ignore[override]
        return schemas.text("transaction") if number == self._number else None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """A slow registry, whose clock is that of the search."""
    registry = Slow()
    clock = SimpleNamespace(monotonic=lambda: registry.now)
    monkeypatch.setattr(last_markers, "time", clock)
    return registry


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of the search: a busy machine must not make late what is there."""
    made = ManualClock()
    monkeypatch.setattr(last_markers, "time", SimpleNamespace(monotonic=made))
    return made


class Logs:
    """A consumer of logs: an end, and records by offset, None where there is none.

    Of a topic without a log nothing comes, and of one of `deleted` the client's error for records
    that are gone.

    Attributes:
        delivered: Number of delivered records.
        wait: Called with the seconds of a poll for which there is nothing.
    """

    def __init__(self, **logs: tuple[int, Value] | None) -> None:
        self._logs = logs
        self.deleted: set[str] = set()
        self._next: dict[str, int] = {}
        self.delivered = 0
        self.wait: Callable[[float], None] = lambda _: None

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._next = {place.topic: place.offset for place in places}

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._next.pop(place.topic, None)

    def poll(self, timeout_s: float) -> Message | None:
        found = next(iter(self.consume(1, 0)), None)
        if found is None:
            self.wait(timeout_s)
        return found

    def consume(self, number: int, _: float) -> list[Message]:
        found: list[Message] = []
        for topic in [*self._next]:
            found += self._read(topic, number - len(found))
        self.delivered += len(found)
        return found

    def _read(self, topic: str, number: int) -> list[Message]:
        found: list[Message] = []
        if topic in self.deleted:
            del self._next[topic]
            gone = KafkaError(KafkaError._AUTO_OFFSET_RESET)
            return [Message(topic=topic, partition=0, error=gone)]
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
    return PREFIX + encode_writer(writer) + encode_progress(position, timeline=position)


def progressed(writer: Writer, position: int) -> NamedOwners:
    """As `progress` is read."""
    return NamedOwners(False, writer, reached=Lsn(position), timeline=position)


def claim(writer: Writer, taken_from: Writer | None = None) -> bytes:
    return PREFIX + encode_writer(writer, taken_from) + encode_claim()


def end_marker(writer: Writer) -> bytes:
    end = encode_end(encode_end_of(xid=1, commit_lsn=1, end_lsn=2, commit_time=0))
    return PREFIX + encode_writer(writer) + end


def unknown(offset: int) -> bytes:
    """A record like a marker, by a schema of its own."""
    return wire_prefix(1_000 + offset) + b"\xff" * 20


def tail(topic: str, end: int, start: int = 0, registry: NoSchemas | None = None) -> TopicTail:
    registered = RegisteredSchemas(registry or NoSchemas())  # type: ignore[arg-type]
    return TopicTail(topic, LogBounds(start, end), registered)


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

    assert (found.markers, late) == ([progressed(B, 9)], set())
    assert logs.delivered < 6 * 60_000


def test_claims_far_from_the_marker_before_them_are_all_kept_in_their_order() -> None:
    records = {100: progress(A, 5), 5_000: claim(B, A), 9_000: claim(A)}

    found, _, _ = find(10_000, lambda n: records.get(n, b"?"))

    assert found.markers == [
        progressed(A, 5),
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

    assert (found.markers, late) == ([progressed(A, 5)], set())


def test_a_topic_without_markers_is_read_to_its_start() -> None:
    found, _, late = find(3_000, lambda _: b"?", start=1_000)

    assert (found.markers, found.has_records, found.lacks_schema, late) == ([], True, False, set())


def test_an_endless_topic_is_read_to_the_end_that_it_had_and_one_deadline_is_that_of_all(
    clock: ManualClock,
) -> None:
    tails = {"written": tail("written", 3), "silent": tail("silent", 1)}
    logs = Logs(written=(1_000_000, lambda _: b"?"), silent=None)
    logs.wait = clock.advance

    errors, late = search(logs, tails, clock() + 30)  # type: ignore[arg-type]

    assert (errors, late) == ({}, {"silent"})
    assert [one.has_answered for one in tails.values()] == [True, False]


def test_a_topic_whose_records_take_long_makes_no_other_late(slow: Slow) -> None:
    others = {f"other{n}": tail(f"other{n}", 1, registry=slow) for n in range(8)}
    tails = {"long": tail("long", 65, registry=slow), **others}
    logs = Logs(long=(65, unknown), **dict.fromkeys(others, (1, lambda _: progress(A, 5))))

    errors, late = search(logs, tails, 30)  # type: ignore[arg-type]

    assert (errors, late) == ({}, {"long"})
    assert all(one.markers == [progressed(A, 5)] for one in others.values())
    assert slow.now < 60


def test_a_topic_whose_records_take_long_is_searched_on_in_turns(slow: Slow) -> None:
    tails = {name: tail(name, 64, registry=slow) for name in "ab"}
    last, first = end_marker(B), progress(A, 5)
    records = {0: first, 20: last}

    logs = Logs(**dict.fromkeys("ab", (64, lambda n: records.get(n) or unknown(n))))
    errors, late = search(logs, tails, 1_000)  # type: ignore[arg-type]

    assert (errors, late) == ({}, set())
    assert [one.markers for one in tails.values()] == [[progressed(B, 5)]] * 2


def test_the_position_before_the_last_marker_is_searched_no_longer_than_the_rest(
    slow: Slow,
) -> None:
    one, last = tail("t", 64, registry=slow), end_marker(A)

    logs = Logs(t=(64, lambda n: last if n == 63 else unknown(n)))
    _, late = search(logs, {"t": one}, 10)  # type: ignore[arg-type]

    assert late == {"t"}
    assert slow.now < 15


def test_a_topic_that_was_read_is_not_late_because_another_one_does_not_answer(
    clock: ManualClock,
) -> None:
    tails = {"read": tail("read", 1), "silent": tail("silent", 1)}
    logs = Logs(read=(1, lambda _: progress(A, 5)), silent=None)
    logs.wait = clock.advance

    errors, late = search(logs, tails, clock() + 30)  # type: ignore[arg-type]

    assert (errors, late) == ({}, {"silent"})
    assert tails["read"].markers == [progressed(A, 5)]


def test_a_record_with_more_values_than_a_marker_has_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_markers, "MOST_VALUES", 100)
    end = encode_end_of(xid=1, commit_lsn=1, end_lsn=2, commit_time=0)
    large = PREFIX + encode_writer(B) + encode_end(end, [("s.public.t", 1)] * 40)

    found, _, _ = find(2, [progress(A, 5), large].__getitem__)

    assert found.markers == [progressed(A, 5)]


def test_a_record_by_the_schema_of_markers_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: object, **__: object) -> NoReturn:
        pytest.fail("decoded by the same schema again")

    monkeypatch.setattr(last_markers, "decode_as", again)
    one = tail("t", 2, registry=Has(7))
    records = [progress(A, 5), PREFIX + encode_writer(B) + b"\xff"]

    _, late = search(Logs(t=(2, records.__getitem__)), {"t": one}, time.monotonic() + 60)  # type: ignore[arg-type]

    assert (one.markers, late) == ([progressed(A, 5)], set())


def test_a_topic_whose_records_were_deleted_meanwhile_is_late_and_no_other() -> None:
    tails = {"deleted": tail("deleted", 3), "read": tail("read", 1)}
    logs = Logs(deleted=None, read=(1, lambda _: progress(A, 5)))
    logs.deleted = {"deleted"}

    errors, late = search(logs, tails, time.monotonic() + 60)  # type: ignore[arg-type]

    assert (errors, late) == ({}, {"deleted"})
    assert tails["deleted"].has_answered
    assert tails["read"].markers == [progressed(A, 5)]


@pytest.mark.parametrize(
    ("newest", "registry", "is_unclear"),
    [
        pytest.param([unknown(1)], NoSchemas(), True, id="both lack a schema"),
        pytest.param([unknown(1)], Has(7), False, id="the marker's own schema answers"),
        pytest.param([PREFIX + b"\xff"], Has(7), False, id="no marker"),
        pytest.param([unknown(1), claim(B, A)], NoSchemas(), False, id="a takeover since"),
        pytest.param([unknown(n) for n in range(300)], NoSchemas(), True, id="many, lost"),
        pytest.param([unknown(n) for n in range(300)], Has(7), False, id="many of somebody"),
    ],
)
def test_a_newer_record_without_a_schema_may_be_the_marker_of_a_newer_owner(
    newest: list[bytes], registry: NoSchemas, is_unclear: bool
) -> None:
    records = [progress(A, 5), *newest]
    one = tail("t", len(records), registry=registry)

    logs = Logs(t=(len(records), records.__getitem__))
    errors, late = search(logs, {"t": one}, time.monotonic() + 60)  # type: ignore[arg-type]

    assert (errors, late) == ({}, set())
    assert one.markers[0] == progressed(A, 5)
    assert one.lacks_schema == is_unclear
