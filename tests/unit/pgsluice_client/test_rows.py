"""Rows of a table without a server: what the store holds, and what cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgsluice_client import Change, Column, Position, ReadError, TableRows

A = Column("a", "a", 1, "integer", "", "int", None, None)
B = Column("b", "b", 2, "text", "text", "string", None, None)
INSERT = Change(
    schema="public",
    table="t",
    op="c",
    key={"a": 1},
    old_key={"a": 1},
    before=None,
    after={"a": 1, "b": "x"},
    unchanged=frozenset(),
    begins_copy=False,
    lsn="00000000/00000001",
    seq=1,
    columns=(A, B),
)


def test_a_store_is_followed_across_a_restart_between_two_schemas() -> None:
    store: dict[str, list[dict[str, object]]] = {}
    TableRows(store).apply(INSERT)
    renamed = replace(B, name="c", field="c")
    added = Column("d", "d", 3, "integer", "", "int", "7", None)
    later = {"key": {"a": 2}, "old_key": {"a": 2}, "after": {"a": 2, "c": "y", "d": 0}}

    rows = TableRows(store)
    rows.apply(replace(INSERT, columns=(A, renamed, added), **later))  # type: ignore[arg-type]

    assert list(rows) == [{"a": 1, "c": "x", "d": 7}, {"a": 2, "c": "y", "d": 0}]


def test_a_column_without_a_number_keeps_its_values() -> None:
    rows = TableRows()
    rows.apply(INSERT)

    rows.apply(
        replace(INSERT, op="d", key={"a": 5}, after=None, columns=(A, replace(B, number=None)))
    )

    assert list(rows) == [{"a": 1, "b": "x"}]


def test_a_table_that_was_truncated_knows_its_columns_again() -> None:
    store: dict[str, list[dict[str, object]]] = {}
    rows = TableRows(store)
    rows.apply(INSERT)

    rows.apply(replace(INSERT, op="t", key=None, old_key=None, after=None))

    assert list(rows) == []
    assert store == {"": [{"a": 1, "b": 2}]}


def test_a_value_of_earlier_rows_that_cannot_be_read_is_named() -> None:
    rows = TableRows()
    rows.apply(INSERT)
    period = Column("p", "p", 3, "interval", "", {"type": "record", "fields": []}, "1 day", None)

    with pytest.raises(ReadError, match="column p"):
        rows.apply(replace(INSERT, columns=(A, B, period)))


def test_a_position_is_read_back_and_nothing_else_is() -> None:
    position = Position(
        "s",
        "00000000/00000008",
        5,
        {("s.public.t", 2): 7},
        inside=True,
        waiting=frozenset({"x"}),
        owner=("1", "d", "slot"),
        handed_over=frozenset({("s.public.t", 0), ("s.public.t", 1)}),
    )

    assert Position.from_json(position.to_json()) == position
    for other in ('{"offset": 1}', "", "[]"):
        with pytest.raises(ReadError, match="not a position"):
            Position.from_json(other)
