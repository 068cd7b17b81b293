"""Replacement of files of a Delta table, by a commit that is written as text.

Delta's own writers spend half a second on a commit: they compute the state of the whole table again
for its checksum. All that a commit needs is public: a file of a few lines, which the store of the
log creates or refuses. Source: Delta's protocol, "Delta Log Entries", "Actions".
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Version, outrun
from spark_consumer.formats.data_files import DataFile, DataFiles, StoredColumn
from spark_consumer.formats.delta.columns import has_times, needs_mapping
from spark_consumer.formats.delta.internals import PrivateLog
from spark_consumer.formats.delta.session import APPLICATION

__all__ = ["Exchange", "FileCache", "known_files", "replace_files"]

_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "columnMapping", "timestampNtz", "deletionVectors"}
    | {"typeWidening", "typeWidening-preview", "changeDataFeed", "checkConstraints"}
    | {"generatedColumns"}
)
"""Features of tables that a replacement of files leaves alone, as long as no property or column
makes use of them."""
_MOST_LEGACY: Final = 5
"""Version of the writer's protocol until which features are not listed, and among `_FEATURES`."""
_LEGACY: Final = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
}
"""Version of the writer's protocol since which a feature is part of it."""
_MAPPING_READER: Final = 2
"""Version of the reader's protocol that has column mapping."""
_HARMLESS: Final = re.compile(
    r"delta\.((columnMapping|feature|dataSkipping)\..*|minReaderVersion|minWriterVersion"
    r"|enableDeletionVectors|enableChangeDataFeed|enableTypeWidening|logRetentionDuration"
    r"|deletedFileRetentionDuration"
    r"|checkpointInterval|targetFileSize|tuneFileSizesForRewrites|dataSkippingNumIndexedCols"
    r"|dataSkippingStatsColumns)|(?!delta\.).*"
)
"""Properties that ask nothing of such a commit, whatever their value."""
_OF_COLUMNS: Final = ("delta.generationExpression", "delta.invariants", "delta.identity.start")
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_NUMBER: Final = "delta.columnMapping.id"
_DEFAULTS: Final = "spark.databricks.delta.properties.defaults."
_PLAIN: Final[Mapping[str, Any]] = {"minReaderVersion": 1, "minWriterVersion": 2}
_WITH_TIMES: Final[Mapping[str, Any]] = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["timestampNtz"],
    "writerFeatures": ["timestampNtz", "appendOnly", "invariants"],
}
_MARKS: Final = "delta.enableDeletionVectors"
_INDEXED: Final = "delta.dataSkippingNumIndexedCols"
_MOST_INDEXED: Final = 32
"""Number of columns with statistics, unless a property says otherwise."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,9}")
_INDEXED_BY_NAME: Final = "delta.dataSkippingStatsColumns"
_MODE: Final = "delta.columnMapping.mode"
_FEED: Final = "delta.enableChangeDataFeed"
_OF_FEED: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns of a feed's own, which a table with one cannot have; Delta refuses them by name."""
_MOST_KNOWN: Final = 20_000
"""Number of files of all tables that are kept in mind; a table counts as one more."""
_MOST_FILES: Final = 64
"""Number of a table's files until which it is cheap to keep them all in mind."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Files of a commit.

    Attributes:
        removed: Files of the table that are no longer part of it.
        added: Files that become part of it, removed ones with other deleted rows among them.
        changes: Files of the rows that change, for the change data feed; None if the others say it.
    """

    removed: Collection[DataFile]
    added: Collection[DataFile]
    changes: Collection[DataFile] | None = None


class FileCache:
    """Files of tables as this process has left them, by path of the table. Thread-safe.

    Whether they are still that is not asked: a commit on top of them says so. Whoever changes a
    table in another way forgets them first.
    """

    def __init__(self) -> None:
        self._known: dict[str, DataFiles] = {}
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> DataFiles | None:
        """Return the files of a table, if known."""
        with self._lock:
            return self._known.get(path)

    def put(self, path: str, files: DataFiles) -> None:
        """Remember the files of a table."""
        with self._lock:
            self._pop(path)
            self._known[path] = files
            self._size += 1 + len(files.files)
            while self._size > _MOST_KNOWN:
                self._pop(next(iter(self._known)))

    def forget(self, path: str) -> DataFiles | None:
        """Forget the files of a table; return them, if known."""
        with self._lock:
            return self._pop(path)

    def _pop(self, path: str) -> DataFiles | None:
        files = self._known.pop(path, None)
        if files is not None:
            self._size -= 1 + len(files.files)
        return files


