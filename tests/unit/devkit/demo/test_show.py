from __future__ import annotations

from devkit.demo.show import format_row, format_table, side_by_side
from devkit.demo.verdict import TableRows


def test_a_table_looks_as_in_psql() -> None:
    table = TableRows(("a", "b", "c"), (("6", "999", "NSW"), ("555", None, "N")))

    assert format_table("t1", table, most_rows=9) == [
        "t1",
        "  a  |  b  |  c",
        "-----+-----+-----",
        "   6 | 999 | NSW",
        " 555 |     | N",
        "(2 rows)",
    ]


def test_an_empty_table_has_its_head() -> None:
    assert format_table("t3", TableRows(("g",), ()), most_rows=9) == [
        "t3",
        " g",
        "---",
        "(0 rows)",
    ]


def test_rows_beyond_the_most_are_counted() -> None:
    table = TableRows(("a",), tuple((str(n),) for n in range(5)))

    assert format_table("t", table, most_rows=3)[-2:] == [" ... and 2 more", "(5 rows)"]


def test_one_row_is_not_rows() -> None:
    assert format_table("t", TableRows(("a",), (("1",),)), most_rows=3)[-1] == "(1 row)"


def test_blocks_of_different_height_stand_side_by_side() -> None:
    assert side_by_side(["a", "bb"], ["x", "y", "z"], gap=2) == ["a   x", "bb  y", "    z"]


def test_a_row_reads_as_sql() -> None:
    assert format_row(("6", None, "NSW")) == "(6, NULL, NSW)"
