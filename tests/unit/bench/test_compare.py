"""Conclusions of `make compare` from records: rows, events, and figures of a drained load."""

from __future__ import annotations

from collections import Counter

from bench.compare.orders import events_of
from bench.compare.records import Change, fold
from bench.compare.scenarios.ddl import wrong_rows
from bench.compare.scenarios.drain import Sample, figures


def test_rows_are_those_that_the_changes_leave_as_their_newest_columns() -> None:
    changes = [
        Change("c", {"id": 1}, None, {"id": 1, "name": "a"}),
        Change("t", {}, None, None),
        Change("c", {"id": 2}, None, {"id": 2, "name": "b"}),
        Change("c", {"id": 3}, None, {"id": 3, "name": "c"}),
        Change("u", {"id": 2}, None, {"id": 2, "title": "d"}),
        Change("d", {"id": 3}, {"id": 3}, None),
    ]

    assert fold(changes, ["id", "title"]) == {(2,): (2, "d")}


def test_a_row_is_wrong_that_is_missing_gone_or_other_than_in_the_table() -> None:
    rows = [(1, "a", 7), (2, "b", 7), (3, "c", 7)]
    right = {(1,): (1, "a", 7), (2,): (2, "b", None), (3,): (3, "c", 7)}

    assert wrong_rows(right, rows) == 0
    assert wrong_rows({}, rows) == 3
    assert wrong_rows({**right, (4,): (4, "d", 7)}, rows) == 1
    assert wrong_rows({**right, (3,): (3, "c", 8)}, rows) == 1


def test_an_event_is_a_key_with_its_version_and_a_delete_one_without() -> None:
    key = {"district": 2, "warehouse": 1, "id": 7}  # in whatever order
    changes = [
        Change("c", key, None, {**key, "version": 0}),
        Change("u", key, None, {**key, "version": 1}),
        Change("u", key, None, {**key, "version": 1}),
        Change("d", key, {**key, "version": 1}, None),
    ]

    assert events_of("new_order", changes) == Counter(
        {
            ("new_order", "1/2/7", 0): 1,
            ("new_order", "1/2/7", 1): 2,
            ("new_order", "1/2/7", None): 1,
        }
    )


def test_the_first_tenth_of_the_records_counts_for_nothing() -> None:
    samples = [
        Sample(at=0.0, visible=50, cpu_s=3.0),  # what was there before
        Sample(at=9.0, visible=50, cpu_s=4.0),
        Sample(at=10.0, visible=150, cpu_s=5.0),
        Sample(at=14.0, visible=650, cpu_s=7.0),
        Sample(at=19.0, visible=1050, cpu_s=9.5),
        Sample(at=25.0, visible=1050, cpu_s=9.9),
    ]

    found = figures(samples, written=2000, peak=123, begun=-4.0)

    assert found == {
        "rows a second": "200",  # 1,800 rows in 9 s
        "CPU, us a row": "2500",  # 4.5 s
        "peak memory, MiB": "123",
        "seconds from its start to the last row": "23.0",
    }