def known_files(
    spark: SparkSession, log: PrivateLog, most: int, fields: Sequence[StructField] | None
) -> DataFiles | None:
    """Return the files of a table at its newest version.

    Args:
        spark: Session with the user's settings.
        log: Log of the table.
        most: Bytes that they may have.
        fields: Columns that the table, which need not exist, is to have; None: those that it has.

    Returns:
        None if there are more bytes, or the table has anything that a commit of whole files would
        have to respect besides.
    """
    snapshot = log.snapshot()
    version = Version(int(snapshot.version()))
    if version == NO_VERSION:
        return None if fields is None or most < 0 else _new(spark, fields)
    checksum = snapshot.checksumOpt()
    if checksum.isDefined() and (
        int(checksum.get().tableSizeBytes()) > most or int(checksum.get().numFiles()) > _MOST_FILES
    ):
        return None
    protocol = json.loads(snapshot.protocol().json())["protocol"]
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    settings = metadata.get("configuration", {})
    has_feed = settings.get(_FEED, "").lower() == "true"
    # The column of a feed that says what has changed has no number.
    if not _is_plain(protocol, metadata) or (has_feed and settings.get(_MODE, "").lower() == "id"):
        return None
    actions: tuple[str, ...] = ()
    indexed = log.indexed(snapshot)
    if fields is not None:
        if not _allows(protocol, metadata, fields):
            return None
        metadata["schemaString"] = StructType(list(fields)).json()
        actions = (json.dumps({"metaData": metadata}),)
        indexed = _first(fields, metadata.get("configuration", {}))
    files = []
    java = log.log()
    for action in snapshot.allFiles().limit(_MOST_FILES + 1).collectAsList():
        entry = json.loads(action.json())["add"]
        statistics = entry.get("stats") or "{}"
        rows = json.loads(statistics).get("numRecords")
        if rows is None or entry.get("tags"):
            return None
        place = action.absolutePath(java).toString()
        size, deleted = int(entry["size"]), entry.get("deletionVector")
        files.append(DataFile(place, entry["path"], size, int(rows), statistics, deleted))
    schema = StructType.fromJson(json.loads(metadata["schemaString"]))
    known = _with_columns(version, files, schema, indexed)
    if known.bytes > most or len(files) > _MOST_FILES:
        return None
    if has_feed and not _OF_FEED.isdisjoint(name.lower() for name in known.columns):
        return None
    chosen = settings.get(_MARKS)
    marking = _marking(protocol, metadata) if chosen is None else ()
    marks = chosen is None or chosen.lower() == "true"
    return replace(known, actions=actions, can_mark=marks, marking=marking, has_feed=has_feed)


