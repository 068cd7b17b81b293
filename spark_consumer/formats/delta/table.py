"""The Delta tables: where they are, what they have applied, how they are written and altered.

A table's position is in the userMetadata of its last commit, written by the same commit as the
rows; see `spark_consumer.kafka.position`. What another process has done already is not done again:
an append or overwrite is made on top of the version that was read or not at all, and a MERGE is
skipped by Delta for the transaction identifier in the same commit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from spark_consumer.errors import COPY_AGAIN, TableError, TransientConsumerError
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.delta.internals import (
    HARMLESS,
    Candidates,
    Draft,
    Gone,
    OutrunError,
    commit_info,
    settings,
)
from spark_consumer.formats.schema_evolution import Add, Drop, Rename, Step, Widen
from spark_consumer.kafka.position import Position
from spark_consumer.names import quoted
from spark_consumer.spark.tuning import setting, tuned
from spark_consumer.values.conversions import literal

__all__ = ["SESSION_SETTINGS", "Table", "rows_at"]

# What Parquet's column names cannot have; Delta then maps names to others.
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
SESSION_SETTINGS: Final = {
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # The source of a MERGE is the same whenever it is computed: records do not change.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    # Or a column called ${env:SECRET} is looked for under what the driver's environment has.
    "spark.sql.variable.substitute": "false",
    # Conditions pass through java.sql's types otherwise, which do not hold infinity.
    "spark.sql.datetime.java8API.enabled": "true",
}
_TIMES: Final = "delta.feature.timestampNtz"
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_TXN: Final = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    _METADATA,
)
_MAPPED: Final = "spark.databricks.delta.properties.defaults.columnMapping.mode"
_ANY_RETENTION: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
_HOURS_IGNORED: Final = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
_VACUUM_COMMITS: Final = "spark.databricks.delta.vacuum.logging.enabled"
_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_SMALL_FILES: Final = "spark.databricks.delta.optimize.minFileSize"
_LARGEST_FILES: Final = "spark.databricks.delta.optimize.maxFileSize"
_FILES_KEPT: Final = "delta.deletedFileRetentionDuration"
_LOG_KEPT: Final = "delta.logRetentionDuration"
_ANY_AGE: Final = {
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"
}
"""Delta goes by the age of a version. A version that is old has been the newest until lately where
the table changes rarely, and then its files are there."""
_ASK_FOR_MORE: Final = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
"""What Delta's own MERGE writes beside the rows, where the user wants it."""


