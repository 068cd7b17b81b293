"""Frames between a history and its fold: versions that go on, and the outcome as it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.history.columns import ENDS, STARTS, Columns, own_field
from spark_consumer.history.fold import Truncate
from spark_consumer.kafka.layout import KeyLayout
from spark_consumer.names import quoted

__all__ = ["ended_versions", "outcomes", "struct", "versions_that_go_on"]

_NUMBER: Final = "CAST(conv(replace({0}, '/', ''), 16, 10) AS BIGINT)"


def versions_that_go_on(there: DataFrame, columns: Columns, key: KeyLayout | None) -> DataFrame:
    """Return the versions that go on, as `fold` wants them."""
    by_field = {column.field: column for column in columns.live}
    keys = list(by_field.values()) if key is None else [by_field[field] for field in key.fields]
    return there.select(
        struct((c.field, c.canonical(quoted(c.name), key=key is not None)) for c in keys).alias(
            "k"
        ),
        struct((c.field, quoted(c.name)) for c in columns.live).alias("v"),
        F.col("_row").alias("row"),
        F.col("_from_lsn").alias("lsn"),
        F.col("_from_seq").alias("seq"),
    )


def struct(parts: Iterable[tuple[str, str]]) -> Expr:
    """Return a struct of fields, given by name and SQL; of none, too."""
    return F.expr("named_struct(" + ", ".join(f"'{name}', {sql}" for name, sql in parts) + ")")


def ended_versions(base: DataFrame, at: Truncate) -> DataFrame:
    """Return all versions of `base`, ended."""
    return base.select(
        "row",
        F.expr("named_struct('row', row, 'lsn', lsn, 'seq', seq) AS old"),
        "v",
        F.expr("CAST(NULL AS STRUCT<lsn: STRING, seq: BIGINT, op: STRING>) AS f"),
        F.expr(f"named_struct('lsn', '{at.lsn}', 'seq', {at.seq}L, 'op', '{at.op}') AS t"),
    )


def outcomes(versions: DataFrame, columns: Columns, ends: DataFrame) -> DataFrame:
    """Return the source of `KeyedChanges` for some versions."""
    began, ended = (
        F.broadcast(ends.select(*(F.col(name).alias(f"{side}_{name}") for name in ends.columns)))
        for side in ("f", "t")
    )
    rows = versions.join(
        began, F.expr("f.lsn = f_lsn AND f.op <> 'r'"), "left"
    ).join(ended, F.expr("t.lsn = t_lsn AND t.op <> 'r'"), "left")  # fmt: skip
    values: dict[str, str] = {"_row": "coalesce(old.row, row)"}
    for side, names in (("f", STARTS), ("t", ENDS)):
        lsn, seq, time, op, xid, origin = names
        # A commit ends after its record's beginning. A copy has no transaction: its rows are those
        # of the transactions that end at its LSN or before.
        number = _NUMBER.format(f"{side}.lsn")
        after_it = f"{number} + IF({side}.op = 'r', 0, 1)"
        values[lsn] = f"coalesce({side}_end_lsn, {after_it})"
        values |= {seq: f"{side}.seq", op: f"{side}.op"}
        values |= {time: f"{side}_time", xid: f"{side}_xid", origin: f"{side}_origin"}
    live = {column.name for column in columns.live}
    parts = []
    for column in columns.every:
        sql = values.get(column.name, "NULL")
        if column.name in live:
            sql = f"v.`{column.field}`"
        parts.append(f"'{column.field}', CAST({sql} AS {column.spark_type})")
    sent = ", ".join(f"'{own_field(name)}'" for name in ENDS)
    key = (
        f"named_struct('{own_field('_row')}', coalesce(old.row, row),"
        f" '{own_field('_from_lsn')}', coalesce(old.lsn, {values['_from_lsn']}),"
        f" '{own_field('_from_seq')}', coalesce(old.seq, f.seq))"
    )
    return rows.select(
        F.expr(key).alias("k"),
        F.expr("IF(old IS NULL, 'put', 'set')").alias("action"),
        F.expr(f"named_struct({', '.join(parts)})").alias("v"),
        F.expr(f"IF(old IS NULL, CAST(array() AS ARRAY<STRING>), array({sent}))").alias("sent"),
        F.lit(False).alias("made"),
    )