def _marking(protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the actions that enable deletion vectors."""
    old, version = protocol["minReaderVersion"], protocol["minWriterVersion"]
    readers = {*protocol.get("readerFeatures", ()), "deletionVectors"}
    writers = {*protocol.get("writerFeatures", ()), "deletionVectors"}
    # Features that a version has without listing them.
    if old == _MAPPING_READER:
        readers.add("columnMapping")
    writers |= {name for name, since in _LEGACY.items() if since <= version <= _MOST_LEGACY}
    upgraded = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers),
        "writerFeatures": sorted(writers | readers),
    }
    settings = {**metadata.get("configuration", {}), _MARKS: "true"}
    return (
        json.dumps({"protocol": upgraded}),
        json.dumps({"metaData": {**metadata, "configuration": settings}}),
    )


def _with_columns(
    version: Version, files: Iterable[DataFile], schema: StructType, indexed: Collection[str]
) -> DataFiles:
    columns = {}
    for field in schema.fields:
        name = field.metadata.get(_PHYSICAL, field.name)
        columns[field.name] = StoredColumn(name, field.metadata.get(_NUMBER), name in indexed)
    return DataFiles(version, tuple(files), tuple(schema.fields), columns)


def _new(spark: SparkSession, fields: Sequence[StructField]) -> DataFiles | None:
    """Return what a table that does not exist has; None if the user has a say in its properties."""
    settings: Any = spark._jsparkSession.sessionState().conf().getAllConfs()
    by_user = _DEFAULTS in str(settings.keys().mkString(" "))
    if by_user or needs_mapping(field.name for field in fields):
        return None
    schema = StructType(list(fields))
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": time.time_ns() // 1_000_000,
    }
    protocol = _WITH_TIMES if has_times(fields) else _PLAIN
    actions = (json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata}))
    marking = _marking(protocol, metadata)
    known = _with_columns(NO_VERSION, (), schema, _first(fields, {}))
    return replace(known, actions=actions, can_mark=True, marking=marking)


def _first(fields: Sequence[StructField], settings: Mapping[str, str]) -> frozenset[str]:
    """Return the columns with statistics in a table that is to have these columns.

    None of them has parts, each of which Delta would count; their names are those in files.
    """
    most = int(settings.get(_INDEXED, _MOST_INDEXED))
    return frozenset(field.name for field in (fields if most < 0 else fields[:most]))


def _allows(
    protocol: Mapping[str, Any], metadata: Mapping[str, Any], fields: Sequence[StructField]
) -> bool:
    """Whether a table's columns can become these by new metadata alone."""
    settings = metadata.get("configuration", {})
    return (
        settings.get(_MODE, "none") == "none"
        # Only Delta knows what a list of columns means that are to be others.
        and _INDEXED_BY_NAME not in settings
        and _WHOLE.fullmatch(settings.get(_INDEXED, "0")) is not None
        and not needs_mapping(field.name for field in fields)
        and (not has_times(fields) or "timestampNtz" in protocol.get("writerFeatures", ()))
    )


def _is_plain(protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether nothing but files and columns has to be respected by a commit."""
    features = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
    listed = "writerFeatures" in protocol or "readerFeatures" in protocol
    settings = metadata.get("configuration", {})
    fields = json.loads(metadata["schemaString"])["fields"]
    return (
        features <= _FEATURES
        and (listed or protocol["minWriterVersion"] <= _MOST_LEGACY)
        and not metadata.get("partitionColumns")
        and all(_HARMLESS.fullmatch(name) or _is_off(settings[name]) for name in settings)
        and all(field["nullable"] for field in fields)
        and not any(name in field["metadata"] for field in fields for name in _OF_COLUMNS)
    )


def _is_off(value: str) -> bool:
    return value.lower() in ("false", "none", "")


def replace_files(
    spark: SparkSession,
    log: PrivateLog,
    label: str,
    files: DataFiles,
    exchange: Exchange,
    commit: Commit,
) -> DataFiles:
    """Let some files take the place of others, on top of their version or not at all.

    Args:
        spark: Any session.
        log: Log of the table.
        label: Name of the table in messages.
        files: Files of the table.
        exchange: Files that go and come.
        commit: Metadata of the commit.

    Returns:
        Files of the table after the commit.

    Raises:
        TransientConsumerError: the table has another version already, or no longer has this one.
    """
    jvm: Any = spark._jvm
    java = log.log()
    conf = java.newDeltaHadoopConf()
    version = Version(files.version + 1)
    # Of a folder that was restored to an older state, a later version would be a hole.
    if files.entry is not None and _entry(jvm, java, conf, files.version) != files.entry:
        raise outrun(label)
    if files.version == NO_VERSION:
        java.logPath().getFileSystem(conf).mkdirs(java.logPath())
    removed, added = exchange.removed, exchange.added
    lines = _lines(files, exchange, commit)
    text = jvm.org.apache.spark.api.python.PythonUtils.toSeq(lines)
    try:
        java.store().write(_place(jvm, java, version), text.iterator(), False, conf)
    except Py4JJavaError as error:
        taken = "java.nio.file.FileAlreadyExistsException"
        if is_instance_of(spark.sparkContext._gateway, error.java_exception, taken):
            raise outrun(label) from error
        raise
    if files.entry is None:
        # The state from which the files were listed, 2 MB a table, goes with its snapshot.
        log.snapshot()
    gone = {file.name for file in removed}
    left = (*(file for file in files.files if file.name not in gone), *added)
    marking = () if _marks(added) else files.marking
    return replace(files, version=version, files=left, actions=(), marking=marking, entry=lines[0])


def _place(jvm: Any, log: Any, version: Version) -> Any:
    return jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020}.json")


def _entry(jvm: Any, log: Any, conf: Any, version: Version) -> str | None:
    """Return the first line of a version's commit; None if there is none."""
    try:
        return str(log.store().read(_place(jvm, log, version), conf).head())
    except (Py4JJavaError, PySparkException):
        return None


def _lines(files: DataFiles, exchange: Exchange, commit: Commit) -> list[str]:
    now = time.time_ns() // 1_000_000
    removed, added, changes = exchange.removed, exchange.added, exchange.changes
    # Readers of the change data feed take files that change no row for none.
    changed = changes is None or len(changes) > 0
    begun: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now,
                "operation": "WRITE",
                "operationParameters": {"mode": "Overwrite" if removed else "Append"},
                **({} if files.version == NO_VERSION else {"readVersion": files.version}),
                "isolationLevel": "Serializable",
                "isBlindAppend": False,
                "operationMetrics": {},
                "engineInfo": APPLICATION,
                "txnId": str(uuid.uuid4()),
                "userMetadata": commit.text(),
            }
        },
        {"txn": {"appId": APPLICATION, "version": commit.serial, "lastUpdated": now}},
    ]
    actions: list[dict[str, Any]] = [
        {
            "remove": {
                "path": file.name,
                "deletionTimestamp": now,
                "dataChange": changed,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": file.size,
                **_vector(file),
            }
        }
        for file in removed
    ]
    actions += [
        {
            "add": {
                "path": file.name,
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now,
                "dataChange": changed,
                "stats": file.statistics,
                **_vector(file),
            }
        }
        for file in added
    ]
    actions += [
        {"cdc": {"path": file.name, "partitionValues": {}, "size": file.size, "dataChange": False}}
        for file in changes or ()
    ]
    first, *rest = (json.dumps(action, separators=(",", ":")) for action in [*begun, *actions])
    return [first, *files.actions, *(files.marking if _marks(added) else ()), *rest]


def _marks(added: Iterable[DataFile]) -> bool:
    return any(file.deleted is not None for file in added)


def _vector(file: DataFile) -> dict[str, Any]:
    return {} if file.deleted is None else {"deletionVector": file.deleted}
