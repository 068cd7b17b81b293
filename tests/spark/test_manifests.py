"""States of the past: found by LSN and by time, and removed when they are old."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from spark_consumer.manifests import Manifest, Manifests, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def state(number: int) -> Manifest:
    return Manifest(
        "journal",
        marker=number,
        since_lsn=number * 16,
        since_time=number * 1_000_000,
        since_marker=number,
        end_lsn=number * 16,
        tables={"public.t": TableState(number, "topic")},
    )


def test_states_are_found_by_their_beginning_prolonged_and_removed_when_old(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = Manifests(spark, str(tmp_path), "s")
    before = Manifest("journal")
    for number in (1, 2, 3):
        before = kept.store(state(number), before)
    later = kept.store(replace(state(3), marker=9, since_marker=9, end_lsn=99), before)

    def at(**point: int) -> int | None:
        found = kept.at(**point)
        return None if found is None else found.tables["public.t"].version

    assert kept.newest() == later == replace(state(3), marker=9, end_lsn=99)
    assert [at(lsn=lsn) for lsn in (15, 16, 31, 32, 500)] == [None, 1, 1, 2, 3]
    assert [at(moment=second * 1_000_000) for second in (0, 1, 2, 9)] == [None, 1, 2, 3]

    folder = tmp_path / "s" / ".pgsluice"
    for path in sorted(folder.glob("*.json"))[:2]:
        os.utime(path, (0, 0))
    kept.prune(1.0)

    # The state that is the past's last one still answers for the time up to the next.
    assert [at(lsn=lsn) for lsn in (16, 32, 48)] == [None, 2, 3]


def test_a_state_whose_checksum_is_still_the_old_ones_is_read_when_that_has_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The job replaces a file in steps, while another process reads."""
    kept = Manifests(spark, str(tmp_path), "s")
    kept.store(replace(state(1), journal="first"), Manifest("first"))
    path = tmp_path / "s" / ".pgsluice" / state(1).name
    path.write_text(path.read_text().replace("first", "second"))
    last_step = Timer(0.5, path.with_name(f".{path.name}.crc").unlink)

    last_step.start()
    found = kept.newest()
    last_step.join()

    assert found is not None
    assert found.journal == "second"
