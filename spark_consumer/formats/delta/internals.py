"""Delta's log through private classes of Delta.

Rows are written into files first, and committed afterwards, on top of the version that was read, or
not at all. Delta's public writer commits on top of whatever was committed meanwhile. To notice that
it was this very write, it can be given a transaction identifier, and then computes the whole state
of the table to look it up, which takes longer than a small append. A commit that is bound to the
version before needs no such question.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Version, outrun
from spark_consumer.formats.delta.session import APPLICATION, ATTEMPTS
from spark_consumer.names import quoted
from spark_consumer.spark.failures import TableTransientError
from spark_consumer.spark.tuning import INTERPRETED, SMALL_QUERIES, tuned

__all__ = ["Candidates", "DeletedRows", "Draft", "PrivateLog"]

_DELTA: Final = "org.apache.spark.sql.delta."
_SKIPPING: Final = "spark.databricks.delta.stats.skipping"
_PHYSICAL: Final = "delta.columnMapping.physicalName"


class PrivateLog:
    """One table's log.

    Args:
        spark: Session that reads and writes.
        path: Folder of the table.
        label: Name of the table in messages.
    """

    def __init__(self, spark: SparkSession, path: str, label: str) -> None:
        self._spark = spark
        self._path = path
        self._label = label

    def log(self) -> Any:
        """Return the table's DeltaLog."""
        return _class(self._spark, "DeltaLog").forTable(self._spark._jsparkSession, self._path)

    def snapshot(self) -> Any:
        """Return Delta's snapshot of the newest version."""
        none = self._spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        return self.log().update(False, none, none)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version."""
        _activate(self._spark)
        none = self._spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        self.log().checkpoint(self.snapshot(), none)
        # The state that was computed for it, 2 MB a table, goes with its snapshot.
        self.snapshot()

    def version(self) -> int:
        """Return the version of the last commit; -1 if there is no table."""
        return int(self.snapshot().version())

    def fields(self) -> list[StructField]:
        """Return the table's columns without running a job."""
        return list(StructType.fromJson(json.loads(self.snapshot().schema().json())).fields)

    def bytes(self) -> int:
        """Return the size of the table's files."""
        snapshot = self.snapshot()
        # The checksum file has it; asking the snapshot itself runs a job.
        checksum = snapshot.checksumOpt()
        if checksum.isDefined():
            return int(checksum.get().tableSizeBytes())
        with tuned(self._spark, INTERPRETED):
            return int(snapshot.sizeInBytes())

    def files(self) -> int:
        """Return the number of the table's files."""
        snapshot = self.snapshot()
        checksum = snapshot.checksumOpt()
        if checksum.isDefined():
            return int(checksum.get().numFiles())
        with tuned(self._spark, INTERPRETED):
            return int(snapshot.numOfFiles())

    def property(self, name: str) -> str | None:
        """Return a table property; None if it is not set."""
        found = self.snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def indexed(self, snapshot: Any) -> frozenset[str]:
        """Return the names in files of the columns that statistics include.

        Delta says it: it counts parts of columns, and knows the forms of names in its properties.
        """
        schema = StructType.fromJson(json.loads(snapshot.statsSchema().json()))
        counted = schema["nullCount"].dataType if "nullCount" in schema.names else StructType()
        assert isinstance(counted, StructType)
        return frozenset(counted.names)

    def commits(self, newest: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield versions and the info of their commits, newest first, as far back as the log goes.

        Raises:
            TableTransientError: the log cannot be read.
        """
        log = self.log()
        for version in range(newest, -1, -1):
            name = f"{self._path}/_delta_log/{version:020}.json"
            info = _commit_info(self._spark, log, name)
            if info is None:
                return
            yield version, info

    def greatest(self, names: Sequence[str]) -> dict[str, int]:
        """Return the greatest value by column, where the statistics of all files have it."""
        snapshot = self.snapshot()
        files = DataFrame(snapshot.withStats(), self._spark)
        statistics = files.schema["stats"].dataType
        assert isinstance(statistics, StructType)
        if "maxValues" not in statistics.names:
            return {}
        known = statistics["maxValues"].dataType
        assert isinstance(known, StructType)
        physical = _physical(StructType.fromJson(json.loads(snapshot.schema().json())))
        covered = [name for name in names if physical[name] in known.names]
        if not covered:
            return {}
        values = [F.col(f"stats.maxValues.{quoted(physical[name])}") for name in covered]
        row = files.agg(*map(F.max, values), *(F.count_if(one.isNull()) for one in values)).first()
        assert row is not None
        return {
            name: int(row[number])
            for number, name in enumerate(covered)
            if row[number] is not None and not row[len(covered) + number]
        }

    def draft(
        self,
        snapshot: Any,
        rows: DataFrame,
        mode: WriteMode = WriteMode.APPEND,
        *,
        clustered: bool = False,
        deleted: DeletedRows | None = None,
    ) -> Draft:
        """See `Draft`."""
        return Draft(
            self._spark,
            self.log(),
            snapshot,
            rows,
            self._label,
            mode,
            clustered=clustered,
            deleted=deleted,
        )


class Candidates:
    """Files of a table that may have rows of some kind.

    Delta would search for them each time that their rows are planned, and for deletion vectors in
    all files of the table.

    Args:
        log: DeltaLog of the table.
        rows: Rows of the table that meet a condition; they are not read.

    Attributes:
        version: Version of the table.
        rows: Rows of the files, whether they meet the condition or not.
    """

    def __init__(self, log: Any, rows: DataFrame) -> None:
        spark = rows.sparkSession
        none: Any = spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        # If the user has switched skipping off, a plan does not say which files it reads.
        with tuned(spark, {**INTERPRETED, _SKIPPING: "true"}):
            scan = rows._jdf.queryExecution().optimizedPlan().collectLeaves().head()
        prepared = scan.relation().location().preparedScan()
        snapshot = prepared.scannedSnapshot()
        self.version = int(snapshot.version())
        _activate(spark)
        made = log.createDataFrame(snapshot, prepared.files(), False, none)
        self.rows = DataFrame(made, spark)


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Rows to delete.

    Attributes:
        places: Frame of `file` and `place` of each: file_path and row_index of `_metadata`.
        files: Values of `file`.
        version: Version of the table that has the rows.
        few: Whether compiling code for them takes longer than scanning them.
    """

    places: DataFrame
    files: Collection[str]
    version: int
    few: bool


class Draft:
    """Uncommitted rows in files of a table.

    Args:
        spark: Session that writes.
        log: DeltaLog of the table.
        snapshot: Snapshot of the version on top of which the commit is made.
        rows: Rows with the table's columns, in its order, unless they replace its columns.
        label: Name of the table in messages.
        mode: Treatment of the table's rows and columns.
        clustered: Whether a table that is replaced stays clustered as it is, by columns that it
            keeps.
        deleted: Rows to delete; the table must have deletion vectors.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Any,
        snapshot: Any,
        rows: DataFrame,
        label: str,
        mode: WriteMode = WriteMode.APPEND,
        *,
        clustered: bool = False,
        deleted: DeletedRows | None = None,
    ) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._label = label
        self._jvm = jvm
        self._log = log
        self._none = jvm.scala.Option.empty()
        _activate(spark)
        self._begun = log.startTransaction(self._none, jvm.scala.Option.apply(snapshot))
        modes = jvm.org.apache.spark.sql.SaveMode
        self._mode = modes.Overwrite if mode.empties else modes.Append
        clustering = self._none
        if clustered:
            tables = _class(spark, "skipping.clustering.ClusteredTableUtils")
            clustering = tables.getClusterBySpecOptional(snapshot)
        self._actions = (
            self._overwrite(rows, clustering, recreate=mode is WriteMode.REPLACE_TABLE)
            if mode.empties
            else self._append(rows)
        )
        if deleted is not None:
            with tuned(spark, SMALL_QUERIES) if deleted.few else nullcontext():
                self._actions = self._actions.concat(self._marked(snapshot, deleted))

    def _append(self, rows: DataFrame) -> Any:
        return self._begun.writeFiles(rows._jdf)

    def _overwrite(self, rows: DataFrame, clustering: Any, *, recreate: bool) -> Any:
        session, scala = self._spark._jsparkSession, self._jvm.org.apache.spark.api.python
        none, no_names = scala.PythonUtils.toScalaMap({}), scala.PythonUtils.toSeq([])
        chosen = scala.PythonUtils.toScalaMap({"overwriteSchema": "true"}) if recreate else none
        options = _class(self._spark, "DeltaOptions")(chosen, session.sessionState().conf())
        written = _class(self._spark, "commands.WriteIntoDelta")(
            self._log, self._mode, options, no_names, none, rows._jdf, self._none, self._none, False
        ).writeAndReturnCommitData(self._begun, session, clustering, False)
        return written.actions()

    def _marked(self, snapshot: Any, deleted: DeletedRows) -> Any:
        """Return the actions that mark the rows to delete in their files."""
        session, begun, option = self._spark._jsparkSession, self._begun, self._jvm.scala.Option
        column = self._jvm.org.apache.spark.sql.functions.col
        always = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral()
        names = ", ".join(f"'{name.rpartition('/')[2]}'" for name in ("", *deleted.files))
        # With their statistics: a file of which all rows are deleted is removed.
        there = snapshot.allFiles().filter(f"substring_index(path, '/', -1) IN ({names})")
        listed = there.collectAsList()
        files = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed)
        places = _class(self._spark, "commands.DeletionVectorBitmapGenerator")
        marks = _class(self._spark, "commands.DMLWithDeletionVectorsHelper")
        built = places.buildRowIndexSetsForFilesMatchingCondition(
            session,
            begun,
            any(file.deletionVector() is not None for file in listed),
            deleted.places._jdf,
            files,
            always,
            option.apply(column("file")),
            option.apply(column("place")),
        )
        known = marks.generateCandidateFileMap(self._log.dataPath(), files)
        touched = marks.findFilesWithMatchingRows(begun, known, built)
        statistics = _class(self._spark, "stats.StatsCollectionUtils")
        length = statistics.getDataSkippingStringPrefixLength(session, begun.metadata())
        return marks.processUnmodifiedData(session, touched, snapshot, length)._1()

    def rows(self, names: Sequence[str]) -> DataFrame:
        """Read back some columns of the written rows."""
        schema = StructType.fromJson(json.loads(self._begun.metadata().schema().json()))
        physical = _physical(schema)
        stored = StructType([StructField(physical[n], schema[n].dataType) for n in names])
        paths = [path.toString() for path in self._paths()]
        frame = self._spark.read.schema(stored).option("__globPaths__", "false").parquet(*paths)
        return frame.select(*(F.col(quoted(physical[name])).alias(name) for name in names))

    def commit(self, commit: Commit) -> Version:
        """Make the commit; return the version that it gives the table.

        Raises:
            TransientConsumerError: the table has a newer version already.
        """
        none, option = self._none, self._jvm.scala.Option
        transaction = _class(self._spark, "actions.SetTransaction")(
            APPLICATION, commit.serial, none
        )
        operation = _class(self._spark, "DeltaOperations$Write")(
            self._mode, none, none, option.apply(commit.text()), none, none, none, none, none
        )
        try:
            with tuned(self._spark, {ATTEMPTS: "0"}):
                return Version(
                    int(self._begun.commit(self._actions.appended(transaction), operation))
                )
        except Py4JJavaError as error:
            if "DELTA_MAX_COMMIT_RETRIES_EXCEEDED" in str(error.java_exception.getMessage()):
                raise outrun(self._label) from error
            raise

    def discard(self) -> None:
        """Remove the files; the next VACUUM removes those for which the file system fails."""
        for path in self._paths():
            try:
                path.getFileSystem(self._log.newDeltaHadoopConf()).delete(path, False)
            except Py4JJavaError:
                return

    def _paths(self) -> Iterator[Any]:
        actions = self._actions.iterator()
        while actions.hasNext():
            action = actions.next()
            if action.getClass().getSimpleName() == "AddFile":
                yield action.absolutePath(self._log)


def _activate(spark: SparkSession) -> None:
    """Make this session the thread's, whose settings Delta uses."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def _class(spark: SparkSession, name: str) -> Any:
    return getattr(spark._jvm, _DELTA + name)


def _physical(schema: StructType) -> dict[str, str]:
    """Return names in files by column: others after a rename, or if Parquet has no such name."""
    return {field.name: str(field.metadata.get(_PHYSICAL, field.name)) for field in schema.fields}


def _commit_info(spark: SparkSession, log: Any, name: str) -> dict[str, Any] | None:
    """Return the metadata of a commit; None when its file no longer exists.

    Args:
        spark: Any session.
        log: DeltaLog of the table.
        name: Path of the file.

    Raises:
        TableTransientError: the file cannot be read.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(name)
    files = path.getFileSystem(log.newDeltaHadoopConf())
    try:
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            utf8 = jvm.java.nio.charset.StandardCharsets.UTF_8
            lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, utf8))
            while (line := lines.readLine()) is not None:
                if line.startswith('{"commitInfo"'):
                    found: dict[str, Any] = json.loads(line)["commitInfo"]
                    return found
        finally:
            stream.close()
    except Py4JJavaError as error:
        text = str(error.java_exception.getMessage())
        raise TableTransientError(f"{name} cannot be read: {text}") from error
    return {}
