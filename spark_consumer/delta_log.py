"""What is asked of Delta's log itself: to append, and what a commit has said.

An append is a commit on top of the version that was read, or none at all. Delta's own writer takes
its place behind whatever was committed meanwhile. To tell that it was not this very write, it can
be given a transaction identifier, and then has the whole state of the table computed to look it up,
which takes longer than a small append. A commit that is bound to the version before needs no such
question. The identifier is written all the same: a MERGE, which has the state computed in any case,
goes by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from spark_consumer.errors import TransientConsumerError

__all__ = ["OutrunError", "append", "commit_info", "settings"]

_ATTEMPTS: Final = "spark.databricks.delta.maxCommitAttempts"
_DELTA: Final = "org.apache.spark.sql.delta."


class OutrunError(Exception):
    """Somebody else has committed meanwhile, and nothing was."""


def append(
    spark: SparkSession,
    log: Any,
    snapshot: Any,
    rows: DataFrame,
    *,
    transaction: tuple[str, int],
    metadata: str,
) -> None:
    """Append rows.

    Args:
        spark: the session that writes.
        log: the table's DeltaLog.
        snapshot: of the version on top of which it is to be.
        rows: with the table's columns, in its order.
        transaction: application and version of the transaction identifier.
        metadata: the commit's userMetadata.

    Raises:
        OutrunError: there is a later version.
    """
    jvm: Any = spark._jvm
    option = jvm.scala.Option
    none = option.empty()
    # Delta takes its settings from the thread's session.
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    begun = log.startTransaction(none, option.apply(snapshot))
    files = begun.writeFiles(rows._jdf)
    said = getattr(jvm, _DELTA + "actions.SetTransaction")(*transaction, none)
    mode = jvm.org.apache.spark.sql.SaveMode.Append
    write = getattr(jvm, _DELTA + "DeltaOperations$Write")
    operation = write(mode, none, none, option.apply(metadata), none, none, none, none, none)
    try:
        with settings(spark, {_ATTEMPTS: "0"}):
            begun.commit(files.appended(said), operation)
    except Py4JJavaError as error:
        if "DELTA_MAX_COMMIT_RETRIES_EXCEEDED" in str(error.java_exception.getMessage()):
            raise OutrunError from error
        raise


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
        TransientConsumerError: the file cannot be read.
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
        raise TransientConsumerError(f"{name} cannot be read: {text}") from error
    return {}
