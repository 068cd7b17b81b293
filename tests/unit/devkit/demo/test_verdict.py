from __future__ import annotations

import pytest

from devkit.demo.verdict import TableKey, TableRows, compare, summary

T1: TableKey = ("s1", "public", "t1")
T2: TableKey = ("s1", "public", "t2")
ROWS = TableRows(("a", "c"), (("6", "NSW"), ("9", None)))


def test_the_same_rows_in_another_order_are_equal() -> None:
    rebuilt = TableRows(("a", "c"), tuple(reversed(ROWS.rows)))

    (comparison,) = compare({T1: ROWS}, {T1: rebuilt})

    assert comparison.equal
    assert comparison.differences() == []


def test_the_same_columns_in_another_order_are_equal() -> None:
    rebuilt = TableRows(("c", "a"), (("NSW", "6"), (None, "9")))

    (comparison,) = compare({T1: ROWS}, {T1: rebuilt})

    assert comparison.equal


@pytest.mark.parametrize(
    ("rows", "differences"),
    [
        pytest.param(
            (("6", "NSW"),), ["s1: public.t1: row missing: (9, NULL)"], id="a row is missing"
        ),
        pytest.param(
            (*ROWS.rows, ("7", "NT")),
            ["s1: public.t1: row too many: (7, NT)"],
            id="a row too many",
        ),
        pytest.param(
            (*ROWS.rows, ("6", "NSW")),
            ["s1: public.t1: row too many: (6, NSW)"],
            id="a row twice",
        ),
        pytest.param(
            (("6", "NSW"), ("9", "")),
            ["s1: public.t1: row missing: (9, NULL)", "s1: public.t1: row too many: (9, )"],
            id="an empty text is not NULL",
        ),
    ],
)
def test_rows_that_differ_are_named(
    rows: tuple[tuple[str | None, ...], ...], differences: list[str]
) -> None:
    (comparison,) = compare({T1: ROWS}, {T1: TableRows(ROWS.columns, rows)})

    assert not comparison.equal
    assert comparison.differences() == differences


def test_a_table_that_was_not_rebuilt_is_a_difference_also_when_it_is_empty() -> None:
    (comparison,) = compare({T1: TableRows(("a",), ())}, {})

    assert not comparison.equal
    assert comparison.differences() == ["s1: public.t1: there is no rebuilt table"]


def test_a_rebuilt_table_that_is_not_subscribed_to_is_a_difference() -> None:
    (comparison,) = compare({}, {T1: TableRows(("a",), ())})

    assert not comparison.equal
    assert comparison.differences() == ["s1: public.t1: there is no native table"]


def test_other_columns_are_a_difference_also_without_rows() -> None:
    (comparison,) = compare({T1: TableRows(("a",), ())}, {T1: TableRows(("a", "b"), ())})

    assert not comparison.equal
    assert comparison.differences() == ["s1: public.t1: columns (a, b) instead of (a)"]


def test_the_summary_counts_every_table_of_either_side() -> None:
    comparisons = compare({T1: ROWS, T2: ROWS}, {T1: ROWS})

    assert summary(comparisons) == "verified: 1 of 2 tables equal the native subscription"