class Table:
    """One subscriber table, by way of one session, whose settings it changes.

    Args:
        spark: the session.
        path: the table's folder.
        label: how messages call it: ``subscription s1, table public.t1``.
    """

    def __init__(self, spark: SparkSession, path: str, label: str) -> None:
        self.spark = spark
        self.path = path
        self.label = label
        for key, value in SESSION_SETTINGS.items():
            spark.conf.set(key, value)

    def delta(self) -> DeltaTable:
        """The Delta table as it is now."""
        return DeltaTable.forPath(self.spark, self.path)

    def rows(self) -> DataFrame:
        """The table's rows as they are now."""
        return self.delta().toDF()

    def candidates(self, condition: str) -> Candidates:
        """The files that may have rows that meet a condition on the columns, as `t`."""
        return Candidates(self.log(), self.rows().alias("t").where(condition))

    def version(self) -> int:
        """The version of the table's last commit; -1 when there is no table."""
        return int(self.snapshot().version())

    def bytes(self) -> int | None:
        """The size of the table's files; None when its log does not have it at hand."""
        # The checksum file knows; asking the snapshot itself runs a job.
        checksum = self.snapshot().checksumOpt()
        return int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None

    def files(self) -> int | None:
        """The number of the table's files; None when its log does not have it at hand."""
        checksum = self.snapshot().checksumOpt()
        return int(checksum.get().numFiles()) if checksum.isDefined() else None

    def fields(self) -> list[StructField]:
        """The table's columns; no job is run."""
        return list(StructType.fromJson(json.loads(self.snapshot().schema().json())).fields)

    def files_with_statistics(self) -> DataFrame:
        """The table's files as Delta describes them, with what is known of their columns."""
        return DataFrame(self.snapshot().withStats(), self.spark)

    def counts(self) -> dict[str, int]:
        """What the last commit has counted, under Delta's names."""
        info = self._commit_info(self.version()) or {}
        return {name: int(text) for name, text in info["operationMetrics"].items()}

    def property(self, name: str) -> str | None:
        """A table property; None when it is not set."""
        found = self.snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def takes_marks(self) -> bool:
        """Whether its rows may be marked as deleted, and nothing asks for more than that."""
        return self._has("delta.enableDeletionVectors") and not self.tells_rows()

    def tells_rows(self) -> bool:
        """Whether it has a change data feed, or tracks rows: then each row's change counts."""
        return any(self._has(name) for name in _ASK_FOR_MORE)

    def _has(self, name: str) -> bool:
        return (self.property(name) or "").lower() == "true"

    def find(self, trusted: int = -1) -> Found | None:
        """The table with its position; None when there is no table.

        Args:
            trusted: a version up to which the table is known to have only commits of this job.

        Raises:
            TableError: somebody else has changed the rows, or the log does not go back far enough.
        """
        version = self.version()
        for number in range(version, -1, -1):
            info = self._commit_info(number)
            if info is None:
                break
            if (commit := Commit.from_text(info.get("userMetadata"))) is not None:
                return Found(version, commit)
            operation = str(info.get("operation"))
            ours = '"pgsluice"' in str(info.get("userMetadata"))
            if not ours and operation not in HARMLESS and number > trusted:
                raise TableError(
                    f"{self.label}: version {number} was written by somebody else ({operation})",
                    hint="let nothing but the Spark job write to the table; copy it again",
                )
        if version >= 0:
            raise TableError(
                f"{self.label}: the folder {self.path} holds a Delta table without a position",
                hint=f"the folder must be the Spark job's own; remove it, or {COPY_AGAIN}",
            )
        return None

    def position_at(self, version: int) -> Position:
        """Where the table was at a version; commits of others are not looked for.

        Raises:
            TableError: its log does not go back so far.
        """
        for number in range(version, -1, -1):
            info = self._commit_info(number)
            if info is None:
                break
            if (commit := Commit.from_text(info.get("userMetadata"))) is not None:
                return commit.position
        raise TableError(
            f"{self.label}: its log no longer says at which position version {version} is",
            hint="keep the log (delta.logRetentionDuration) as long as keep_hours says",
        )

    def write(
        self, rows: DataFrame, commit: Commit, found: Found | None, *, empty: bool, anew: bool
    ) -> None:
        """Append `rows`, or let the table hold them and nothing else; one commit.

        Args:
            rows: in the table's columns.
            commit: what it says of itself.
            found: the table as it is.
            empty: the rows that are there go.
            anew: with `empty`: the columns become those of `rows`.

        Raises:
            TransientConsumerError: it is not as it was found any more.
        """
        self.commit(self.draft(rows, found, empty=empty, anew=anew), commit)

    def draft(
        self,
        rows: DataFrame,
        found: Found | None,
        *,
        empty: bool = False,
        anew: bool = False,
        gone: Gone | None = None,
    ) -> Draft:
        """Put `rows` into files; with `commit`, what `write` does.

        Args:
            rows: as for `write`, and the other arguments, too.
            found: see `rows`.
            empty: see `rows`.
            anew: see `rows`.
            gone: rows that go; see `Draft`.
        """
        if empty:
            if anew:
                self._allow(rows.schema.fields)
            with self._mapping(rows.columns):
                return Draft(self.spark, self.log(), self.snapshot(), rows, empty=True, anew=anew)
        # Delta's own writer would look at the columns.
        assert _types(rows.schema.fields) == _types(self.fields())
        snapshot = self.snapshot()
        version = int(snapshot.version())
        # What a version is never changes, and what others have committed since may be harmless.
        if found is None or (
            found.version != version and self.find(found.version) != Found(version, found.commit)
        ):
            raise self._outrun()
        if gone is not None and gone.version != version:
            raise self._outrun()
        return Draft(self.spark, self.log(), snapshot, rows, gone=gone)

    def commit(self, draft: Draft, commit: Commit) -> int:
        """Let the table have a draft; its version then.

        Raises:
            TransientConsumerError: it is not as it was when the draft was made.
        """
        try:
            return draft.commit(commit.transaction, commit.text())
        except OutrunError as error:
            raise self._outrun() from error

    @contextmanager
    def merging(self, commit: Commit) -> Iterator[None]:
        """Let the one Delta commit that is made inside carry `commit`."""
        before = self.version()
        application, number = commit.transaction
        values = (application, str(number), commit.text())
        with settings(self.spark, dict(zip(_TXN, values, strict=True))):
            yield
        self._verify(before, commit)

    def alter(self, steps: Iterable[Step]) -> None:
        """Follow a change of the columns; may be repeated after it ended early."""
        values: dict[str, Expr] = {}
        with settings(self.spark, {_METADATA: '{"pgsluice":"columns"}'}):
            for step in steps:
                self._step(step, values)
            if values:
                self.delta().update(set={quoted(name): value for name, value in values.items()})

    def require(self, properties: Mapping[str, str]) -> None:
        """Set table properties that the user has not set."""
        missing = {key: value for key, value in properties.items() if self.property(key) is None}
        if missing:
            self._set(missing)

    def _set(self, properties: Mapping[str, str]) -> None:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        with settings(self.spark, {_METADATA: '{"pgsluice":"properties"}'}):
            self._sql(f"SET TBLPROPERTIES ({listed})")

    def keep_history(self, hours: float) -> None:
        """Let Delta know for how long files and log are needed; longer times of the user count.

        Otherwise it forgets after a week which files versions had, and takes them for strays.
        """
        log, metadata = self.log(), self.snapshot().metadata()
        log_class: Any = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        known = {
            _FILES_KEPT: log_class.tombstoneRetentionMillis(metadata),
            _LOG_KEPT: log.deltaRetentionMillis(metadata),
        }
        # The log must go back as far as the files.
        wanted = dict.fromkeys(known, f"interval {math.ceil(hours)} hours")
        short = {key: wanted[key] for key, held in known.items() if held < hours * 3_600_000}
        if short:
            self._set(short)

    def optimize(self, commit: Commit, *, small: int) -> None:
        """Put small files together; the rows stay, and what is done carries `commit`, too.

        Files that are not small keep their place, and with it the order of keys in which a copy or
        inserts of growing keys have made them. A table that its user has clustered is clustered.

        Args:
            commit: the table's last one.
            small: files of less bytes are; a setting of the session counts more.
        """
        # Delta's own limit is 1 GB: a table would be written anew each time, and the keys of
        # distant files would come into one.
        sizes = {_SMALL_FILES: str(small), _LARGEST_FILES: str(4 * small)}
        sizes = {key: size for key, size in sizes.items() if setting(self.spark, key) is None}
        with settings(self.spark, {_METADATA: commit.text(), **sizes}):
            self.delta().optimize().executeCompaction()

    def vacuum(self, hours: float) -> None:
        """Remove the files that no version of the last hours has.

        A longer ``delta.deletedFileRetentionDuration`` of the user is honoured.
        """
        if self.property(_FILES_KEPT) is not None:
            metadata = self.snapshot().metadata()
            log: Any = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
            hours = max(hours, log.tombstoneRetentionMillis(metadata) / 3_600_000)
        # By default the folder is listed by 10,000 tasks, and the hours are ignored.
        tasks = 2 * self.spark.sparkContext.defaultParallelism
        chosen = {
            _ANY_RETENTION: "false",
            _HOURS_IGNORED: "false",
            _VACUUM_COMMITS: "false",
            _LISTING_TASKS: str(tasks),
        }
        with settings(self.spark, chosen):
            self.delta().vacuum(hours)

    def _step(self, step: Step, values: dict[str, Expr]) -> None:
        """Follow a step, but for what rows have in new columns: that comes to `values`."""
        match step:
            case Rename(name, to):
                self._map_columns()
                self._sql(f"RENAME COLUMN {quoted(name)} TO {quoted(to)}")
            case Drop(name):
                self._map_columns()
                self._sql(f"DROP COLUMN {quoted(name)}")
            case Widen(name, to):
                self.require({"delta.enableTypeWidening": "true"})
                self._sql(f"ALTER COLUMN {quoted(name)} TYPE {to.simpleString()}")
            case Add(field, missing, exists):
                if _NEEDS_MAPPING.search(field.name):
                    self._map_columns()
                self._allow([field])
                kind = field.dataType.simpleString()
                if missing is not None:
                    values[field.name] = self._value(field, missing)
                if not exists:
                    comment = str(field.metadata["comment"])
                    comment = comment.replace("\\", "\\\\").replace("'", "\\'")
                    added = f"{quoted(field.name)} {kind} COMMENT '{comment}'"
                    self._sql(f"ADD COLUMNS ({added})")

    def _value(self, field: StructField, missing: str) -> Expr:
        """What the rows that are there have in a new column."""
        try:
            return literal(missing, field)
        except ValueError as error:
            raise TableError(
                f"{self.label}: what rows have in the new column {field.name!r} is {error}",
                hint=COPY_AGAIN,
            ) from error

    def _allow(self, fields: Sequence[StructField]) -> None:
        """Let a table that is there have columns of a type for which Delta asks to be told."""
        if _have_times(fields) and self.version() >= 0 and not _have_times(self.fields()):
            self.require({_TIMES: "supported"})

    def _map_columns(self) -> None:
        self.require({"delta.columnMapping.mode": "name"})

    def _sql(self, change: str) -> None:
        self.spark.sql(f"ALTER TABLE delta.{quoted(self.path)} {change}")

    @contextmanager
    def _mapping(self, columns: Sequence[str]) -> Iterator[None]:
        """Let a new table, or one that gets new columns, have names that Parquet cannot."""
        if not any(_NEEDS_MAPPING.search(column) for column in columns):
            yield
        elif self.version() >= 0:
            self._map_columns()
            yield
        else:
            with settings(self.spark, {_MAPPED: "name"}):
                yield

    def _verify(self, before: int, commit: Commit) -> None:
        """Check that the commit is there: Delta skips one whose transaction it has seen."""
        version = self.version()
        info = self._commit_info(version)
        if (
            version <= before
            or info is None
            or Commit.from_text(info.get("userMetadata")) != commit
        ):
            raise self._outrun()

    def _outrun(self) -> TransientConsumerError:
        return TransientConsumerError(
            f"{self.label}: a commit was made by somebody else meanwhile",
            hint="one job writes to a warehouse at a time",
        )

    def _commit_info(self, version: int) -> dict[str, Any] | None:
        """What a commit says of itself; None when the log no longer has it."""
        return commit_info(self.spark, self.log(), f"{self.path}/_delta_log/{version:020}.json")

    def snapshot(self) -> Any:
        """Delta's snapshot of the table as it is now."""
        none = self.spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        return self.log().update(False, none, none)

    def log(self) -> Any:
        """Delta's log of the table."""
        jvm: Any = self.spark._jvm
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            self.spark._jsparkSession, self.path
        )


def rows_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The rows of a table at one of its versions, however old, as long as the files are there."""
    with tuned(spark, _ANY_AGE):
        return spark.read.format("delta").option("versionAsOf", version).load(path)


def _types(fields: Sequence[StructField]) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in fields]


def _have_times(fields: Sequence[StructField]) -> bool:
    return any(isinstance(field.dataType, TimestampNTZType) for field in fields)
