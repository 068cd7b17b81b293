"""The Delta tables: where they are, how they begin, how they grow, and what they have applied.

The applied position of a table is the transaction identifier of its Delta log: for each topic
partition the last Kafka offset whose effect the table holds, written by the same commit as the
effect. The log keeps it for as long as the table exists, through checkpoints and clean-ups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from spark_consumer.decode import ColumnPlan
from spark_consumer.errors import TableError
from spark_consumer.layout import Layout
from spark_consumer.names import quoted

__all__ = ["SESSION_SETTINGS", "Commit", "Table", "widens"]

# What Parquet's column names cannot have; Delta then maps names to others.
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
_APP: Final = "pgsluice:{topic}:{partition}"
SESSION_SETTINGS: Final = {
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
}
_TXN: Final = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)


@dataclass(frozen=True, slots=True)
class Commit:
    """What a write says of itself in the same Delta commit.

    Attributes:
        topic: Where its changes come from.
        partition: Of that topic.
        offset: Last Kafka offset whose effect the commit completes.
        metadata: Goes into the commit's userMetadata, as JSON.
    """

    topic: str
    partition: int
    offset: int
    metadata: Mapping[str, Any]


class Table:
    """One subscriber table. Made for one session, which must be used for nothing else meanwhile.

    Args:
        spark: a session whose settings may be changed.
        path: the table's folder.
        label: how messages call it: ``subscription s1, table public.t1``.
    """

    def __init__(self, spark: SparkSession, path: str, label: str) -> None:
        self.spark = spark
        self.path = path
        self.label = label
        self._fields: dict[str, StructField] = {}
        self._known: tuple[int, str, int] | None = None
        for key, value in SESSION_SETTINGS.items():
            spark.conf.set(key, value)

    def delta(self) -> DeltaTable:
        """The Delta table as it is now."""
        return DeltaTable.forPath(self.spark, self.path)

    def version(self) -> int:
        """The version of the table's last commit; -1 when there is no table."""
        return int(self._log().update(False, self._none(), self._none()).version())

    def bytes(self) -> int | None:
        """The size of the table's files; None when its log does not have it at hand."""
        snapshot = self._log().update(False, self._none(), self._none())
        # The checksum file knows; asking the snapshot itself runs a job.
        checksum = snapshot.checksumOpt()
        return int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None

    def prepare(self, layout: Layout, written: StructType) -> list[ColumnPlan]:
        """Create the table when it is not there; take in new columns and wider types.

        Args:
            layout: columns of the writer schema.
            written: the same columns, by their Avro fields, as Spark decodes them.

        Returns:
            All columns of the table, those that the writer schema does not have included.

        Raises:
            TableError: a column has changed its type in a way that Delta cannot follow.
        """
        fields = [
            StructField(
                column.name, written[column.field].dataType, True, {"comment": column.pg_type}
            )
            for column in layout.columns
        ]
        if not self._fields:
            self._create(fields)
        for field in fields:
            self._take_in(field)
        by_name = {column.name.casefold(): column for column in layout.columns}
        plans: list[ColumnPlan] = []
        for field in self._fields.values():
            column = by_name.get(field.name.casefold())
            plans.append(
                ColumnPlan(
                    # A column that is no longer sent needs a name that no field can have.
                    field=column.field if column is not None else f"~{len(plans)}",
                    name=field.name,
                    pg_type=column.pg_type if column is not None else "",
                    spark_type=field.dataType.simpleString(),
                )
            )
        return plans

    def columns(self) -> tuple[StructField, ...]:
        """The table's columns in its order, as `prepare` has left them."""
        return tuple(self._fields.values())

    def _create(self, fields: Sequence[StructField]) -> None:
        builder = DeltaTable.createIfNotExists(self.spark).location(self.path)
        builder = builder.addColumns(StructType(list(fields)))
        builder = builder.property("delta.enableTypeWidening", "true")
        if any(_NEEDS_MAPPING.search(field.name) for field in fields):
            builder = builder.property("delta.columnMapping.mode", "name")
        if self.version() < 0:
            builder.execute()
        self._read_schema()

    def _read_schema(self) -> None:
        schema = self.delta().toDF().schema
        self._fields = {field.name.casefold(): field for field in schema.fields}

    def _take_in(self, field: StructField) -> None:
        known = self._fields.get(field.name.casefold())
        if known is None:
            self._add(field)
        elif known.name != field.name:
            raise TableError(
                f"{self.label}: column {known.name!r} became {field.name!r}, which differs by case"
                " alone; a Delta table cannot hold both",
            )
        elif widens(known.dataType, field.dataType):
            self._alter(f"ALTER COLUMN {quoted(field.name)} TYPE {field.dataType.simpleString()}")
        elif known.dataType != field.dataType and not widens(field.dataType, known.dataType):
            raise TableError(
                f"{self.label}: column {field.name!r} is {known.dataType.simpleString()} in the"
                f" Delta table and {field.dataType.simpleString()} in the topic, which Delta"
                " cannot turn into one another",
                hint="copy the table again: give the subscription a new warehouse and checkpoint",
            )

    def _add(self, field: StructField) -> None:
        if _NEEDS_MAPPING.search(field.name):
            self._alter("SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        self._alter(f"ADD COLUMNS ({quoted(field.name)} {field.dataType.simpleString()})")

    def _alter(self, change: str) -> None:
        self.spark.sql(f"ALTER TABLE delta.`{self.path}` {change}")
        self._read_schema()

    def applied(self, topic: str, partition: int) -> int:
        """The last offset of that topic partition whose effect the table holds; -1 for none."""
        version = self.version()
        if version < 0:
            return -1
        app = _APP.format(topic=topic, partition=partition)
        if self._known is None or self._known[:2] != (version, app):
            offset = int(self._log().startTransaction().txnVersion(app))
            self._known = (version, app, offset)
        return self._known[2]

    def write(self, rows: DataFrame, commit: Commit, *, overwrite: bool) -> None:
        """Append `rows`, or let the table hold them and nothing else; one commit."""
        app = _APP.format(topic=commit.topic, partition=commit.partition)
        (
            rows.write.format("delta")
            .mode("overwrite" if overwrite else "append")
            .option("txnAppId", app)
            .option("txnVersion", commit.offset)
            .option("userMetadata", _text(commit))
            .save(self.path)
        )
        self._remember(commit)

    @contextmanager
    def merging(self, commit: Commit) -> Iterator[None]:
        """Let the one Delta commit that is made inside carry `commit`.

        Delta skips the write altogether when the table is at that offset, or past it.
        """
        app = _APP.format(topic=commit.topic, partition=commit.partition)
        values = (app, str(commit.offset), _text(commit))
        for key, value in zip(_TXN, values, strict=True):
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in _TXN:
                self.spark.conf.unset(key)
        self._remember(commit)

    def _remember(self, commit: Commit) -> None:
        """Note that `commit` is the table's last one, so that it need not be read back."""
        app = _APP.format(topic=commit.topic, partition=commit.partition)
        self._known = (self.version(), app, commit.offset)

    def _log(self) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self.spark._jsparkSession, self.path
        )

    def _none(self) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.scala.Option.empty()


def _text(commit: Commit) -> str:
    return json.dumps(commit.metadata, separators=(",", ":"))


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether Delta turns a column of type `narrow` into `wide` without loss, and they differ.

    Source: Delta Lake's type widening.
    """
    match narrow, wide:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            digits = wide.precision - wide.scale >= narrow.precision - narrow.scale
            return digits and wide.scale >= narrow.scale and wide != narrow
        case IntegerType(), DecimalType():
            return wide.precision - wide.scale >= 10
        case LongType(), DecimalType():
            return wide.precision - wide.scale >= 20
    return False
