"""Writer of epochs whose records the driver holds.

A table's files are a tail and a base. The tail is the smallest files, as many as can be rewritten
in no time: a new file takes their place, or stands beside them if it has new rows only. Rows of the
base, which is all other files, are marked as deleted, and their new versions come into the new
file. A file that has grown beyond the tail belongs to the base from then on, until there are many:
then a longer tail makes one of them.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from schemas.types import of_spark
from spark_consumer.apply.driver.records import DriverRecords
from spark_consumer.errors import COPY_AGAIN, ContractError, TransientConsumerError
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found, Written
from spark_consumer.formats.data_files import DataFile, DataFiles
from spark_consumer.formats.protocol import Table
from spark_consumer.kafka.decode import RowTypes
from spark_consumer.kafka.layout import ColumnPlan, KeyLayout
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.schema_epochs import Epoch

__all__ = ["LARGEST_BYTES", "SMALL_TABLE_BYTES", "TAIL_BYTES", "NotSmallError", "SmallWriter"]

LARGEST_BYTES: Final = 64 * 1024 * 1024
"""Size of a table until which this way is faster than Spark's."""

SMALL_TABLE_BYTES: Final = 1024 * 1024
"""Size until which all of a table is rewritten, unless it has deletion vectors already."""

TAIL_BYTES: Final = 256 * 1024
"""Size of the tail of other tables."""

_MOST_FILES: Final = 8
"""Number of files of the tail until which new rows are written beside them."""

_MANY_FILES: Final = 24
"""Number of a table's files from which more of them become one."""

_LONG_TAILS: Final = 16
"""How much larger the tail is then."""

_CELLS: Final = 1_000_000
"""Number of the tail's values until which the driver has memory for them."""

_FEED: Final = "_change_data"
"""Folder of the files of changed rows, in a table's."""

_CODEC: Final = "spark.sql.parquet.compression.codec"
_EQUALITIES: Final = ("numeric", "bpchar")
"""Canonical forms of text that the Java classes have, besides the text itself."""
_UNSUPPORTED: Final = ("interval", "numbers")
"""Those that they do not have."""
_KINDS: Final = frozenset(
    {"boolean", "int", "bigint", "float", "double", "decimal", "string", "binary", "date"}
    | {"timestamp", "timestamp_ntz"}
)
"""Types that the Java classes have, without their parameters."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_CODECS: Final = {"none": "uncompressed"}
"""Names of Spark's that Parquet does not know."""
_MOST_TABLES: Final = 1_000
_MOST_PAIRS: Final = 500


class NotSmallError(Exception):
    """An epoch or its table is not for this way; nothing of the epoch was written.

    Attributes:
        reached: The table after the epochs before it; None if it is the first one.
    """

    reached: Found | None = None


