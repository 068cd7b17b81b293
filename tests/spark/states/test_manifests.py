"""States: the newest at any moment, past ones by LSN and by time, removed when they are old."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.errors import SettingsError, TableError
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.spark.files import Folder
from spark_consumer.states.manifests import Manifest, Manifests, TableState
from spark_consumer.states.points import find_state, why_none

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def state(number: int) -> Manifest:
    return Manifest(
        "markers",
        marker=number,
        since_lsn=number * 16,
        since_time=number * 1_000_000,
        since_marker=number,
        end_lsn=number * 16,
        tables={"public.t": TableState(Version(number), "topic")},
    )


def prolonged(number: int, end_lsn: int) -> Manifest:
    return replace(state(number), marker=end_lsn, since_marker=end_lsn, end_lsn=end_lsn)


def test_states_are_found_by_their_beginning_prolonged_and_removed_when_old(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = Manifests(spark, str(tmp_path), "s")
    assert kept.newest() is None
    assert "first cut" in why_none(kept)
    before = Manifest("markers")
    for number in (1, 2, 3):
        before = kept.store(state(number), before)
        before = kept.store(prolonged(number, number * 16 + 5), before)
    later = kept.store(prolonged(3, 99), before)

    def at(**point: int) -> tuple[int, int] | None:
        found = kept.at(**point)
        return None if found is None else (found.tables["public.t"].version, found.end_lsn)

    assert kept.newest() == later
    assert (later.since_marker, later.end_lsn, later.number) == (3, 99, 2)
    assert [at(lsn=lsn) for lsn in (15, 16, 31, 32, 500)] == [
        None, (1, 21), (1, 21), (2, 37), (3, 99),
    ]  # fmt: skip
    assert [at(commit_time=second * 1_000_000) for second in (0, 1, 2, 9)] == [
        None, (1, 21), (2, 37), (3, 99),
    ]  # fmt: skip

    with pytest.raises(TableError) as early:
        find_state(kept, "s", "0/1")
    assert early.value.hint == (
        "the job's first state is that of 0/10, committed at 1970-01-01T00:00:01+00:00"
    )

    # The first ended before yesterday, and the second, which was the one in force then, today.
    os.utime(tmp_path / "s" / ".pgsluice" / "states" / "000000000000.json", (0, 0))
    assert kept.prune(24.0, later) == 1
    assert [at(lsn=lsn) for lsn in (16, 32, 48)] == [None, (2, 37), (3, 99)]
    assert "that of 0/20, committed" in why_none(kept) and "(keep_hours)" in why_none(kept)
    assert Manifests(spark, str(tmp_path), "s").prune(0.0, later) == 1
    assert [at(lsn=lsn) for lsn in (16, 32, 48)] == [None, None, (3, 99)]
    assert "that of 0/30, committed" in why_none(kept)


def test_a_state_of_a_year_that_pythons_dates_lack_is_named_by_its_lsn(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = Manifests(spark, str(tmp_path), "s")
    kept.store(replace(state(1), since_time=(1 << 63) - 1), Manifest("markers"))

    assert why_none(kept) == "the job's first state is that of 0/10"


def test_a_store_that_a_crash_has_cut_off_leaves_the_state_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = Manifests(spark, str(tmp_path), "s")
    first = kept.store(state(1), Manifest("markers"))
    second = kept.store(state(2), first)
    third = kept.store(prolonged(2, 99), second)
    folder = tmp_path / "s" / ".pgsluice"
    whole = (folder / "newest.1").read_bytes()

    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        (folder / "newest.1").write_bytes(whole[:cut])
        assert kept.newest() == second
        assert kept.at(lsn=16) == first
    (folder / "newest.1").unlink()
    assert kept.newest() == second

    assert kept.store(prolonged(2, 99), second) == third == kept.newest()
    assert kept.store(state(3), third) == kept.newest()


def test_no_reader_goes_back_in_time_while_states_are_stored(
    spark: SparkSession, tmp_path: Path
) -> None:
    ended = threading.Event()

    def store() -> None:
        kept = Manifests(spark, str(tmp_path), "s")
        before = kept.store(state(1), Manifest("markers"))
        for number in range(2, 500):
            # The next state, or the same one for longer.
            following = state(number) if number % 3 == 0 else replace(before, end_lsn=number * 16)
            before = kept.store(replace(following, end_lsn=number * 16), before)
        ended.set()

    seen: list[int] = []
    reader = Manifests(spark, str(tmp_path), "s")
    writer = threading.Thread(target=store)
    writer.start()
    while not ended.is_set():
        if (found := reader.newest()) is not None:
            seen.append(found.end_lsn)
        else:
            assert not seen
    writer.join()

    assert len(set(seen)) > 20
    assert seen == sorted(seen)


def test_what_a_past_state_costs_hardly_grows_with_their_number(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 17_280
    kept = Manifests(spark, str(tmp_path), "s")
    first = kept.store(state(0), Manifest("markers"))
    newest = kept.store(replace(state(count), end_lsn=count * 16), first)
    text = (tmp_path / "s" / ".pgsluice" / "states" / "000000000000.json").read_text()
    for number in range(1, count):
        made = text.replace('"highest_lsn":0', f'"highest_lsn":{number * 16}')
        made = made.replace('"since_lsn":0', f'"since_lsn":{number * 16}')
        (tmp_path / "s" / ".pgsluice" / "states" / f"{number:012d}.json").write_text(made)
    newest = kept.store(replace(newest, marker=1), replace(newest, number=count))
    calls: list[str] = []
    for name in ("read", "time"):
        method = getattr(Folder, name)

        def counted(folder: Folder, file: str, method: Any = method) -> Any:
            calls.append(file)
            return method(folder, file)

        monkeypatch.setattr(Folder, name, counted)

    for lsn in (0, 16, 16 * 9_999 + 7, 16 * (count - 1)):
        found = kept.at(lsn=lsn)
        assert found is not None and found.since_lsn == lsn - lsn % 16
    assert len(calls) <= 4 * 20
    calls.clear()
    assert Manifests(spark, str(tmp_path), "s").prune(1.0, newest) == 0
    assert len(calls) <= 20


def test_a_file_system_that_spark_does_not_have_is_named(spark: SparkSession) -> None:
    with pytest.raises(SettingsError, match="no file system for it"):
        Folder(spark, "nowhere://bucket/s")
