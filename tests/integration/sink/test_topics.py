"""Topics are made, described and refused, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from devkit.embedded.kafka import EmbeddedKafka
from gateway.core.errors import FatalError, TransientError
from gateway.sink.clients.properties import admin_properties, consumer_properties, make_client
from gateway.sink.topics.log_bounds import LogBounds, read_log_bounds, read_partition_bounds
from gateway.sink.topics.topics import (
    TopicSpec,
    creation_refused,
    describe_topics,
    ensure_topics,
    progress_topic_spec,
)
from tests.support.gateway.sink_scene import Topics
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.java]

_ENDLESS_S = 600.0


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


def test_a_topic_without_a_leader_is_waited_for_and_not_taken_for_a_missing_one(
    tmp_path: Path,
) -> None:
    disks = [tmp_path / "first", tmp_path / "second"]
    specs = [TopicSpec(f"t{n}") for n in range(4)]
    with EmbeddedKafka(config={"log.dirs": ",".join(map(str, disks))}) as broker:
        kafka = broker.client_settings
        ensure_topics(kafka, specs)
        made = len(specs)
        wait_until(lambda: len([*tmp_path.glob("*/t*-0")]) == made, _ENDLESS_S, "the logs")
        lost = {place.name.removesuffix("-0") for place in disks[1].glob("t*-0")}
        assert lost, "a broker spreads partitions over its disks"
        disks[1].rename(tmp_path / "lost")
        disks[1].touch()

        admin = make_client(AdminClient, admin_properties(kafka))

        def leaderless() -> bool:
            listed = admin.list_topics(timeout=10).topics
            return all(listed[name].partitions[0].leader < 0 for name in lost)

        wait_until(leaderless, _ENDLESS_S, "the broker to notice")
        with pytest.raises(TransientError, match="has a partition without a leader"):
            describe_topics(kafka, sorted(lost), timeout_s=_ENDLESS_S, await_restart=False)
        with pytest.raises(TransientError):  # a busy machine may take that long to answer
            describe_topics(kafka, sorted(lost), timeout_s=1)

        left = [spec.name for spec in specs if spec.name not in lost]
        assert list(describe_topics(kafka, ["t9", *left], timeout_s=_ENDLESS_S)) == left


def test_more_topics_can_be_made_than_a_broker_makes_by_one_request(topics: Topics) -> None:
    specs = [TopicSpec(f"{topics.prefix}.many{n}") for n in range(5_000)]

    assert creation_refused(topics.kafka, specs, timeout_s=_ENDLESS_S) == {}
