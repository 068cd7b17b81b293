"""The transactional producer against a real broker: what is visible when, and after which end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway._speedups.layouts import topic_of
from gateway.core.descriptors import wait_readable
from gateway.core.errors import (
    ConfigError,
    FatalError,
    FencedError,
    LostRecordsError,
    TransientError,
)
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Feed, Record
from gateway.core.watermark import StatePart
from gateway.envelope.progress import decode_key
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.delivery.producer import TransactionalProducer
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.own_topics.progress import KafkaProgress, read_progress
from gateway.sink.topics.log_bounds import read_log_bounds
from gateway.sink.topics.topic_ids import read_topic_ids
from gateway.sink.topics.topics import TopicSpec, describe_topics, ensure_topics
from tests.support.gateway.sink_scene import (
    COPIES,
    FixedIds,
    Topics,
    committed,
    finish,
    leave_open,
    make_sink,
)
from tests.support.run.waiting import PATIENCE, wait_until, within

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_first_start_has_neither_watermark_nor_offsets(sink: TransactionalSink) -> None:
    recovered = sink.open()

    assert recovered.watermark is None
    assert recovered.offsets == {}


def test_watermark_copies_and_offsets_come_back(topics: Topics, sink: TransactionalSink) -> None:
    sink.open()
    first, second = topics.watermark(0x1_0000_0000), topics.watermark(0x7FFFFFFF_FFFFFFFF)
    finish(sink, Batch(topics.records(3, partition=1), first, topics.cut(1)))
    changed = replace(second, copies=(replace(COPIES[1], state="ready"),))
    finish(sink, Batch([], changed, topics.cut(2)))
    sink.close()

    with make_sink(topics) as successor:
        recovered = successor.open()

    assert recovered.watermark == changed
    assert recovered.offsets == {topics.rows: (0, 3)}


def test_progress_of_another_slot_is_not_ours(topics: Topics, sink: TransactionalSink) -> None:
    sink.open()
    finish(sink, Batch(topics.records(1), topics.watermark(5), topics.cut(5)))

    other = replace(topics.identity, slot="other")

    assert read_progress(topics.kafka, topics.progress, other, 30) == CommittedState(None, {})


def test_a_commit_writes_no_state_that_has_not_changed(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    first = topics.watermark(1)
    finish(sink, Batch([], first))
    for number in range(2, 5):
        finish(sink, Batch([], replace(first, end_lsn=Lsn(number))))

    keys = [decode_key(key[5:]) for key, _ in read_compacted(topics.kafka, topics.progress, 30)]

    assert [key.kind for key in keys] == ["copy", "copy", *["position"] * 4]


def test_markers_name_the_offsets_over_pieces_aborts_and_restarts(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    finish(sink, Batch([*topics.records(4), *topics.records(1, partition=1)]))
    tombstone: Record = (topics.rows, 0, b"k", None, [])
    last = Batch([tombstone], topics.watermark(1), topics.cut(11, commit_time=86_400_000_000))
    finish(sink, last)
    finish(sink, Batch(topics.records(2), topics.watermark(2), topics.cut(12)))
    finish(sink, Batch(topics.records(9)))
    wait_until(lambda: topics.uncommitted() == 18, 60, "the records that are to be aborted")
    sink.close()
    with make_sink(topics) as successor:
        successor.open()
        finish(successor, Batch([], topics.watermark(3), topics.cut(13)))
        finish(successor, Batch([], topics.watermark(4), topics.cut(14, idle=[topics.prefix])))
        finish(successor, Batch(topics.records(1), topics.watermark(5), topics.cut(15)))

    # A control record, commit or abort, takes an offset in each partition.
    assert topics.offsets() == [
        [(0, 0, 5, 0, 5), (1, 0, 1, 0, 1)],
        [(0, 6, 8, 5, 2)],
        [],
        [(0, 19, 20, 8, 1)],
    ]
    assert [marker["end_lsn"] for marker in topics.marked()] == [11, 12, 14, 15]
    assert [marker["commit_time"] for marker in topics.marked()] == [
        datetime(2000, 1, 2, tzinfo=UTC),
        None,
        None,
        None,
    ]


def test_all_records_of_a_commit_that_name_no_offsets_are_handed_over_at_once(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = f"{topics.prefix}.idle"
    ensure_topics(topics.kafka, [TopicSpec(idle)])
    cut = topics.cut(1, idle=["idle"])
    cut = replace(cut, feeds=[*cut.feeds, Feed("idle", idle, b"\0\0\0\0\7\0\0", {})])
    handed_over: list[list[str]] = []
    produce = TransactionalProducer.produce

    def record(
        self: TransactionalProducer, records: list[Record], reported: Collection[int] = ()
    ) -> None:
        handed_over.append([topic_of(one) for one in records])
        produce(self, records, reported)

    with make_sink(topics) as sink:
        sink.open()
        monkeypatch.setattr(TransactionalProducer, "produce", record)
        finish(sink, Batch(topics.records(2), topics.watermark(1), cut))

    # Kafka adds the partitions of the first call to the transaction by one request.
    assert set(handed_over[0]) == {topics.rows, topics.progress, idle}
    assert {topic for call in handed_over[1:] for topic in call} == {
        topics.markers,
        topics.progress,
    }


def test_records_arrive_as_given_tombstones_and_headers_included(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    headers = [("lsn", b"00000000/00000010"), ("origin", "ü".encode())]
    records: list[Record] = [
        (topics.rows, 1, b"\x00k", b"\x00v", headers),
        (topics.rows, 1, b"\x00k", None, headers),
        (topics.rows, 1, None, b"t", []),
    ]
    finish(sink, Batch(records, topics.watermark(1)))

    consumer = Consumer({**topics.kafka, "group.id": "test", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topics.rows, 1, 0)])
        found = consumer.consume(3, timeout=30 * PATIENCE)
    finally:
        consumer.close()

    assert [(m.partition(), m.key(), m.value(), m.headers() or []) for m in found] == [
        record[1:] for record in records
    ]


def test_pieces_without_watermark_are_invisible_until_the_one_with_it(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    for _ in range(3):
        finish(sink, Batch(topics.records(10)))
    wait_until(lambda: topics.uncommitted() == 30, 60, "the records to reach the broker")

    with pytest.raises(TransientError, match="still open"):
        list(read_compacted(topics.kafka, topics.rows, 5))

    finish(sink, Batch(topics.records(1), topics.watermark(1)))

    assert len(topics.visible()) == 31


def test_close_aborts_the_pieces_that_were_not_committed(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    finish(sink, Batch(topics.records(10), topics.watermark(1)))
    finish(sink, Batch(topics.records(10)))

    sink.close()

    assert len(topics.visible()) == 10
    assert committed(topics) == topics.watermark(1)


def test_close_lets_a_commit_in_flight_finish(topics: Topics, sink: TransactionalSink) -> None:
    sink.open()
    sink.submit(Batch(topics.records(5000), topics.watermark(1)))

    sink.close(timeout_s=30)

    assert len(topics.visible()) == 5000


def test_open_aborts_what_a_killed_predecessor_left(topics: Topics, tmp_path: Path) -> None:
    script = tmp_path / "predecessor.py"
    script.write_text(
        "import json, sys, time\n"
        "from confluent_kafka import Consumer, Producer, TopicPartition\n"
        "properties, topic = json.loads(sys.argv[1])\n"
        "producer = Producer(properties)\n"
        "producer.init_transactions(30)\n"
        "producer.begin_transaction()\n"
        "for n in range(10):\n"
        "    producer.produce(topic, value=b'x', key=b'dead', partition=0)\n"
        "producer.flush(30)\n"
        "print('produced', flush=True)\n"
        "sys.stdin.read()\n"
    )
    properties = {**topics.kafka, "transactional.id": topics.identity.transactional_id}
    predecessor = subprocess.Popen(
        [sys.executable, str(script), json.dumps([properties, topics.rows])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with predecessor:
        assert predecessor.stdout is not None
        assert predecessor.stdout.readline() == b"produced\n"
        os.kill(predecessor.pid, signal.SIGKILL)

    with make_sink(topics) as sink:
        assert sink.open().watermark is None
        finish(sink, Batch(topics.records(2), topics.watermark(1)))

    assert topics.visible() == [b"k0", b"k1"]


@pytest.mark.parametrize("pieces", [0, 1], ids=["between transactions", "within one"])
def test_second_gateway_on_the_slot_fences_the_first(
    topics: Topics, sink: TransactionalSink, pieces: int
) -> None:
    sink.open()
    finish(sink, Batch(topics.records(1), topics.watermark(1)))
    for _ in range(pieces):
        finish(sink, Batch(topics.records(1)))

    with make_sink(topics) as second:
        assert second.open().watermark == topics.watermark(1)

        with pytest.raises(FencedError, match="another gateway took over"):
            finish(sink, Batch(topics.records(1), topics.watermark(2)))
        finish(second, Batch(topics.records(1), topics.watermark(3)))

    assert len(topics.visible()) == 2
    assert committed(topics) == topics.watermark(3)


@pytest.mark.parametrize("size", [5_000, 2_000_000], ids=["for the topic", "for the client"])
def test_record_too_large_names_topic_and_settings(
    topics: Topics, sink: TransactionalSink, size: int
) -> None:
    small = f"{topics.prefix}.small"
    ensure_topics(topics.kafka, [TopicSpec(small, config={"max.message.bytes": "2000"})])
    sink.open()
    noise = os.urandom(size)  # compressed records would fit again

    with pytest.raises(FatalError, match=small) as caught:
        finish(sink, Batch([(small, 0, None, noise, [])], topics.watermark(1)))

    assert "max.message.bytes" in str(caught.value)
    assert "message.max.bytes" in str(caught.value)
    assert committed(topics) is None


def test_batch_larger_than_the_client_queue_passes(topics: Topics) -> None:
    with make_sink(topics, **{"queue.buffering.max.messages": "100"}) as sink:
        sink.open()

        finish(sink, Batch(topics.records(2000), topics.watermark(1)))

    assert len(topics.visible()) == 2000


def test_watermark_behind_another_gateways_open_transaction_is_waited_for(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    finish(sink, Batch([], topics.watermark(1)))
    other = Producer({**topics.kafka, "transactional.id": f"{topics.prefix}-other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(topics.progress, value=b"", key=b"", partition=0)
    other.flush(30)
    finish(sink, Batch([], topics.watermark(2)))

    with pytest.raises(TransientError, match="another gateway's Kafka transaction"):
        read_progress(topics.kafka, topics.progress, topics.identity, 5)

    with pytest.raises(TransientError, match="another gateway's Kafka transaction"):
        read_progress(topics.kafka, topics.progress, topics.identity, 5, succeeding=True)

    other.abort_transaction(30)
    assert committed(topics) == topics.watermark(2)


def test_watermark_before_a_transaction_that_a_killed_predecessor_has_left_open_is_the_last(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    finish(sink, Batch([], topics.watermark(1)))
    [key, *_] = (key for key, _ in read_compacted(topics.kafka, topics.progress, 30))
    killed = leave_open(topics.kafka, topics.identity, topics.progress, key)

    seen = read_progress(topics.kafka, topics.progress, topics.identity, 30, succeeding=True)

    killed.abort_transaction(30)
    assert seen.watermark == topics.watermark(1)


def test_a_foreign_record_in_the_progress_topic_is_passed_over_and_named(
    topics: Topics, sink: TransactionalSink
) -> None:
    sink.open()
    finish(sink, Batch([], topics.watermark(1)))
    producer = Producer(topics.kafka)
    producer.produce(topics.progress, key=b"what", value=b"ever", partition=0)
    producer.flush(30)

    recovered = read_progress(topics.kafka, topics.progress, topics.identity, 30)

    assert recovered.watermark == topics.watermark(1)
    assert len(recovered.unreadable) == 1
    assert recovered.unreadable[0].startswith("a key: ")


def test_parts_of_the_state_are_read_back_as_they_were_written_last(
    topics: Topics, sink: TransactionalSink
) -> None:
    written = StatePart("set", "a/0.0", b"1"), StatePart("moves", "7/w", b"1")
    progress = KafkaProgress(topics.kafka, topics.identity, FixedIds())
    sink.open()
    finish(sink, Batch([], topics.watermark(1), parts=written))
    finish(sink, Batch([], topics.watermark(2), parts=(StatePart("set", "a/0.0", b"2"),)))
    assert committed(topics) == topics.watermark(2)
    producer = Producer(topics.kafka)
    encoded = [key for _, _, key, _, _ in progress.encode(topics.watermark(2), parts=written)]
    for key in (key for key in encoded if key and decode_key(key[5:]).kind in ("set", "moves")):
        before = read_progress(topics.kafka, topics.progress, topics.identity, 30).parts
        producer.produce(topics.progress, key=key, value=b"ever", partition=0)
        producer.flush(30)

    after = read_progress(topics.kafka, topics.progress, topics.identity, 30)

    # A set without one of its records is built again; a move that is not known is no end of it.
    assert before == {"moves": {"7/w": b"1"}}
    assert after.parts == {"moves": {"7/w": b""}}
    assert len(after.unreadable) == 2


def test_kafka_that_is_down_is_transient_within_the_time_given(topics: Topics) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    progress = KafkaProgress(nowhere, topics.identity, FixedIds())

    with within(20, "three calls of two seconds"):
        with (
            TransactionalSink(nowhere, topics.identity, progress) as sink,
            pytest.raises(TransientError, match=r"bootstrap\.servers"),
        ):
            sink.open(timeout_s=2)
        with pytest.raises(TransientError):
            describe_topics(nowhere, ["t"], timeout_s=2)
        with pytest.raises(TransientError):
            read_progress(nowhere, "t", topics.identity, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transactional.id", "mine"),
        ("enable.idempotence", "false"),
        ("acks", "1"),
        ("isolation.level", "read_uncommitted"),
        ("partitioner", "random"),
        ("no.such.property", "1"),
        ("security.protocol", "s3cret"),
    ],
)
def test_property_that_must_not_be_set_is_named(topics: Topics, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        make_sink(topics, **{name: value})

    assert "s3cret" not in str(caught.value)


def test_transaction_timeout_beyond_the_brokers_is_a_setting_at_fault(topics: Topics) -> None:
    with (
        make_sink(topics, **{"transaction.timeout.ms": "2000000"}) as sink,
        pytest.raises(ConfigError, match=r"kafka\.transaction\.timeout\.ms"),
    ):
        sink.open()


def test_the_first_range_begins_after_records_of_an_aborted_transaction(topics: Topics) -> None:
    killed = Producer({**topics.kafka, "transactional.id": f"{topics.prefix}.killed"})
    killed.init_transactions(60)
    killed.begin_transaction()
    for number in range(3):
        killed.produce(topics.rows, key=b"k%d" % number, partition=0)
    assert killed.flush(60) == 0
    killed.abort_transaction(60)

    bounds = read_log_bounds(topics.kafka, {topics.rows: 2})
    ends = tuple(each.end for each in bounds[topics.rows])
    progress = KafkaProgress(topics.kafka, topics.identity, FixedIds(), topic=topics.progress)
    with TransactionalSink(topics.kafka, topics.identity, progress) as sink:
        sink.open()
        sink.begin_after({topics.rows: ends})
        finish(sink, Batch(topics.records(2), topics.watermark(1), topics.cut(1)))

    assert ends == (4, 0)  # three records, and the marker of the abort
    assert topics.offsets() == [[(0, 4, 6, 4, 2)]]


def test_a_topic_that_is_made_again_and_filled_is_noticed_by_a_sink_that_goes_on(
    topics: Topics,
) -> None:
    progress = KafkaProgress(topics.kafka, topics.identity, FixedIds(), topic=topics.progress)
    admin = AdminClient({"bootstrap.servers": topics.kafka["bootstrap.servers"]})
    with TransactionalSink(topics.kafka, topics.identity, progress, compare_s=0) as sink:
        sink.open()
        sink.begin_after({}, read_topic_ids(topics.kafka, [topics.rows, topics.markers]))
        for number in (1, 2):
            finish(sink, Batch(topics.records(1), topics.watermark(number), topics.cut(number)))
        admin.delete_topics([topics.rows])[topics.rows].result(60)
        wait_until(lambda: not describe_topics(topics.kafka, [topics.rows]), 60, "the deletion")
        ensure_topics(topics.kafka, [TopicSpec(topics.rows, partitions=2)])
        filler = Producer({"bootstrap.servers": topics.kafka["bootstrap.servers"]})
        for _ in range(9):  # more than were written before
            filler.produce(topics.rows, key=b"filler", partition=0)
        assert filler.flush(60) == 0

        sink.submit(Batch(topics.records(1), topics.watermark(3), topics.cut(3)))
        assert wait_readable([sink.fileno()], 60)
        with pytest.raises(LostRecordsError, match="it was deleted and recreated") as raised:
            sink.collect()

    assert set(raised.value.topics) == {topics.rows}
    assert topics.visible() == [b"filler"] * 9
    assert committed(topics) == topics.watermark(2)
