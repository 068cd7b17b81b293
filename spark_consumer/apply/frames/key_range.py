"""Range of a batch's keys, so that files without such keys are not read.

Spark writes each bound as SQL. Python's dates end with the year 9999, PostgreSQL's do not, so no
value of a user's row is brought to Python but text and integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import Row
from pyspark.sql import functions as F

from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.names import quoted
from spark_consumer.values.keys import canonical

__all__ = ["NO_BOUNDS", "Bounds"]

NO_BOUNDS: Final = "TRUE"
_INTEGERS: Final = ("int", "bigint")
_BOUNDED: Final = (*_INTEGERS, "date", "timestamp", "timestamp_ntz", "string")
"""Types of key columns whose least and greatest values let Delta skip files."""


class Bounds:
    """Aggregates over a batch's keys, and conditions that follow from their values.

    Args:
        keys: Columns of the key.
    """

    def __init__(self, keys: Sequence[ColumnPlan]) -> None:
        self._columns = [
            column
            for column in keys
            if column.spark_type in _BOUNDED or column.spark_type.startswith("decimal")
            if canonical("x", column.spark_type, column.pg_type, key=True) == "x"
        ]

    def aggregates(self) -> list[Expr]:
        """Return aggregates over a frame with the keys in `k`: the answer is their only row."""
        aggregates = [F.lit(0).alias("none")]
        for number, column in enumerate(self._columns):
            least, greatest = (f"{end}(k.`{column.field}`)" for end in ("min", "max"))
            aggregates += [
                F.expr(_literal(least, column.spark_type)).alias(f"low{number}"),
                F.expr(_literal(greatest, column.spark_type)).alias(f"high{number}"),
            ]
            if column.spark_type in _INTEGERS:
                aggregates += [
                    F.expr(f"CAST({least} AS BIGINT)").alias(f"least{number}"),
                    F.expr(f"CAST({greatest} AS BIGINT)").alias(f"greatest{number}"),
                ]
        return aggregates

    def condition(self, answer: Row) -> str:
        """Return a condition on the table's keys, as `t`, that all keys of the batch meet."""
        if not self._columns or answer["low0"] is None:
            return NO_BOUNDS
        return " AND ".join(
            f"t.{quoted(column.name)} BETWEEN {answer[f'low{number}']}"
            f" AND {answer[f'high{number}']}"
            for number, column in enumerate(self._columns)
        )

    def least(self, answer: Row) -> dict[str, int]:
        """Return the least value by integer column; empty when the batch is."""
        return self._integers(answer, "least")

    def greatest(self, answer: Row) -> dict[str, int]:
        """Return the greatest value by integer column; empty when the batch is."""
        return self._integers(answer, "greatest")

    def _integers(self, answer: Row, end: str) -> dict[str, int]:
        return {
            column.name: int(answer[f"{end}{number}"])
            for number, column in enumerate(self._columns)
            if column.spark_type in _INTEGERS and answer[f"{end}{number}"] is not None
        }


def _literal(sql: str, spark_type: str) -> str:
    """Return SQL of a value as a literal, exactly, at both ends of every type."""
    if spark_type == "string":
        return f"concat('decode(X''', hex({sql}), ''', ''UTF-8'')')"
    if spark_type == "date":
        return f"concat('date_from_unix_date(', {_cast(f'unix_date({sql})', 'INT')}, ')')"
    if spark_type == "timestamp":
        return f"concat('timestamp_micros(', {_cast(f'unix_micros({sql})', 'BIGINT')}, ')')"
    if spark_type == "timestamp_ntz":
        # Sessions of the job have UTC as their time zone; see `SESSION_SETTINGS`.
        instant = _literal(f"CAST({sql} AS TIMESTAMP)", "timestamp")
        return f"concat('CAST(', {instant}, ' AS TIMESTAMP_NTZ)')"
    return _cast(sql, spark_type)


def _cast(sql: str, spark_type: str) -> str:
    return f"concat('CAST(''', {sql}, ''' AS {spark_type})')"