class SmallWriter:
    """Writer of `DriverRecords`; see `spark_consumer.apply.applier.EpochWriter`.

    Args:
        spark: Session that nothing else uses meanwhile.
        schemas: Writer schemas by ID.
        types: Types of tables' rows.
    """

    def __init__(self, spark: SparkSession, schemas: Schemas, types: RowTypes) -> None:
        jvm: Any = spark._jvm
        self._java = jvm.pgsluice.small
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._metadata = {"org.apache.spark.version": spark.version}
        codec = str(spark.conf.get(_CODEC)).lower()
        self._codec = _CODECS.get(codec, codec)
        self._schemas = schemas
        self._types = types
        self._prepared: OrderedDict[tuple[str, str], _Prepared] = OrderedDict()

    def write(
        self,
        table: Table,
        columns: tuple[ColumnPlan, ...],
        epoch: Epoch,
        commit: Commit,
        found: Found | None,
        mode: WriteMode,
    ) -> Written:
        """See `EpochWriter`.

        Raises:
            NotSmallError: this way cannot do it.
            ContractError: a record is not what its schemas say.
        """
        assert isinstance(epoch.records, DriverRecords)
        if any(column.spark_type.partition("(")[0] not in _KINDS for column in columns):
            raise NotSmallError
        fields = self._fields(columns, epoch) if mode is WriteMode.REPLACE_TABLE else None
        try:
            files = table.data_files(found, LARGEST_BYTES, fields)
        except (Py4JJavaError, PySparkException) as error:
            raise NotSmallError from error
        if files is None:
            raise NotSmallError
        tail, base = ([], []) if mode.empties else _divided(files, has_key=epoch.key is not None)
        name = f"part-00000-{uuid.uuid4()}-c000.{self._codec}.parquet"
        # If all rows go, files say so.
        feed = (
            f"{_FEED}/{name.replace('part', 'cdc', 1)}"
            if files.has_feed and not mode.empties
            else None
        )
        stored = {
            "table": table.path,
            "tail": list(map(_described, tail)),
            "base": list(map(_described, base)),
            "canMark": files.can_mark,
        }
        try:
            prepared = self._prepare(table, columns, files, epoch)
            outcome = prepared.java.apply(
                epoch.records.java,
                json.dumps(stored),
                f"{table.path}/{name}",
                not mode.empties and len(tail) < _MOST_FILES,
                None if feed is None else f"{table.path}/{feed}",
                self._codec,
                self._metadata,
                self._conf,
            )
        except (Py4JJavaError, PySparkException) as error:
            # Files that are gone, a schema that is none: Spark's way finds out.
            raise NotSmallError from error
        if outcome is None:
            raise NotSmallError
        done = json.loads(outcome)
        if "damaged" in done:
            raise ContractError(
                f"{table.label}: a record is not what its Avro schema says: partition"
                f" {done['partition']}, offset {done['damaged']}",
                hint=f"is the topic written by something else than the gateway? {COPY_AGAIN}",
            )
        removed = list(files.files) if mode.empties else [] if done["isBeside"] else tail
        added = []
        if done["rows"]:
            place = f"{table.path}/{name}"
            added.append(DataFile(place, name, done["size"], done["rows"], done["stats"]))
        for one in done["marked"]:
            marked = base[one["number"]]
            removed = [*removed, marked]
            if one["deleted"] is not None:
                statistics, deleted = one["statistics"], one["deleted"]
                added.append(replace(marked, statistics=statistics, deleted=deleted))
        changes = None
        if feed is not None and (rows := done.get("feedRows")) is not None:
            place, size = f"{table.path}/{feed}", done.get("feedSize", 0)
            changes = [DataFile(place, feed, size, rows, "")] if rows else []
        try:
            version = table.replace_files(files, removed, added, commit, changes)
        except TransientConsumerError as error:
            # What others have committed may be harmless.
            raise NotSmallError from error
        return Written(version, int(done["skipped"]))

    def _fields(self, columns: Sequence[ColumnPlan], epoch: Epoch) -> list[StructField]:
        written = self._types.of(epoch.pieces[0].value_id)
        return [
            StructField(c.name, written[c.field].dataType, True, {"comment": c.pg_type})
            for c in columns
        ]

    def _prepare(
        self, table: Table, columns: tuple[ColumnPlan, ...], files: DataFiles, epoch: Epoch
    ) -> _Prepared:
        spec = json.dumps(
            {
                "columns": [
                    {
                        "field": column.field,
                        "physical": files.columns[column.name].name,
                        "id": files.columns[column.name].number,
                        "type": column.spark_type,
                        "equality": _equality(column, epoch.key),
                        "statistics": files.columns[column.name].has_statistics,
                    }
                    for column in columns
                ],
                "key": None if epoch.key is None else epoch.key.fields,
            }
        )
        prepared = self._prepared.pop((table.path, spec), None)
        if prepared is None or len(prepared.pairs) > _MOST_PAIRS:
            prepared = _Prepared(self._java.SmallTable(spec, LARGEST_BYTES))
            if len(self._prepared) >= _MOST_TABLES:
                self._prepared.popitem(last=False)
        self._prepared[table.path, spec] = prepared
        in_key = epoch.key is not None and not epoch.key.in_row
        for piece in epoch.pieces:
            ids = (piece.key_id, piece.value_id)
            if ids not in prepared.pairs:
                self._check_types(columns, piece.value_id)
                key_id = -1 if piece.key_id is None else piece.key_id
                key = self._text(piece.key_id) if in_key else None
                value = self._text(piece.value_id)
                if not prepared.java.prepare(key_id, key, piece.value_id, value):
                    raise NotSmallError
                prepared.pairs.add(ids)
        return prepared

    def _check_types(self, columns: tuple[ColumnPlan, ...], value_id: int) -> None:
        written = self._types.of(value_id)
        for column in columns:
            if not _fits(written[column.field].dataType.simpleString(), column.spark_type):
                raise NotSmallError

    def _text(self, schema_id: int | None) -> str | None:
        return None if schema_id is None else json.dumps(self._schemas.schema(schema_id))


class _Prepared:
    """A table's Java object, and the pairs of schemas that it knows."""

    def __init__(self, java: Any) -> None:
        self.java = java
        self.pairs: set[tuple[int | None, int]] = set()


def _divided(files: DataFiles, *, has_key: bool) -> tuple[list[DataFile], list[DataFile]]:
    """Return the tail and the base of a table.

    Raises:
        NotSmallError: its rows can be neither marked nor rewritten.
    """
    can_mark = has_key and files.can_mark
    is_whole = not (can_mark and not files.marking) and files.bytes <= SMALL_TABLE_BYTES
    tails = _LONG_TAILS if can_mark and len(files.files) >= _MANY_FILES else 1
    left, cells = SMALL_TABLE_BYTES if is_whole else tails * TAIL_BYTES, _CELLS
    tail: list[DataFile] = []
    base: list[DataFile] = []
    for file in sorted(files.files, key=lambda file: file.size):
        needed = file.rows * len(files.fields)
        if file.size <= left and needed <= cells:
            tail.append(file)
            left, cells = left - file.size, cells - needed
        else:
            base.append(file)
    if base and (is_whole or not has_key):
        raise NotSmallError
    return tail, base


def _described(file: DataFile) -> dict[str, Any]:
    return {"path": file.path, "statistics": file.statistics, "deleted": file.deleted}


def _equality(column: ColumnPlan, key: KeyLayout | None) -> str:
    """Return the canonical form of a column's values.

    Raises:
        NotSmallError: the Java classes do not have it.
        TableError: the column is in the key, and when its values are equal is not known.
    """
    if column.spark_type != "string" or (key is not None and column.field not in key.fields):
        return "text"
    # Refuses a key that has none.
    column.canonical("x", key=key is not None)
    canonical = of_spark(column.spark_type, column.pg_type).key
    if canonical in _UNSUPPORTED:
        raise NotSmallError
    return canonical if canonical in _EQUALITIES else "text"


def _fits(written: str, stored: str) -> bool:
    """Whether values of a type become those of a column without a conversion by Spark."""
    if written == stored or (written, stored) in (("int", "bigint"), ("float", "double")):
        return True
    narrow, wide = _DECIMAL.fullmatch(written), _DECIMAL.fullmatch(stored)
    return narrow is not None and wide is not None and narrow[2] == wide[2]
