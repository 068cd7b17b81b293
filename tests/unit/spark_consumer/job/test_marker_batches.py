"""Batches of markers, by hand."""

from __future__ import annotations

from spark_consumer.job.marker_batches import MarkerBatch
from spark_consumer.kafka.markers import Marker


def test_a_cut_without_a_time_is_as_late_as_the_last_commit_before_it() -> None:
    batch = MarkerBatch((Marker(0, 0x100, 7), Marker(1, 0x110, 9), Marker(2, 0x120)))

    assert batch.cut.commit_time is None
    assert (batch.first_commit_time(), batch.last_commit_time()) == (7, 9)
    assert MarkerBatch((Marker(0, 0x100),)).last_commit_time() is None
