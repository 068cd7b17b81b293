"""Check of the Delta that a session has: whether it works, and which of its classes may be used.

The job's fast ways use classes of Delta that are not public (`spark_consumer.formats.delta
.internals`). Everything that it calls is listed here, as the release that the job is tested with
has it. If anything differs, as in another release or a vendor's build, the job uses public ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_consumer.errors import SettingsError

__all__ = ["check_delta", "difference"]

_RELEASE: Final = "4.4"
_TABLE: Final = "io.delta.tables.DeltaTable"
_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_HINT: Final = "see docs/spark.md, Deploy"

_CALLED: Final = {
    "DeltaLog": (
        "DeltaLog forTable(SparkSession,String)",
        "Snapshot update(boolean,Option,Option)",
        "OptimisticTransaction startTransaction(Option,Option)",
        "Dataset createDataFrame(SnapshotDescriptor,Seq,boolean,Option)",
        "Path dataPath()",
        "Path logPath()",
        "LogStore store()",
        "void checkpoint(Snapshot,Option)",
        "Configuration newDeltaHadoopConf()",
    ),
    "Snapshot": (
        "long version()",
        "Option checksumOpt()",
        "Metadata metadata()",
        "Protocol protocol()",
        "StructType schema()",
        "StructType statsSchema()",
        "Dataset allFiles()",
        "Dataset withStats()",
    ),
    "VersionChecksum": ("long tableSizeBytes()", "long numFiles()"),
    "OptimisticTransaction": (
        "Metadata metadata()",
        "Seq writeFiles(Dataset)",
        "long commit(Seq,DeltaOperations$Operation)",
    ),
    "DeltaOptions": ("DeltaOptions(Map,SQLConf)",),
    "DeltaOperations$Write": (
        "Write(SaveMode,Option,Option,Option,Option,Option,Option,Option,Option)",
    ),
    "actions.AddFile": (
        "Path absolutePath(DeltaLog)",
        "DeletionVectorDescriptor deletionVector()",
        "String path()",
        "String stats()",
        "long size()",
    ),
    "actions.DeletionVectorDescriptor": (
        "DeletionVectorDescriptor(String,String,Option,int,long,Option)",
        "String UUID_DV_MARKER()",
    ),
    "actions.DeletionVectorDescriptor$": ("String encodeUUID(UUID,String)",),
    "actions.Metadata": ("Map configuration()", "StructType schema()", "String json()"),
    "actions.Protocol": ("String json()",),
    "actions.SetTransaction": ("SetTransaction(String,long,Option)",),
    "commands.DMLUtils$TaggedCommitData": ("Seq actions()",),
    "commands.DMLWithDeletionVectorsHelper": (
        "Map generateCandidateFileMap(Path,Seq)",
        "Seq findFilesWithMatchingRows(OptimisticTransaction,Map,Seq)",
        "Tuple2 processUnmodifiedData(SparkSession,Seq,Snapshot,int)",
    ),
    "commands.DeletionVectorBitmapGenerator": (
        "Seq buildRowIndexSetsForFilesMatchingCondition"
        "(SparkSession,OptimisticTransaction,boolean,Dataset,Seq,Expression,Option,Option)",
    ),
    "commands.WriteIntoDelta": (
        "WriteIntoDelta(DeltaLog,SaveMode,DeltaOptions,Seq,Map,Dataset,Option,Option,boolean)",
        "DMLUtils$TaggedCommitData writeAndReturnCommitData"
        "(OptimisticTransaction,SparkSession,Option,boolean)",
    ),
    "deletionvectors.RoaringBitmapArray": (
        "RoaringBitmapArray()",
        "boolean contains(long)",
        "boolean runOptimize()",
        "byte[] serializeAsByteArray(Enumeration$Value)",
        "long cardinality()",
        "void add(long)",
    ),
    "deletionvectors.RoaringBitmapArrayFormat$": ("RoaringBitmapArrayFormat$Format Portable()",),
    "deletionvectors.StoredBitmap": (
        "StoredBitmap create(DeletionVectorDescriptor,Path)",
        "RoaringBitmapArray load(DeletionVectorStore)",
    ),
    "skipping.clustering.ClusteredTableUtils": ("Option getClusterBySpecOptional(Snapshot)",),
    "storage.dv.DeletionVectorStoreUtils$Writer": (
        "DeletionVectorStoreUtils$DVRangeDescriptor write(byte[])",
    ),
    "storage.dv.HadoopFileSystemDVStore": (
        "HadoopFileSystemDVStore(Configuration)",
        "DeletionVectorStoreUtils$Writer createWriter(PathWithFileSystem)",
        "PathWithFileSystem generateFileNameInTable(PathWithFileSystem,UUID,String)",
        "PathWithFileSystem pathWithFileSystem(Path)",
    ),
    "storage.LogStore": (
        "void write(Path,Iterator,boolean,Configuration)",
        "Seq read(Path,Configuration)",
    ),
    "stats.DeltaScan": ("Seq files()", "Snapshot scannedSnapshot()"),
    "stats.PreparedDeltaFileIndex": ("DeltaScan preparedScan()",),
    "stats.StatsCollectionUtils": ("int getDataSkippingStringPrefixLength(SparkSession,Metadata)",),
}
"""By class below ``org.apache.spark.sql.delta``, the methods and constructors that are called."""

_OUTER: Final = re.compile(r"(?:[\w$]+\.)+|\w+\$(?=\w+\()")
"""Qualifiers before the last part of a name, and before that of a constructor's inner class."""


def check_delta(spark: SparkSession) -> None:
    """Check that a session has Delta.

    Raises:
        SettingsError: its jar or a setting is missing; says which.
    """
    try:
        _loaded(spark, _TABLE)
    except Py4JError:
        raise SettingsError(
            f"Spark has no class {_TABLE}: one of the jars is missing", hint=_HINT
        ) from None
    for key, value in _SETTINGS.items():
        if value not in (spark.conf.get(key, "") or ""):
            raise SettingsError(f"{key} must have {value}", hint=_HINT)


def difference(spark: SparkSession) -> str | None:
    """Return how this Delta differs from the tested release; None if it does not."""
    jvm: Any = spark._jvm
    try:
        version = str(jvm.io.delta.package.VERSION())
    except (Py4JError, TypeError):
        return "it does not say which version it is"
    if not f"{version}.".startswith(f"{_RELEASE}."):
        return f"it is version {version}, not {_RELEASE}"
    return next(_differences(spark), None)


def _differences(spark: SparkSession) -> Iterator[str]:
    jvm: Any = spark._jvm
    for name, called in _CALLED.items():
        try:
            found = _loaded(spark, f"org.apache.spark.sql.delta.{name}")
        except Py4JError:
            yield f"it has no class {name}"
            continue
        # As one text: inspecting each method would be a round trip.
        text = jvm.org.apache.commons.lang3.ArrayUtils.toString
        members = _OUTER.sub("", f"{text(found.getMethods())} {text(found.getConstructors())}")
        for one in called:
            if f" {one}" not in members:
                yield f"{name} has no {one}"


def _loaded(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.util.Utils.classForName(name, False, False)
