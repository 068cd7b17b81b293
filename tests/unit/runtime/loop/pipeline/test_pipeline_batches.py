"""Batches of the loop: changes that share a Kafka transaction, and the time of its commit."""

from __future__ import annotations

import pytest

from gateway.config import LimitsTable
from tests.support.gateway.fakes import FakeSink
from tests.support.gateway.pipeline_scene import BenchFactory, transaction


def test_transactions_share_a_kafka_transaction_while_the_sink_is_busy(
    bench: BenchFactory,
) -> None:
    turns = [transaction(xid, 1000 + 100 * xid) for xid in range(1, 9)]
    b = bench(turns, sink=FakeSink(delay=20), stop_after=200)

    b.pipeline.run()

    with_rows = [c for c in b.sink.committed if any(r[3] == b"END 8" for r in c.records)]
    assert len(with_rows) == 1
    assert any(r[3] == b"END 2" for r in with_rows[0].records)


def test_a_transaction_larger_than_a_batch_is_one_kafka_transaction(bench: BenchFactory) -> None:
    limits = LimitsTable(max_batch_records=1500)
    b = bench([transaction(7, 2000, rows=5000)], limits=limits)

    b.pipeline.run()

    pieces = [batch for batch in b.sink.batches if any(r[3] == b"7" for r in batch.records)]
    whole = [c for c in b.sink.committed if any(r[3] == b"7" for r in c.records)]
    assert len(pieces) > 1
    assert len(whole) == 1
    assert sum(r[3] == b"7" for r in whole[0].records) == 5000
    assert whole[0].records[-1][3] == b"END 7" or b"PROGRESS" in (whole[0].records[-1][3] or b"")


def test_a_full_batch_is_committed_although_more_waits(bench: BenchFactory) -> None:
    limits = LimitsTable(max_batch_records=1000)
    frames = [f for xid in range(1, 101) for f in transaction(xid, 1000 * xid, rows=99)]
    b = bench([frames], limits=limits)

    b.pipeline.run()

    sizes = [len(c.records) for c in b.sink.committed]
    assert sum(sizes) >= 10_000
    assert max(sizes) < 1000 + 100 + 10  # a transaction more, and PROGRESS
    assert all(b.watermark is not None for b in b.sink.batches)


@pytest.mark.parametrize(
    ("topics", "delay", "most"),
    [(9, 0, 1_000), (20, 0, 20_000), (20, 2_500, 3_200)],
    ids=["few topics", "many topics", "many topics, slow broker"],
)
def test_what_has_few_records_for_each_of_many_topics_is_committed_less_often(
    bench: BenchFactory, topics: int, delay: int, most: int
) -> None:
    # A turn takes a millisecond and more: of a slow broker, a piece takes more than two seconds.
    limits = LimitsTable(max_batch_records=1000)
    frames = [f for xid in range(1, 1001) for f in transaction(xid, 1000 * xid, rows=49)]
    b = bench([frames], sink=FakeSink(delay=delay), limits=limits, stop_at=1_000_010)
    b.router.topics = topics

    b.pipeline.run()

    piece = max(1_000, 80 * topics)
    sizes = [len(c.records) for c in b.sink.committed]
    assert sum(sizes) >= 50_000
    assert most <= max(sizes) < most + piece + 50 + 10
    assert not any(batch.kept for batch in b.sink.batches if batch.watermark is None)
    ends = [v for v in b.values() if v.startswith(b"END")]
    assert ends == [b"END %d" % xid for xid in range(1, 1001)]


@pytest.mark.parametrize(("topics", "size"), [(1, 2_000), (25, 2_000), (50, 4_000), (200, 6_000)])
def test_of_many_topics_more_is_gathered_so_that_each_gets_a_request_worth_sending(
    bench: BenchFactory, topics: int, size: int
) -> None:
    # After each turn a batch is older than max_batch_ms, which does not cut it short here.
    limits = LimitsTable(max_batch_records=2_000, max_batch_ms=1)
    frames = [f for xid in range(1, 5_001) for f in transaction(xid, 1000 * xid, rows=4)]
    b = bench([frames], limits=limits, stop_at=5_000_010)
    b.router.topics = topics

    b.pipeline.run()

    *sizes, _ = (len(batch.records) for batch in b.sink.batches if batch.records)
    assert size <= min(sizes) <= max(sizes) < size + 50


@pytest.mark.parametrize(
    ("rows", "kept"), [(3_000, True), (18_000, False)], ids=["a few pieces", "many pieces"]
)
def test_pieces_are_kept_only_where_all_of_them_can_be(
    bench: BenchFactory, rows: int, kept: bool
) -> None:
    limits = LimitsTable(max_batch_records=2_000)
    b = bench([transaction(7, 2000, rows), transaction(8, 20_000)], limits=limits)

    b.pipeline.run()

    pieces = [batch for batch in b.sink.batches if batch.watermark is None]
    assert pieces
    assert {batch.kept for batch in pieces} == {kept}
    assert all(batch.kept for batch in b.sink.batches if batch.watermark is not None)


def test_a_piece_that_is_larger_because_of_its_many_topics_is_not_kept(
    bench: BenchFactory,
) -> None:
    limits = LimitsTable(max_batch_records=1_000)
    small = [f for xid in range(1, 201) for f in transaction(xid, 1000 * xid, rows=4)]
    b = bench([small + transaction(201, 300_000, rows=3_000)], limits=limits)
    b.router.topics = 200

    b.pipeline.run()

    first, *_ = (batch for batch in b.sink.batches if batch.watermark is None)
    assert len(first.records) >= 3_000
    assert not first.kept
