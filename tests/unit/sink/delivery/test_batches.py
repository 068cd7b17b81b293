"""What hands over many records in one call: it takes all or says where it stopped."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from gateway._speedups.loader import INTERPRETED
from gateway.core.records import Header, Record
from gateway.sink.delivery.batches import ProduceBatch, find_places, make_batches, why_one_by_one

if why_one_by_one() is not None:
    pytest.skip("producing is not compiled here", allow_module_level=True)

ROOM = 100
_silent = logging.getLogger("tests.unit.sink.batches")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@pytest.fixture
def made() -> Iterator[tuple[Producer, ProduceBatch]]:
    producer, produce = make_batches(
        Producer,
        {
            "bootstrap.servers": "127.0.0.1:1",  # where nobody is: everything stays in the queue
            "queue.buffering.max.messages": ROOM,
            "logger": _silent,
        },
    )
    assert produce is not None
    yield producer, produce
    producer.purge()


def _records(count: int, headers: list[Header] | None = None) -> list[Record]:
    return [("t", n % 3, None, b"", [] if headers is None else headers) for n in range(count)]


def _room(produce: ProduceBatch) -> int:
    """How many more go into the queue; fills it."""
    return produce(_records(2 * ROOM), 0, 2 * ROOM)[0]


def test_records_between_the_places_are_taken(made: tuple[Producer, ProduceBatch]) -> None:
    _, produce = made

    assert produce(_records(20), 5, 12) == (12, 0)
    assert _room(produce) == ROOM - 7


def test_nothing_is_taken_of_nothing(made: tuple[Producer, ProduceBatch]) -> None:
    _, produce = made

    assert produce([], 0, 0) == (0, 0)
    assert _room(produce) == ROOM


@pytest.mark.parametrize("headers", [None, [("a", b"1"), ("b", b"")]], ids=["own", "shared"])
def test_a_full_queue_says_how_far_it_came(
    made: tuple[Producer, ProduceBatch], headers: list[Header] | None
) -> None:
    _, produce = made

    assert produce(_records(2 * ROOM, headers), 0, 2 * ROOM) == (ROOM, KafkaError._QUEUE_FULL)
    assert _room(produce) == 0


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ("text", TypeError),
        (("t", 0, None, b""), TypeError),
        (("t", 0, "key", b"", []), TypeError),
        (("t", 0, None, "value", []), TypeError),
        (("t", -1, None, b"", []), ValueError),
        ((b"t", 0, None, b"", []), TypeError),
        (("t", 0, None, b"", None), TypeError),
        (("t", 0, None, b"", [("a", "text")]), TypeError),
        (("t", 0, None, b"", [("a",)]), TypeError),
    ],
    ids=repr,
)
def test_what_is_no_record_is_refused_with_all_of_the_call(
    made: tuple[Producer, ProduceBatch], record: Record, error: type[Exception]
) -> None:
    _, produce = made

    with pytest.raises(error):
        produce([*_records(3), record], 0, 4)
    assert _room(produce) == ROOM


def test_places_outside_of_the_list_are_refused(made: tuple[Producer, ProduceBatch]) -> None:
    with pytest.raises(ValueError, match="no such place"):
        made[1](_records(3), 1, 4)


def test_clients_made_side_by_side_have_their_own(made: tuple[Producer, ProduceBatch]) -> None:
    other, produce = make_batches(Producer, {"bootstrap.servers": "127.0.0.1:1", "logger": _silent})
    assert produce is not None

    assert produce(_records(4), 0, 4) == (4, 0)

    assert _room(made[1]) == ROOM
    other.purge()


def test_a_client_that_cannot_be_made_leaves_nothing_behind() -> None:
    with pytest.raises(Exception, match=r"no\.such\.property"):
        make_batches(Producer, {"no.such.property": "1"})

    assert make_batches(Producer, {"bootstrap.servers": "127.0.0.1:1", "logger": _silent})[1]


@pytest.mark.parametrize("topics", [1, 200, 5_000])
def test_places_are_found_as_without_the_module(
    monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    chosen = random.Random(topics)
    # Equal names that are different objects are one topic.
    names = [f"t{chosen.randrange(topics)}" for _ in range(10_000)]
    records: list[Record] = [(name, chosen.randrange(3), None, b"", []) for name in names]

    compiled = find_places(records)

    monkeypatch.setenv(INTERPRETED, "1")
    assert compiled == find_places(records)


def test_what_is_no_record_has_no_place() -> None:
    with pytest.raises(TypeError):
        find_places([("t", 0, None, b"")])  # type: ignore[list-item]


def test_one_switch_leaves_everything_to_confluent_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERPRETED, "1")

    _, produce = make_batches(Producer, {"bootstrap.servers": "127.0.0.1:1", "logger": _silent})

    assert produce is None
    assert why_one_by_one() == f"{INTERPRETED} is set"
