"""Columns and properties of a Delta table, and how they change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import delta.tables
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.formats.delta.log import Log
from spark_consumer.formats.delta.session import METADATA
from spark_consumer.formats.schema_evolution import Add, Drop, Rename, Step, Widen
from spark_consumer.names import quoted
from spark_consumer.spark.tuning import tuned
from spark_consumer.values.conversions import literal

__all__ = ["Columns", "has_times", "needs_mapping"]

_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that column names in Parquet cannot have; Delta then maps names to others."""
_MAPPED: Final = "spark.databricks.delta.properties.defaults.columnMapping.mode"
_MAPPING: Final = "delta.columnMapping.mode"
_WIDENING: Final = "delta.enableTypeWidening"
_TIMES: Final = "delta.feature.timestampNtz"


class Columns:
    """Columns and properties of one table.

    Args:
        spark: Session that writes.
        path: Folder of the table.
        label: Name of the table in messages.
        log: Log of the table.
        widest: Whether column mapping and type widening are not enabled.
    """

    def __init__(
        self, spark: SparkSession, path: str, label: str, log: Log, *, widest: bool = False
    ) -> None:
        self._spark = spark
        self._widest = widest
        self._path = path
        self._label = label
        self._log = log

    def alter(self, steps: Iterable[Step]) -> None:
        """See `spark_consumer.formats.protocol.Table`."""
        values: dict[str, Expr] = {}
        with tuned(self._spark, {METADATA: '{"pgsluice":"columns"}'}):
            for step in steps:
                self._step(step, values)
            if values:
                table = delta.tables.DeltaTable.forPath(self._spark, self._path)
                table.update(set={quoted(name): value for name, value in values.items()})

    def need_features(self, steps: Iterable[Step]) -> bool:
        """Whether Delta follows steps only by features that readers may lack and the table lacks.

        Raises:
            TableError: a new column has a name that only they allow.
        """
        if not self._widest:
            return False
        steps = list(steps)
        is_mapped = self._is_mapped()
        added = [step.field.name for step in steps if isinstance(step, Add)]
        if not is_mapped and needs_mapping(added):
            raise self._refused(added)
        widens = (self._log.property(_WIDENING) or "").lower() == "true"
        return any(
            (isinstance(step, Rename | Drop) and not is_mapped)
            or (isinstance(step, Widen) and not widens)
            for step in steps
        )

    def altered(self, rows: DataFrame, steps: Iterable[Step]) -> DataFrame:
        """Return the rows of the table as they are after steps.

        Raises:
            TableError: the value of existing rows in a new column cannot be parsed.
        """
        fields = rows.schema.fields
        columns = {field.name: F.col(quoted(field.name)) for field in fields}
        comments = {field.name: field.metadata.get("comment") for field in fields}
        for step in steps:
            match step:
                case Rename(name, to):
                    named = {name: to}
                    columns = {named.get(key, key): value for key, value in columns.items()}
                    comments = {named.get(key, key): value for key, value in comments.items()}
                case Drop(name):
                    del columns[name]
                case Widen(name, to_type):
                    columns[name] = columns[name].cast(to_type)
                case Add(field, missing, exists):
                    null = F.lit(None).cast(field.dataType)
                    if missing is not None or not exists:
                        value = null if missing is None else self._value(field, missing)
                        columns[field.name] = value
                    comments[field.name] = field.metadata["comment"]
        return rows.select(
            *(
                value.alias(name, metadata={"comment": comments[name]} if comments[name] else {})
                for name, value in columns.items()
            )
        )

    def require(self, properties: Mapping[str, str]) -> None:
        """Set table properties that the user has not set."""
        log = self._log
        missing = {name: value for name, value in properties.items() if log.property(name) is None}
        if missing:
            self.set(missing)

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        with tuned(self._spark, {METADATA: '{"pgsluice":"properties"}'}):
            self._sql(f"SET TBLPROPERTIES ({listed})")

    def allow(self, fields: Sequence[StructField]) -> None:
        """Enable column types for which Delta requires a property, if the table exists."""
        if has_times(fields) and self._log.version() >= 0 and not has_times(self._log.fields()):
            self.require({_TIMES: "supported"})

    @contextmanager
    def mapping(self, columns: Sequence[str]) -> Iterator[None]:
        """Enable column names that Parquet cannot represent, for writes inside the block."""
        if not needs_mapping(columns):
            yield
        elif self._widest and not (self._log.version() >= 0 and self._is_mapped()):
            raise self._refused(columns)
        elif self._log.version() >= 0:
            self._map_columns()
            yield
        else:
            with tuned(self._spark, {_MAPPED: "name"}):
                yield

    def _step(self, step: Step, values: dict[str, Expr]) -> None:
        """Apply a step; values of existing rows in new columns are added to `values` instead."""
        match step:
            case Rename(name, to):
                self._map_columns()
                self._sql(f"RENAME COLUMN {quoted(name)} TO {quoted(to)}")
            case Drop(name):
                self._map_columns()
                self._sql(f"DROP COLUMN {quoted(name)}")
            case Widen(name, to):
                self.require({_WIDENING: "true"})
                self._sql(f"ALTER COLUMN {quoted(name)} TYPE {to.simpleString()}")
            case Add(field, missing, exists):
                if _NEEDS_MAPPING.search(field.name):
                    self._map_columns()
                self.allow([field])
                kind = field.dataType.simpleString()
                if missing is not None:
                    values[field.name] = self._value(field, missing)
                if not exists:
                    comment = str(field.metadata["comment"])
                    comment = comment.replace("\\", "\\\\").replace("'", "\\'")
                    added = f"{quoted(field.name)} {kind} COMMENT '{comment}'"
                    self._sql(f"ADD COLUMNS ({added})")

    def _value(self, field: StructField, missing: str) -> Expr:
        """Return the value of existing rows in a new column."""
        try:
            return literal(missing, field)
        except ValueError as error:
            raise TableError(
                f"{self._label}: what rows have in the new column {field.name!r} is {error}",
                hint=COPY_AGAIN,
            ) from error

    def _is_mapped(self) -> bool:
        return (self._log.property(_MAPPING) or "none").lower() != "none"

    def _refused(self, columns: Iterable[str]) -> TableError:
        name = next(name for name in columns if _NEEDS_MAPPING.search(name))
        return TableError(
            f"{self._label}: the column {name!r} can be in Delta tables with column mapping alone,"
            ' which readers = "widest" leaves out',
            hint='rename it, leave it out of the publications, or let readers be "current"',
        )

    def _map_columns(self) -> None:
        self.require({_MAPPING: "name"})

    def _sql(self, change: str) -> None:
        self._spark.sql(f"ALTER TABLE delta.{quoted(self._path)} {change}")


def needs_mapping(names: Iterable[str]) -> bool:
    """Whether Parquet cannot have some of these names."""
    return any(_NEEDS_MAPPING.search(name) for name in names)


def has_times(fields: Iterable[StructField]) -> bool:
    """Whether a column is a timestamp without time zone, or has parts that are."""
    return any("timestamp_ntz" in field.dataType.simpleString() for field in fields)
