"""Last markers of topics, which say whose they are, when somebody hides them."""

from __future__ import annotations

import struct
import time
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import schemas
from gateway.config import Settings, load_settings
from gateway.core.errors import HiddenMarkersError, TransientError
from gateway.core.records import Writer
from gateway.runtime.planning.ownership import check_owners
from gateway.sink.clients.properties import consumer_properties
from gateway.sink.own_topics import last_markers, owners
from gateway.sink.own_topics.claims import claim, take_over
from gateway.sink.own_topics.last_markers import TopicTail, search
from gateway.sink.own_topics.owners import ForeignTopics, Owner, read_owners
from gateway.sink.own_topics.requests import send
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import LogBounds, read_bounds
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from gateway.source.session.connection import ServerFacts
from tests.support.backends.registry_answers import answering_registry
from tests.support.gateway.fakes import ManualClock
from tests.support.run.waiting import PATIENCE
from tests.support.spark.kafka_topics import produce_bomb

pytestmark = pytest.mark.kafka

FACTS = ServerFacts("1", "db", 1, 160004, "UTF8", "logical", False, 1, 1, "-1", "u", True)
MINE, OTHER = (Writer("1", "db", slot, "gw") for slot in ("slot", "other"))


@pytest.fixture
def names(kafka: str) -> list[str]:
    """Two subscriptions with empty marker topics."""
    found = [f"{word}{uuid.uuid4().hex[:8]}" for word in ("hidden", "free")]
    ensure_topics(
        {"bootstrap.servers": kafka}, [TopicSpec(f"{name}.transaction") for name in found]
    )
    return found


def settings_of(folder: Path, kafka: str, registry: str) -> Settings:
    (folder / "pgsluice.toml").write_text(
        '[source]\ndsn = "postgresql://u@h/db"\nslot = "slot"\n'
        '[definitions]\nfile = "replication.sql"\n'
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n'
        f'[registry]\nurl = "{registry}"\n'
    )
    return load_settings(folder / "pgsluice.toml", {})


@pytest.mark.parametrize("status", [404, 410])
def test_a_registry_that_has_no_schema_of_any_marker_does_not_let_a_gateway_go_on(
    kafka: str, registry: str, tmp_path: Path, names: list[str], status: int
) -> None:
    properties = {"bootstrap.servers": kafka}
    taken, free = names
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        take_over(properties, real, OTHER, {taken: Owner(MINE)})
        ids = {
            real.register(f"{name}.transaction-value", schemas.load("transaction"))
            for name in names
        }
    lost = dict.fromkeys(ids, (status, b'{"error_code": 404, "message": "not here"}'))

    with answering_registry(registry, lost) as proxy:
        settings = settings_of(tmp_path, kafka, proxy.url)
        check_owners(settings, FACTS, [free])
        with pytest.raises(ForeignTopics, match='slot "other"'):
            check_owners(settings, FACTS, names)


def test_a_topic_of_which_no_marker_can_be_read_is_held_while_the_registry_lacks_their_schemas(
    kafka: str, registry: str, tmp_path: Path, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    other_version = struct.pack(">bI", 0, 1_999_999) + b"\xff" * 20
    hidden, free = names
    send(properties, [(f"{hidden}.transaction", 0, None, other_version, [])], "forging")
    settings = settings_of(tmp_path, kafka, registry)
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, [free])
        with pytest.raises(HiddenMarkersError, match="takeover") as refused:
            read_owners(properties, real, names)
        with pytest.raises(HiddenMarkersError):
            check_owners(settings, FACTS, names)
        with pytest.raises(TransientError) as again:
            check_owners(settings, FACTS, [hidden])
        by_hand = read_owners(properties, real, names, without_schemas=True)

    assert refused.value.subscriptions == {hidden}
    assert not isinstance(again.value, HiddenMarkersError), "would end the sink"
    assert by_hand == {hidden: Owner(None), free: Owner(MINE)}


