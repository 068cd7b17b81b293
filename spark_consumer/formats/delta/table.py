"""Subscriber tables in Delta Lake: `spark_consumer.formats.protocol.Table`.

A table's position is in the userMetadata of its last commit, written by the same commit as the
rows; see `spark_consumer.kafka.position`. Work that another process has done is not repeated:

- with Delta's own classes an append or overwrite is made on top of the version that was read, or
  not at all (`internals`);
- any other write relies on the transaction identifier in the same commit, whose version is the
  commit's serial. The second of two writes on top of the same commit has no greater one, and Delta
  skips it; if both are made at once, Delta detects a conflict, as both have read the identifier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import delta.exceptions
import delta.tables
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.formats.changes import KeyedChanges, ValueChanges, WriteMode
from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Found, Version, outrun
from spark_consumer.formats.data_files import DataFile, DataFiles
from spark_consumer.formats.delta.checkpoints import Checkpoints
from spark_consumer.formats.delta.columns import Columns
from spark_consumer.formats.delta.files import Exchange, FileCache, known_files, replace_files
from spark_consumer.formats.delta.internals import DeletedRows, Draft, PrivateLog
from spark_consumer.formats.delta.log import HARMLESS, Log
from spark_consumer.formats.delta.maintenance import compact_files, remove_files, set_retention
from spark_consumer.formats.delta.merge import exchange_rows, upsert_rows
from spark_consumer.formats.delta.public import PublicLog
from spark_consumer.formats.delta.session import APPLICATION, METADATA
from spark_consumer.formats.schema_evolution import Drop, Rename, Step
from spark_consumer.kafka.position import Position
from spark_consumer.spark.tuning import INTERPRETED, tuned

__all__ = ["DeltaTable"]

_TXN: Final = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    METADATA,
)
_ASK_FOR_MORE: Final = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
"""Properties that make Delta's own MERGE write more than the rows."""


