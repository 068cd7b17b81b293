"""What is asked of Delta's log itself: to write rows, and what a commit has said.

Rows are written into files first, and committed afterwards, on top of the version that was read, or
not at all. Delta's own writer takes its place behind whatever was committed meanwhile. To tell that
it was not this very write, it can be given a transaction identifier, and then has the whole state
of the table computed to look it up, which takes longer than a small append. A commit that is bound
to the version before needs no such question. The identifier is written all the same: a MERGE, which
has the state computed in any case, goes by it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_consumer.names import quoted
from spark_consumer.spark.failures import TableTransientError
from spark_consumer.spark.tuning import INTERPRETED, tuned

__all__ = ["HARMLESS", "Candidates", "Draft", "Gone", "OutrunError", "commit_info", "settings"]

HARMLESS: Final = frozenset(
    {
        "OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES",
        "CHANGE COLUMN", "CHANGE COLUMNS", "UPGRADE PROTOCOL", "REORG", "CLUSTER BY",
        "COMPUTE STATS", "CREATE TABLE", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL",
        "ADD CONSTRAINT", "DROP CONSTRAINT", "DROP FEATURE", "DOMAIN METADATA CLEANUP",
        "OPTIMIZE CHECKPOINT", "REMOVE COLUMN MAPPING", "REORG TABLE UPGRADE UNIFORM",
    }
)  # fmt: skip
"""What Delta calls commits of others that leave the rows as they are."""

_ATTEMPTS: Final = "spark.databricks.delta.maxCommitAttempts"
_DELTA: Final = "org.apache.spark.sql.delta."
_SKIPPING: Final = "spark.databricks.delta.stats.skipping"
_PHYSICAL: Final = "delta.columnMapping.physicalName"


class OutrunError(Exception):
    """Somebody else has committed meanwhile, and nothing was."""


class Candidates:
    """The files of a table that may have rows of some kind.

    Delta would look for them again for each time that their rows are planned, and for deletion
    vectors in all files of the table.

    Args:
        log: the table's DeltaLog.
        rows: the table's, where a condition holds; they are not read.

    Attributes:
        version: Of the table.
        rows: The files' rows, whether the condition holds or not.
    """

    def __init__(self, log: Any, rows: DataFrame) -> None:
        spark = rows.sparkSession
        none: Any = spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        # Where the user has switched skipping off, a plan does not say which files it reads.
        with tuned(spark, {**INTERPRETED, _SKIPPING: "true"}):
            scan = rows._jdf.queryExecution().optimizedPlan().collectLeaves().head()
        prepared = scan.relation().location().preparedScan()
        snapshot = prepared.scannedSnapshot()
        self.version = int(snapshot.version())
        _activate(spark)
        made = log.createDataFrame(snapshot, prepared.files(), False, none)
        self.rows = DataFrame(made, spark)


@dataclass(frozen=True, slots=True)
class Gone:
    """Rows that go.

    Attributes:
        places: `file` and `place` of each, as `_metadata` has file_path and row_index.
        files: Those of `file`.
        version: Of the table in which they are there.
        few: It takes longer to compile something for them than to go through them.
    """

    places: DataFrame
    files: Collection[str]
    version: int
    few: bool


class Draft:
    """Rows in a table's files that no commit names yet.

    Args:
        spark: the session that writes.
        log: the table's DeltaLog.
        snapshot: of the version on top of which it is to be.
        rows: with the table's columns, in its order, unless they make it anew.
        empty: the table's rows go.
        anew: with `empty`: its columns become those of `rows`.
        gone: rows that go; the table must have deletion vectors.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Any,
        snapshot: Any,
        rows: DataFrame,
        *,
        empty: bool = False,
        anew: bool = False,
        gone: Gone | None = None,
    ) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._jvm = jvm
        self._log = log
        self._none = jvm.scala.Option.empty()
        _activate(spark)
        self._begun = log.startTransaction(self._none, jvm.scala.Option.apply(snapshot))
        modes = jvm.org.apache.spark.sql.SaveMode
        self._mode = modes.Overwrite if empty else modes.Append
        self._actions = self._overwrite(rows, anew=anew) if empty else self._append(rows)
        if gone is not None:
            with tuned(spark) if gone.few else nullcontext():
                self._actions = self._actions.concat(self._marked(snapshot, gone))

    def _append(self, rows: DataFrame) -> Any:
        return self._begun.writeFiles(rows._jdf)

    def _overwrite(self, rows: DataFrame, *, anew: bool) -> Any:
        session, scala = self._spark._jsparkSession, self._jvm.org.apache.spark.api.python
        none, no_names = scala.PythonUtils.toScalaMap({}), scala.PythonUtils.toSeq([])
        chosen = scala.PythonUtils.toScalaMap({"overwriteSchema": "true"}) if anew else none
        options = self._class("DeltaOptions")(chosen, session.sessionState().conf())
        written = self._class("commands.WriteIntoDelta")(
            self._log, self._mode, options, no_names, none, rows._jdf, self._none, self._none, False
        ).writeAndReturnCommitData(self._begun, session, self._none, False)
        return written.actions()

    def _marked(self, snapshot: Any, gone: Gone) -> Any:
        """The files with rows that go, with these marked as deleted."""
        session, begun, option = self._spark._jsparkSession, self._begun, self._jvm.scala.Option
        column = self._jvm.org.apache.spark.sql.functions.col
        always = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral()
        names = ", ".join(f"'{name.rpartition('/')[2]}'" for name in ("", *gone.files))
        # With what is known of them: a file of which all rows go is removed.
        there = snapshot.allFiles().filter(f"substring_index(path, '/', -1) IN ({names})")
        listed = there.collectAsList()
        files = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed)
        places = self._class("commands.DeletionVectorBitmapGenerator")
        marks = self._class("commands.DMLWithDeletionVectorsHelper")
        built = places.buildRowIndexSetsForFilesMatchingCondition(
            session,
            begun,
            any(file.deletionVector() is not None for file in listed),
            gone.places._jdf,
            files,
            always,
            option.apply(column("file")),
            option.apply(column("place")),
        )
        known = marks.generateCandidateFileMap(self._log.dataPath(), files)
        touched = marks.findFilesWithMatchingRows(begun, known, built)
        statistics = self._class("stats.StatsCollectionUtils")
        length = statistics.getDataSkippingStringPrefixLength(session, begun.metadata())
        return marks.processUnmodifiedData(session, touched, snapshot, length)._1()

    def rows(self, names: Sequence[str]) -> DataFrame:
        """Some columns of what was written, read back."""
        schema = StructType.fromJson(json.loads(self._begun.metadata().schema().json()))
        # A column that was renamed, or has a name that Parquet cannot have, has another one there.
        physical = {name: str(schema[name].metadata.get(_PHYSICAL, name)) for name in names}
        stored = StructType([StructField(physical[n], schema[n].dataType) for n in names])
        paths = [path.toString() for path in self._paths()]
        frame = self._spark.read.schema(stored).option("__globPaths__", "false").parquet(*paths)
        return frame.select(*(F.col(quoted(physical[name])).alias(name) for name in names))

    def commit(self, transaction: tuple[str, int], metadata: str) -> int:
        """Let the table have it.

        Args:
            transaction: application and version of the transaction identifier.
            metadata: the commit's userMetadata.

        Returns:
            The table's version then.

        Raises:
            OutrunError: there is another already.
        """
        none, option = self._none, self._jvm.scala.Option
        said = self._class("actions.SetTransaction")(*transaction, none)
        operation = self._class("DeltaOperations$Write")(
            self._mode, none, none, option.apply(metadata), none, none, none, none, none
        )
        try:
            with settings(self._spark, {_ATTEMPTS: "0"}):
                return int(self._begun.commit(self._actions.appended(said), operation))
        except Py4JJavaError as error:
            if "DELTA_MAX_COMMIT_RETRIES_EXCEEDED" in str(error.java_exception.getMessage()):
                raise OutrunError from error
            raise

    def discard(self) -> None:
        """Remove the files; those that stay, for the file system fails, go with the next VACUUM."""
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

    def _class(self, name: str) -> Any:
        return getattr(self._jvm, _DELTA + name)


def _activate(spark: SparkSession) -> None:
    """Let Delta, which asks for the thread's session, have this one with its settings."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Let a session have these settings, which it has not otherwise, while the block runs."""
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


def commit_info(spark: SparkSession, log: Any, name: str) -> dict[str, Any] | None:
    """What a commit says of itself; None when its file is not there any more.

    Args:
        spark: any session.
        log: the table's DeltaLog.
        name: the file's.

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
