"""Columns of a history follow renames to the end, wherever an earlier attempt at them ended."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_consumer.errors import TableError
from spark_consumer.formats.schema_evolution import Add, Known, Rename
from spark_consumer.history.columns import OWN, evolved
from spark_consumer.kafka.layout import Column, Layout

INT = IntegerType()
Numbers = dict[str, int]


def follow(there: Numbers, known: Numbers, columns: Numbers, steps: int) -> Numbers:
    """Do some of the steps; return the columns by name, with the number of each one's values."""
    layout = Layout(tuple(Column(n, n, "integer", number=number) for n, number in columns.items()))
    found = evolved(
        [*OWN, *(StructField(name, INT) for name in there)],
        {name: Known("integer", number) for name, number in known.items()},
        layout,
        StructType([StructField(name, INT) for name in columns]),
        "history h",
        copied=False,
    )
    there = dict(there)
    for step in found[:steps]:
        match step:
            case Rename(name, to):
                assert to not in there
                there[to] = there.pop(name)
            case Add(field):
                assert field.name not in there
                there[field.name] = columns[field.name]
            case _:
                pytest.fail(f"{step}")
    return there


@pytest.mark.parametrize(
    ("more", "columns"),
    [
        ({}, {"b": 1, "c": 2}),
        # A column that went long ago.
        ({"c": 9}, {"b": 1, "c": 2}),
        ({}, {"c": 1}),
        ({}, {"c": 1, "d": 2}),
    ],
    ids=["chain", "chain to a name that is left over", "name of none", "two"],
)
def test_renames_end_alike_wherever_an_attempt_ends(more: Numbers, columns: Numbers) -> None:
    known = {"a": 1, "b": 2}
    for done in range(5):
        there = follow({**known, **more}, known, columns, done)
        there = follow(there, known, columns, 5)
        assert {name: there[name] for name in columns} == columns, done
        assert set(there.values()) == {1, 2, *more.values()}, done


def test_a_rename_that_may_be_done_already_is_refused() -> None:
    known, columns = {"a": 1}, {"c": 1, "a": 4}
    there = follow(known, known, columns, 1)
    assert follow(there, known, columns, 5) == columns
    with pytest.raises(TableError, match=r"'a' was renamed to 'c', .* does not show"):
        follow(columns, known, columns, 5)
