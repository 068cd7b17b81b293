"""Columns of an Iceberg table, and how they change: by Iceberg's field identifiers.

A column that is added, dropped, renamed or made wider leaves the files as they are. Only if rows
that are there have a value in a new column, or a type becomes one that Iceberg cannot read the
files as, they are written again, in the same commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, VariantType

from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.formats.iceberg.metadata import State
from spark_consumer.formats.schema_evolution import Add, Drop, Rename, Step, Widen
from spark_consumer.names import quoted
from spark_consumer.values.conversions import literal

__all__ = ["alter_columns", "replace_columns"]

_VARIANTS: Final = 3
"""Version of Iceberg's format since which tables have VARIANT."""


def replace_columns(state: State, fields: Sequence[StructField]) -> None:
    """Let the transaction of a state give the table other columns, if they differ."""
    before = state.metadata.fields(state.base)
    if _described(before) == _described(fields):
        return
    _allow(state, fields)
    update = state.changes.updateSchema()
    for field in before:
        update.deleteColumn(field.name)
    _add(state, update, fields)
    update.commit()


def alter_columns(state: State, steps: Iterable[Step], rows: DataFrame) -> DataFrame | None:
    """Let the transaction of a state follow steps.

    Args:
        state: State of the table.
        steps: Steps.
        rows: Rows of the table in the state.

    Returns:
        The rows as they are then, if they have to be written again.

    Raises:
        TableError: the value of rows in a new column cannot be parsed.
    """
    again = False
    steps = list(steps)
    _allow(state, [step.field for step in steps if isinstance(step, Add)])
    for step in steps:
        update = state.changes.updateSchema().caseSensitive(True)
        match step:
            case Rename(name, to):
                update.renameColumn(name, to)
                rows = rows.withColumnRenamed(name, to)
            case Drop(name):
                update.deleteColumn(name)
                rows = rows.drop(F.col(quoted(name)))
            case Widen(name, to):
                again = _widen(state, update, rows.schema[name], to) or again
                rows = rows.withColumn(name, F.col(quoted(name)).cast(to))
            case Add(field, missing, exists):
                if not exists:
                    _add(state, update, [field])
                again = again or missing is not None
                value = _value(state, field, missing)
                if missing is not None or not exists:
                    rows = rows.withColumn(field.name, value)
        update.commit()
    return rows if again else None


def _allow(state: State, fields: Iterable[StructField]) -> None:
    """Give the table the version of Iceberg's format that types of columns require."""
    has_variants = any(isinstance(field.dataType, VariantType) for field in fields)
    if has_variants and int(state.changes.currentMetadata().formatVersion()) < _VARIANTS:
        update = state.changes.updateProperties()
        update.set("format-version", str(_VARIANTS))
        update.commit()


def _widen(state: State, update: Any, field: StructField, to: DataType) -> bool:
    """Change a column's type; return whether the rows have to be written again."""
    wide = StructField(field.name, to, True, field.metadata)
    kind = state.metadata.schema([wide]).columns().get(0).type()
    jvm = state.metadata.jvm
    before = state.changes.currentMetadata().schema().findField(field.name).type()
    if jvm.org.apache.iceberg.types.TypeUtil.isPromotionAllowed(before, kind):
        update.updateColumn(field.name, kind)
        return False
    update.deleteColumn(field.name)
    _add(state, update, [wide])
    return True


def _add(state: State, update: Any, fields: Sequence[StructField]) -> None:
    for column in state.metadata.schema(fields).columns():
        # A name that is given a parent, even none, may have a dot.
        update.addColumn(None, column.name(), column.type(), column.doc())


def _value(state: State, field: StructField, missing: str | None) -> Any:
    if missing is None:
        return F.lit(None).cast(field.dataType)
    try:
        return literal(missing, field)
    except ValueError as error:
        raise TableError(
            f"{state.metadata.label}: what rows have in the new column {field.name!r} is {error}",
            hint=COPY_AGAIN,
        ) from error


def _described(fields: Iterable[StructField]) -> list[tuple[str, str, str | None]]:
    return [(f.name, f.dataType.simpleString(), f.metadata.get("comment")) for f in fields]