def test_an_empty_topic_is_no_reason_to_go_on_without_all_others(
    kafka: str, registry: str, tmp_path: Path, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    other_version = struct.pack(">bI", 0, 1_999_999) + b"\xff" * 20
    unclear, new = names[0], f"new{uuid.uuid4().hex[:8]}"
    send(properties, [(f"{unclear}.transaction", 0, None, other_version, [])], "another")
    with (
        Registry({"url": registry}) as real,
        pytest.raises(HiddenMarkersError, match=unclear) as refused,
    ):
        read_owners(properties, real, [*names, new])
    with pytest.raises(TransientError) as again:
        check_owners(settings_of(tmp_path, kafka, registry), FACTS, names)

    assert names[1] not in refused.value.message
    assert refused.value.subscriptions == set(names), "nothing was ever written of the new one"
    assert not isinstance(again.value, HiddenMarkersError), "would hold and copy all others"


def test_an_owner_of_another_version_is_not_passed_over_for_the_one_before(
    kafka: str, registry: str, tmp_path: Path, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    newer_version = struct.pack(">bI", 0, 1_999_999) + b"\xff" * 20
    taken = names[0]
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        send(properties, [(f"{taken}.transaction", 0, None, newer_version, [])], "another")
        number = real.register(f"{taken}.transaction-value", schemas.load("transaction"))
        junk = read_owners(properties, real, names)

    with answering_registry(registry, {number: (404, b'{"error_code": 40403}')}) as proxy:
        settings = settings_of(tmp_path, kafka, proxy.url)
        with pytest.raises(HiddenMarkersError, match="takeover") as refused:
            check_owners(settings, FACTS, names)
        with Registry({"url": proxy.url}) as lossy:
            by_hand = read_owners(properties, lossy, names, without_schemas=True)
            with Registry({"url": registry}) as real:
                take_over(properties, real, MINE, {taken: by_hand[taken]})
            after = read_owners(properties, lossy, names)

    assert refused.value.subscriptions == {taken}
    assert junk == by_hand == after == dict.fromkeys(names, Owner(MINE))
    assert [by_hand[name].is_unclear for name in names] == [True, False]


def test_a_marker_topic_that_cannot_be_read_after_an_outage_ends_no_other_subscription(
    kafka: str, registry: str, tmp_path: Path, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    hidden, free = names
    check = partial(check_owners, settings_of(tmp_path, kafka, registry), FACTS, names)
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        check()
        produce_bomb(kafka, f"{hidden}.transaction", 120 << 20, codec="zstd")

        with pytest.raises(HiddenMarkersError, match=f"{hidden}.*cannot be read") as raised:
            check()
        take_over(properties, real, OTHER, {free: Owner(MINE)})
        with pytest.raises(ForeignTopics, match='slot "other"'):
            check()

    assert raised.value.subscriptions == {hidden}


JUNK = b"?"
LIKE_A_MARKER = struct.pack(">bI", 0, 1_999_999) + b"\xff"


def flood(kafka: str, topic: str, value: bytes, number: int) -> None:
    """Write a record again and again, as anybody may who may write to the topic."""
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": kafka, "queue.buffering.max.messages": number, "linger.ms": 50}
    )
    for _ in range(number - 1):
        producer.produce(topic, value)
    producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60 * PATIENCE) == 0
    assert failed == [None]


def test_the_last_marker_is_found_before_a_hundred_thousand_records_of_others(
    kafka: str, registry: str, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    full, free = names
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        flood(kafka, f"{full}.transaction", LIKE_A_MARKER, 5_000)
        flood(kafka, f"{full}.transaction", JUNK, 100_000)
        take_over(properties, real, OTHER, {full: Owner(MINE)})
        flood(kafka, f"{full}.transaction", JUNK, 100_000)

        found = read_owners(properties, real, names)

    assert found == {full: Owner(OTHER, MINE), free: Owner(MINE)}


@pytest.fixture
def by_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tenth of a millisecond pass for each record that is read, and no other time.

    A fast machine could read all of them before the deadline, a busy one not even the first.
    """
    read, clock = TopicTail._read_newest, ManualClock(step_s=0)

    def read_newest(tail: TopicTail) -> bool:
        clock.advance(0.0001)
        return read(tail)

    monkeypatch.setattr(TopicTail, "_read_newest", read_newest)
    for module in (last_markers, owners):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))


@pytest.mark.usefixtures("by_records")
def test_a_topic_that_is_full_of_records_like_markers_is_named_and_hides_no_other(
    kafka: str, registry: str, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    full, absent = names[0], f"absent{uuid.uuid4().hex[:8]}"
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        flood(kafka, f"{full}.transaction", LIKE_A_MARKER, 100_000)
        for subscriptions in ([full], [full, absent], names):
            with pytest.raises(HiddenMarkersError, match=rf"{full}\.transaction") as raised:
                read_owners(properties, real, subscriptions, timeout_s=2)
            assert raised.value.subscriptions == {full}


def test_a_topic_is_read_to_the_end_that_it_had_whatever_is_written_meanwhile(
    kafka: str, registry: str, names: list[str]
) -> None:
    topics = [f"{name}.transaction" for name in names]
    for topic in topics:
        flood(kafka, topic, JUNK, 20_000)
    consumer = Consumer(consumer_properties({"bootstrap.servers": kafka}))
    with Registry({"url": registry}) as real, closing(consumer):
        ends = zip(topics, (LogBounds(0, 3), LogBounds(10_000, 20_000)), strict=True)
        tails = {topic: TopicTail(topic, end, RegisteredSchemas(real)) for topic, end in ends}
        errors, late = search(consumer, tails, time.monotonic() + 30 * PATIENCE)

    assert (errors, late) == ({}, set())
    assert all(tail.has_records and not tail.markers for tail in tails.values())


def test_records_that_are_deleted_before_they_are_read_make_only_their_topic_late(
    kafka: str, registry: str, names: list[str]
) -> None:
    topics = [f"{name}.transaction" for name in names]
    for topic in topics:
        flood(kafka, topic, JUNK, 10)
    admin = AdminClient({"bootstrap.servers": kafka})
    for deletion in admin.delete_records([TopicPartition(topics[0], 0, 5)]).values():
        deletion.result()
    consumer = Consumer(consumer_properties({"bootstrap.servers": kafka}))
    with Registry({"url": registry}) as real, closing(consumer):
        schemas_of = RegisteredSchemas(real)
        tails = {topic: TopicTail(topic, LogBounds(0, 10), schemas_of) for topic in topics}
        errors, late = search(consumer, tails, time.monotonic() + 30 * PATIENCE)

    assert (errors, late) == ({}, {topics[0]})
    assert tails[topics[1]].has_records


@pytest.mark.parametrize(
    ("deletions", "hidden"),
    [pytest.param(1, False, id="once"), pytest.param(2, True, id="again")],
)
def test_a_topic_that_kafka_answers_with_an_error_is_read_again_before_it_is_held(
    kafka: str,
    registry: str,
    names: list[str],
    deletions: int,
    hidden: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {"bootstrap.servers": kafka}
    topic = f"{names[0]}.transaction"
    admin = AdminClient({"bootstrap.servers": kafka})
    offsets = iter([5, 8][:deletions])

    def bounds(*arguments: Any, **options: Any) -> dict[tuple[str, int], LogBounds]:
        found = read_bounds(*arguments, **options)
        if (offset := next(offsets, None)) is not None:
            for deletion in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
                deletion.result()
        return found

    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        flood(kafka, topic, JUNK, 10)
        take_over(properties, real, OTHER, {names[0]: Owner(MINE)})
        monkeypatch.setattr(owners, "read_bounds", bounds)
        if hidden:
            with pytest.raises(HiddenMarkersError, match="offset not available") as raised:
                read_owners(properties, real, names)
            assert raised.value.subscriptions == {names[0]}
        else:
            found = read_owners(properties, real, names)
            assert found == {names[0]: Owner(OTHER, MINE), names[1]: Owner(MINE)}

    again = [vars(record)["fields"] for record in caplog.records if "again" in record.message]
    assert [fields["topic"] for fields in again] == [topic]
    assert "offset not available" in again[0]["error"]
