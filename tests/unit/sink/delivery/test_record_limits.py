"""How large a record may be: as librdkafka counts it, and as the topics' settings have it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from gateway.core.records import Header, wire_size
from gateway.sink.clients.properties import producer_properties
from gateway.sink.delivery.record_limits import batch_bytes, most_bytes
from gateway.sink.topics.topics import TopicDescription

MOST = 20_000


@pytest.mark.parametrize("key", [None, b"", b"k" * 100], ids=["no key", "empty key", "key"])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="no headers"),
        pytest.param([("op", b""), ("lsn", b"0" * 17), ("gid", b"g" * 200)], id="headers"),
        pytest.param([("n" * size, b"v" * size) for size in (63, 64, 65, 128)], id="long headers"),
    ],
)
def test_a_record_has_the_size_that_the_producer_counts(
    key: bytes | None, headers: list[Header]
) -> None:
    producer = Producer({"message.max.bytes": MOST, "log_level": 0})
    spare = MOST - wire_size(key, b"", headers)

    producer.produce("t", bytes(spare), key, headers=headers)  # type: ignore[arg-type]
    with pytest.raises(KafkaException):
        producer.produce("t", bytes(spare + 1), key, headers=headers)  # type: ignore[arg-type]

    producer.purge()


def test_the_largest_record_that_is_allowed_has_room_in_the_queue() -> None:
    kafka: dict[str, str | int | bool] = {
        "bootstrap.servers": "127.0.0.1:1",
        "message.max.bytes": "40000000",
        "log_level": 0,
    }
    properties = producer_properties(kafka, "id")
    del properties["transactional.id"]
    producer = Producer(properties)

    producer.produce("t", bytes(40_000_000 - wire_size(None, b"", [])))

    producer.purge()


def topic(name: str, most: int) -> TopicDescription:
    return TopicDescription(name, 1, {"max.message.bytes": str(most)})


@pytest.mark.parametrize(
    ("kafka", "sure", "expected"),
    [
        pytest.param({}, True, {"small": 49_939, "large": 1_000_000}, id="sure: both limits"),
        pytest.param(
            {}, False, {"small": 1_000_000, "large": 1_000_000}, id="compressed: the producer's"
        ),
        pytest.param(
            {"compression.type": "none"},
            False,
            {"small": 49_939, "large": 1_000_000},
            id="not compressed: both",
        ),
        pytest.param(
            {"message.max.bytes": "40000"}, True, {"small": 40_000, "large": 40_000}, id="lowered"
        ),
        pytest.param(
            {"message.max.bytes": "4000000", "queue.buffering.max.kbytes": "3000"},
            False,
            {"small": 3_072_000, "large": 3_072_000},
            id="raised, but not the queue",
        ),
    ],
)
def test_a_record_is_held_back_by_producer_and_topic(
    kafka: dict[str, str], sure: bool, expected: dict[str, int]
) -> None:
    topics = [topic("small", 50_000), topic("large", 5_000_000)]

    assert most_bytes(kafka, topics, sure=sure) == expected


@pytest.mark.parametrize(
    ("kafka", "least", "expected"),
    [
        pytest.param({}, 50_000, 50_000, id="a small topic"),
        pytest.param({}, 1_048_588, None, id="topics as they are made"),
        pytest.param({"batch.size": "10000"}, 50_000, None, id="smaller batches anyway"),
        pytest.param({"batch.size": "many"}, 50_000, 50_000, id="not a number"),
    ],
)
def test_batches_are_as_small_as_the_smallest_topic_wants_them(
    kafka: dict[str, str], least: int, expected: int | None
) -> None:
    assert batch_bytes(kafka, [topic("t", least), topic("large", 5_000_000)]) == expected
