"""Changes as a format writes them: rows, or the outcome of a batch by key or by value.

Conditions and expressions are SQL over two frames: the table's rows as `t`, `source` as `s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyspark.sql import DataFrame

from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.names import quoted

__all__ = [
    "NEEDS_ROW",
    "KeyedChanges",
    "ValueChanges",
    "WriteMode",
    "assigned",
    "same_key",
    "same_value",
]

NEEDS_ROW: Final = "s.action = 'set' OR s.action = 'delete' AND NOT s.made"
"""Condition for outcomes that the source applied to a row: the table should have that row."""


class WriteMode(Enum):
    """Treatment of a table's rows and columns by a write of rows.

    Attributes:
        APPEND: Rows are added to those of the table.
        REPLACE_ROWS: They take the place of the table's rows, as after a TRUNCATE.
        REPLACE_TABLE: Their columns take the place of the table's columns, too, as with a new copy.
    """

    APPEND = auto()
    REPLACE_ROWS = auto()
    REPLACE_TABLE = auto()

    @property
    def empties(self) -> bool:
        """Whether the table's rows are removed."""
        return self is not WriteMode.APPEND


def same_key(keys: Sequence[ColumnPlan]) -> str:
    """Return the condition that `s` is the outcome for the row `t`."""
    return " AND ".join(
        f"{c.canonical('t.' + quoted(c.name), key=True)} = s.k.`{c.field}`" for c in keys
    )


def same_value(columns: Sequence[ColumnPlan]) -> str:
    """Return the condition that `s` removes the row `t`."""
    return " AND ".join(
        ["s.action = 'delete'"]
        + [
            f"{c.canonical('t.' + quoted(c.name))} <=> {c.canonical(f's.v.`{c.field}`')}"
            for c in columns
        ]
    )


def assigned(columns: Sequence[ColumnPlan]) -> dict[str, str]:
    """Return each column's value after a put or a set, by name; unsent columns keep that of `t`."""
    return {
        c.name: f"CASE WHEN s.action = 'put' OR array_contains(s.sent, '{c.field}')"
        f" THEN s.v.`{c.field}` ELSE t.{quoted(c.name)} END"
        for c in columns
    }


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """Changes of a batch to rows that are identified by a key.

    Attributes:
        source: Frame with one row per key: `k`, the key in canonical form by Avro field; `action`:
            `put` a row, whether it exists or not, `set` some columns of an existing row, `delete`
            it; `v`, the row by Avro field; `sent`, the fields of `v` that a `set` has; `made`, of
            a `delete`: the row came with the same batch. It can be read several times.
        columns: Columns of the table, in order.
        keys: Columns of the key.
        bounds: Condition on `t` that every row with one of the keys meets.
        needing: Number of outcomes that are `NEEDS_ROW`.
        puts: Number of outcomes that put a row.
        partial: Number of outcomes that set some columns of a row only.
        changes: Number of changes that the batch had.
    """

    source: DataFrame
    columns: Sequence[ColumnPlan]
    keys: Sequence[ColumnPlan]
    bounds: str
    needing: int
    puts: int
    partial: int
    changes: int


@dataclass(frozen=True, slots=True)
class ValueChanges:
    """Changes of a batch to rows that are identified by their values.

    Attributes:
        source: Frame of `action`: `insert` one row, or `delete` all rows that are equal to `v`,
            except those that are inserted; and `v`, the row by Avro field.
        columns: Columns of the table, in order.
    """

    source: DataFrame
    columns: Sequence[ColumnPlan]