class DeltaTable:
    """One subscriber table, used through one session, whose settings it changes.

    Args:
        spark: Session that the format has prepared.
        path: Folder of the table.
        label: Name of the table in messages.
        files: Files of tables, as far as known.
        checkpoints: Checkpoints of tables' logs.
        private: Whether private classes of Delta are used.
        widest: Whether features of Delta that some readers lack are left alone, as far as the table
            does not have them yet.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        label: str,
        files: FileCache,
        checkpoints: Checkpoints,
        *,
        private: bool = True,
        widest: bool = False,
    ) -> None:
        self.spark = spark
        self.widest = widest
        self.path = path
        self.label = label
        self._files = files
        self._checkpoints = checkpoints
        self.private = PrivateLog(spark, path, label) if private else None
        self.log: Log = self.private or PublicLog(spark, path)
        self._columns = Columns(spark, path, label, self.log, widest=widest)

    def delta(self) -> delta.tables.DeltaTable:
        """Return Delta's own object for the newest version."""
        return delta.tables.DeltaTable.forPath(self.spark, self.path)

    def rows(self) -> DataFrame:
        """See `Table`."""
        return self.delta().toDF()

    def version(self) -> Version:
        """See `Table`."""
        return Version(self.log.version())

    def believed(self) -> Version | None:
        """See `Table`."""
        known = self._files.get(self.path)
        return None if known is None else known.version

    def bytes(self) -> int | None:
        """See `Table`."""
        return self.log.bytes()

    def files(self) -> int | None:
        """See `Table`."""
        return self.log.files()

    def fields(self) -> list[StructField]:
        """See `Table`."""
        known = self._files.get(self.path)
        return list(known.fields) if known is not None else self.log.fields()

    def excludes(self, condition: str) -> bool:
        """See `Table`."""
        # Compiling the query for the files takes longer than running it.
        with tuned(self.spark, INTERPRETED):
            return len(self.rows().alias("t").where(condition)._jdf.inputFiles()) == 0

    def greatest(self, names: Sequence[str]) -> dict[str, int]:
        """See `Table`."""
        return self.log.greatest(names)

    def counts(self, commit: Commit) -> dict[str, int]:
        """Return the metrics of a commit that was just made, under Delta's names."""
        for _, info in self.log.commits(self.version()):
            if Commit.from_text(info.get("userMetadata")) == commit:
                return {name: int(text) for name, text in info["operationMetrics"].items()}
        raise outrun(self.label)

    def can_mark(self) -> bool:
        """Whether rows may be marked as deleted, and no table property requires more than that."""
        marks = self.private is not None and self._has("delta.enableDeletionVectors")
        return marks and not self.tracks_rows()

    def tracks_rows(self) -> bool:
        """See `Table`."""
        return any(self._has(name) for name in _ASK_FOR_MORE)

    def _has(self, name: str) -> bool:
        return (self.log.property(name) or "").lower() == "true"

    def find(self, trusted: Version = NO_VERSION) -> Found | None:
        """See `Table`."""
        version = self.version()
        if self.believed() != version:
            self._files.forget(self.path)
        for number, info in self.log.commits(version):
            if (commit := Commit.from_text(info.get("userMetadata"))) is not None:
                return Found(version, commit)
            operation = str(info.get("operation"))
            ours = '"pgsluice"' in str(info.get("userMetadata"))
            if not ours and operation not in HARMLESS and number > trusted:
                raise TableError(
                    f"{self.label}: version {number} was written by another writer ({operation})",
                    hint="let nothing but the Spark job write to the table; copy it again",
                )
        if version >= 0:
            raise TableError(
                f"{self.label}: the folder {self.path} holds a Delta table without a position",
                hint=f"the folder must be the Spark job's own; remove it, or {COPY_AGAIN}",
            )
        return None

    def position_at(self, version: Version) -> Position:
        """See `Table`."""
        for _, info in self.log.commits(version):
            if (commit := Commit.from_text(info.get("userMetadata"))) is not None:
                return commit.position
        raise TableError(
            f"{self.label}: its log no longer says at which position version {version} is",
            hint="keep the log (delta.logRetentionDuration) as long as keep_hours says",
        )

    def write(self, rows: DataFrame, commit: Commit, found: Found | None, mode: WriteMode) -> None:
        """See `Table`."""
        self._files.forget(self.path)
        if found is None and not mode.empties:
            raise outrun(self.label)
        draft = self.stage(rows, found, mode)
        if draft is not None:
            draft.commit(commit)
            return
        writer = rows.write.format("delta").mode("overwrite" if mode.empties else "append")
        if mode is WriteMode.REPLACE_TABLE:
            self._columns.allow(rows.schema.fields)
            writer = writer.option("overwriteSchema", "true")
        mapping = self._columns.mapping(rows.columns) if mode.empties else nullcontext()
        with mapping, self.merging(commit, found):
            writer.save(self.path)

    def stage(self, rows: DataFrame, found: Found | None, mode: WriteMode) -> Draft | None:
        """See `Table`."""
        self._files.forget(self.path)
        if self.private is None:
            return None
        if mode.empties:
            if mode is WriteMode.REPLACE_TABLE:
                self._columns.allow(rows.schema.fields)
            with self._columns.mapping(rows.columns):
                snapshot = self._snapshot(self.private, found)
                return self.private.draft(snapshot, rows, mode)
        # `rows` may be for columns that were remembered. Delta's own writer would check them.
        if _types(rows.schema.fields) != _types(self.fields()):
            raise outrun(self.label)
        return self.private.draft(self._snapshot(self.private, found), rows)

    def mark(
        self, rows: DataFrame, deleted: DeletedRows, commit: Commit, found: Found | None
    ) -> None:
        """Mark rows as deleted and append others in one commit, by private classes of Delta only.

        Raises:
            TransientConsumerError: the table has changed since it was found, or since `deleted`.
        """
        assert self.private is not None
        self._files.forget(self.path)
        snapshot = self._snapshot(self.private, found)
        if deleted.version != snapshot.version():
            raise outrun(self.label)
        self.private.draft(snapshot, rows, deleted=deleted).commit(commit)

    def _snapshot(self, log: PrivateLog, found: Found | None) -> Any:
        snapshot = log.snapshot()
        self._check(found, int(snapshot.version()))
        return snapshot

    def _check(self, found: Found | None, newest: int) -> None:
        """Check that the newest version has the rows and the position of `found`."""
        # A version never changes, and commits of others since then may be harmless.
        if found is None or found.version == newest:
            return
        if self.find(found.version) != Found(Version(newest), found.commit):
            raise outrun(self.label)

    def upsert(self, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
        """See `Table`."""
        return upsert_rows(self, changes, commit, found)

    def exchange(self, changes: ValueChanges, commit: Commit, found: Found | None) -> None:
        """See `Table`."""
        exchange_rows(self, changes, commit, found)

    @contextmanager
    def merging(self, commit: Commit, found: Found | None) -> Iterator[None]:
        """Attach `commit` to the one Delta commit that is made inside.

        Raises:
            TransientConsumerError: the table has changed since it was found.
        """
        self._files.forget(self.path)
        before = self.version()
        self._check(found, before)
        values = (APPLICATION, str(commit.serial), commit.text())
        try:
            with tuned(self.spark, dict(zip(_TXN, values, strict=True))):
                yield
        except delta.exceptions.ConcurrentTransactionException as error:
            raise outrun(self.label) from error
        # Delta skips a commit whose transaction it has seen.
        version = self.version()
        info = next((info for _, info in self.log.commits(version)), {})
        if version <= before or Commit.from_text(info.get("userMetadata")) != commit:
            raise outrun(self.label)

    def data_files(
        self, found: Found | None, most: int, fields: Sequence[StructField] | None = None
    ) -> DataFiles | None:
        """See `Table`."""
        # Until `replace_files` has succeeded: if anything fails, the log is asked.
        known = self._files.forget(self.path)
        if self.private is None:
            return None
        newest = None if found is None else found.version
        if fields is not None or known is None or known.version != newest:
            known = known_files(self.spark, self.private, most, fields)
            if known is not None and self.widest and known.marking:
                known = replace(known, can_mark=False, marking=())
        if known is None or known.bytes > most or newest not in (None, known.version):
            return None
        return known

    def replace_files(
        self,
        files: DataFiles,
        removed: Collection[DataFile],
        added: Collection[DataFile],
        commit: Commit,
        changes: Collection[DataFile] | None = None,
    ) -> Version:
        """See `Table`."""
        assert self.private is not None
        exchanged = Exchange(removed, added, changes)
        left = replace_files(self.spark, self.private, self.label, files, exchanged, commit)
        self._files.put(self.path, left)
        self._checkpoints.request(self.spark, self.path, self.label, left.version)
        return left.version

    def alter(self, steps: Iterable[Step]) -> None:
        """See `Table`."""
        self._files.forget(self.path)
        listed = list(steps)
        if self._columns.need_features(listed):
            self._rewrite(listed)
        else:
            self._columns.alter(listed)

    def _rewrite(self, steps: Sequence[Step]) -> None:
        """Follow steps by writing all rows again, in one commit on top of what is read."""
        if self.private is None:
            raise self._cannot_follow(
                "Delta's public interface cannot write them again", COPY_AGAIN
            )
        detail = self.delta().detail().select("partitionColumns", "clusteringColumns").first()
        assert detail is not None
        gone = {step.name for step in steps if isinstance(step, Rename | Drop)}
        if detail[0] or not gone.isdisjoint(detail[1] or ()):
            reason = "its files are partitioned, or clustered by a column that goes"
            raise self._cannot_follow(reason, f"ALTER TABLE ... CLUSTER BY NONE, or {COPY_AGAIN}")
        self._columns.allow(self._columns.altered(self.rows(), steps).schema.fields)
        found = self.find()
        if found is None:
            raise outrun(self.label)
        snapshot = self._snapshot(self.private, found)
        # Read after the snapshot: if it is of a later version, the commit is refused.
        rows = self._columns.altered(self.rows(), steps)
        draft = self.private.draft(snapshot, rows, WriteMode.REPLACE_TABLE, clustered=True)
        draft.commit(found.commit)

    def _cannot_follow(self, reason: str, hint: str) -> TableError:
        return TableError(
            f'{self.label}: its columns cannot follow under readers = "widest": {reason}', hint=hint
        )

    def require(self, properties: Mapping[str, str]) -> None:
        """Set table properties that the user has not set."""
        self._files.forget(self.path)
        self._columns.require(properties)

    def keep_history(self, hours: float) -> None:
        """See `Table`."""
        self._files.forget(self.path)
        set_retention(self.log, self._columns, hours)

    def compact(self, commit: Commit, *, small: int) -> None:
        """See `Table`."""
        self._files.forget(self.path)
        found = self.find()
        if found is None or found.commit != commit:
            raise outrun(self.label)
        compact_files(self.spark, self.path, commit, small)

    def vacuum(self, hours: float) -> None:
        """See `Table`."""
        remove_files(self.spark, self.path, self.log, hours)


def _types(fields: Sequence[StructField]) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in fields]
