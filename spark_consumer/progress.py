"""What the job knows of a subscription beside its tables: counts, markers, the last complete LSN.

Kept as one small JSON file, ``<warehouse>/<subscription>/.pgsluice/progress.json``, replaced as a
whole after all tables of a micro-batch are written. It is about completeness alone: what a table
holds is decided by the table. Replays do not disturb it, because it has offsets of its own, and a
batch's records at or before them are not counted again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_consumer.errors import FatalConsumerError, TransientConsumerError
from spark_consumer.names import part

__all__ = ["Counted", "Marked", "Progress", "advance", "load", "store"]

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """How far a topic partition is applied.

    Attributes:
        offset: Of the last record.
        records: Since the topic's first one, tombstones left out.
    """

    offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Marked:
    """What the markers of a batch say; `None` and empty where they say nothing.

    Attributes:
        offset: Of the last marker.
        end_lsn: Of the last END or PROGRESS.
        promised: By topic partition, the last running total.
        copies: By ``schema.table``, the last state of the initial copy.
    """

    offset: int
    end_lsn: int | None
    promised: Mapping[tuple[str, int], int]
    copies: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a subscription stands.

    Attributes:
        counted: By topic partition.
        marker_offset: Of the last marker that was read; -1 for none.
        end_lsn: Of the last END or PROGRESS that was read; None before the first.
        promised: By topic partition, the running total that markers have named last.
        copies: By ``schema.table``, the state of the initial copy.
        complete_lsn: All tables hold everything up to this ``end_lsn``; None while they do not yet.
        tables: Versions of the Delta tables at the end of the last batch: read together, and when
            `complete_lsn` equals `end_lsn`, they show the source at that LSN.
    """

    counted: Mapping[tuple[str, int], Counted] = field(default_factory=dict)
    marker_offset: int = -1
    end_lsn: int | None = None
    promised: Mapping[tuple[str, int], int] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    complete_lsn: int | None = None
    tables: Mapping[str, int] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """What the markers have promised and the tables do not have; empty when complete."""
        lacking = [
            f"{topic}-{partition}: {self._records(topic, partition)} of {total} records"
            for (topic, partition), total in self.promised.items()
            if self._records(topic, partition) < total
        ]
        copying = [
            f"{table}: initial copy is {state}"
            for table, state in self.copies.items()
            if state != "ready"
        ]
        return lacking + copying

    def _records(self, topic: str, partition: int) -> int:
        known = self.counted.get((topic, partition))
        return 0 if known is None else known.records


def advance(
    progress: Progress,
    counted: Mapping[tuple[str, int], Counted],
    marked: Marked | None,
    tables: Iterable[tuple[str, int]],
) -> Progress:
    """Take in a batch whose tables are written.

    Args:
        progress: before the batch.
        counted: new counts of the topic partitions that the batch has records of.
        marked: what its markers say; None when it has none that are new.
        tables: (``schema.table``, version) of the tables it touched.
    """
    after = replace(
        progress,
        counted={**progress.counted, **counted},
        tables={**progress.tables, **dict(tables)},
    )
    if marked is not None:
        after = replace(
            after,
            marker_offset=marked.offset,
            end_lsn=after.end_lsn if marked.end_lsn is None else marked.end_lsn,
            promised={**after.promised, **marked.promised},
            copies={**after.copies, **marked.copies},
        )
    if after.end_lsn is not None and not after.missing():
        after = replace(after, complete_lsn=after.end_lsn)
    return after


def _to_json(progress: Progress) -> str:
    return json.dumps(
        {
            "format": _FORMAT,
            "counted": [[t, p, c.offset, c.records] for (t, p), c in progress.counted.items()],
            "marker_offset": progress.marker_offset,
            "end_lsn": progress.end_lsn,
            "promised": [[t, p, total] for (t, p), total in progress.promised.items()],
            "copies": dict(progress.copies),
            "complete_lsn": progress.complete_lsn,
            "tables": dict(progress.tables),
        },
        indent=1,
    )


def _from_json(text: str, path: str) -> Progress:
    hint = f"remove {path} and the subscription's checkpoint: both are made again from the topics"
    try:
        found = json.loads(text)
        known = found["format"]
        if known != _FORMAT:
            raise FatalConsumerError(f"{path} has format {known}, not {_FORMAT}", hint=hint)
        return Progress(
            counted={(t, p): Counted(offset, n) for t, p, offset, n in found["counted"]},
            marker_offset=found["marker_offset"],
            end_lsn=found["end_lsn"],
            promised={(t, p): total for t, p, total in found["promised"]},
            copies=found["copies"],
            complete_lsn=found["complete_lsn"],
            tables=found["tables"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FatalConsumerError(f"{path} cannot be read as progress", hint=hint) from error


def _place(spark: SparkSession, warehouse: str, subscription: str) -> tuple[Any, Any, Any]:
    """The file's path and folder, and the file system that has them, as Hadoop's objects."""
    # A point never occurs in a table's folder, so this one cannot be mistaken for a schema.
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop
    name = f"{warehouse.rstrip('/')}/{part(subscription)}/.pgsluice/progress.json"
    path = hadoop.fs.Path(name)
    filesystem = path.getFileSystem(_conf(spark))
    context = hadoop.fs.FileContext.getFileContext(filesystem.getUri(), _conf(spark))
    return jvm, context, path


def _conf(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()


def load(spark: SparkSession, warehouse: str, subscription: str) -> Progress | None:
    """The progress that `store` has kept; None when there is none.

    Raises:
        FatalConsumerError: the file is there, but is not what `store` writes.
        TransientConsumerError: the file system fails.
    """
    jvm, context, path = _place(spark, warehouse, subscription)
    try:
        if not context.util().exists(path):
            return None
        stream = context.open(path)
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(
                stream, jvm.java.nio.charset.StandardCharsets.UTF_8
            )
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise TransientConsumerError(f"{path} cannot be read: {_cause(error)}") from error
    return _from_json(text, str(path))


def store(spark: SparkSession, warehouse: str, subscription: str, progress: Progress) -> None:
    """Replace the file as a whole: a crash leaves the old one or the new one.

    Raises:
        TransientConsumerError: the file system fails.
    """
    jvm, context, path = _place(spark, warehouse, subscription)
    fs = jvm.org.apache.hadoop.fs
    try:
        context.mkdir(path.getParent(), None, True)
        fresh = fs.Path(path.getParent(), "progress.json.new")
        filesystem = path.getFileSystem(_conf(spark))
        stream = filesystem.create(fresh, True)
        try:
            stream.write(bytearray(_to_json(progress).encode()))
        finally:
            stream.close()
        options = fs.Options.Rename
        gateway: Any = spark.sparkContext._gateway
        array = gateway.new_array(options, 1)
        array[0] = options.OVERWRITE
        context.rename(fresh, path, array)
    except Py4JJavaError as error:
        raise TransientConsumerError(f"{path} cannot be written: {_cause(error)}") from error


def _cause(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage())
