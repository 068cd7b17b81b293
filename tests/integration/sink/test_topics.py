"""Topics are made, described and refused, on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from gateway.core.errors import FatalError
from gateway.sink.clients.properties import consumer_properties
from gateway.sink.topics.log_bounds import LogBounds, read_log_bounds, read_partition_bounds
from gateway.sink.topics.topics import (
    TopicSpec,
    describe_topics,
    ensure_topics,
    progress_topic_spec,
)
from tests.support.gateway.sink_scene import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_missing_topics_are_made_and_existing_ones_are_described(topics: Topics) -> None:
    name = f"{topics.prefix}.new"
    spec = TopicSpec(name, partitions=3, config={"retention.ms": "86400000"})

    assert describe_topics(topics.kafka, [name]) == {}
    made = ensure_topics(topics.kafka, [spec])
    again = ensure_topics(topics.kafka, [spec])

    assert made == again
    # Many topics are listed at once, a few one by one.
    assert describe_topics(topics.kafka, [f"{name}{n}" for n in range(20)] + [name]) == made
    assert made[name].partitions == 3
    assert made[name].config["retention.ms"] == "86400000"
    assert made[name].config["cleanup.policy"] == "delete"
    assert not made[name].is_compacted


def test_topics_that_do_not_fit_are_refused_before_any_is_made(topics: Topics) -> None:
    new = f"{topics.prefix}.never"

    with pytest.raises(FatalError, match=f"{topics.rows} has 2 partitions, 4 expected"):
        ensure_topics(topics.kafka, [TopicSpec(new), TopicSpec(topics.rows, partitions=4)])

    assert describe_topics(topics.kafka, [new]) == {}


def test_compaction_is_refused_where_it_would_lose_records_and_demanded_for_progress(
    topics: Topics,
) -> None:
    with pytest.raises(FatalError, match=r"cleanup\.policy=compact"):
        ensure_topics(topics.kafka, [TopicSpec(topics.progress, forbid_compaction=True)])
    plain = f"{topics.prefix}.plain"
    ensure_topics(topics.kafka, [TopicSpec(plain)])

    with pytest.raises(FatalError, match="must keep the last record"):
        ensure_topics(topics.kafka, [progress_topic_spec(plain)])


def test_partitions_may_differ_where_they_only_matter_at_creation(topics: Topics) -> None:
    spec = TopicSpec(topics.rows, partitions=9, partitions_at_creation_only=True)

    assert ensure_topics(topics.kafka, [spec])[topics.rows].partitions == 2


def test_the_bounds_of_new_topics_are_known_although_their_leaders_do_not_serve_them_yet(
    topics: Topics,
) -> None:
    new = [f"{topics.prefix}.many{n}" for n in range(100)]
    consumer = Consumer(consumer_properties(topics.kafka))
    try:
        for round_ in range(2):
            names = [f"{name}.{round_}" for name in new]
            ensure_topics(topics.kafka, [TopicSpec(name) for name in names])
            last_first = [
                read_partition_bounds(consumer, name, timeout_s=60) for name in names[::-1]
            ]
            assert last_first == [LogBounds(0, 0)] * len(names)
    finally:
        consumer.close()

    # Both ways to ask say the same.
    assert read_log_bounds(topics.kafka, dict.fromkeys(names, 1)) == {
        name: (LogBounds(0, 0),) for name in names
    }
