"""A table format in the driver's memory: the least that keeps the contract of the job."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from schemas.settings.consumer import ViewEngine
from spark_consumer.errors import TableError, TransientConsumerError
from spark_consumer.formats.changes import (
    NEEDS_ROW,
    KeyedChanges,
    ValueChanges,
    WriteMode,
    assigned,
    same_key,
    same_value,
)
from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Found, Version
from spark_consumer.formats.data_files import DataFile, DataFiles
from spark_consumer.formats.schema_evolution import Add, Drop, Rename, Step, Widen
from spark_consumer.formats.view_sql import ViewPlace
from spark_consumer.kafka.position import Position
from spark_consumer.names import quoted
from spark_consumer.values.conversions import literal

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.datetime.java8API.enabled": "true",
}
_GAP = 10
"""Between two versions: nobody may count on them to follow one another."""


@dataclass(frozen=True)
class _State:
    """Rows, as Spark's own objects, and the metadata of the commit that made them."""

    version: Version
    rows: Any
    schema: Any
    commit: Commit

    def frame(self, spark: SparkSession) -> DataFrame:
        return DataFrame(spark._jsparkSession.createDataFrame(self.rows, self.schema), spark)


@dataclass
class MemoryFormat:
    """See `spark_consumer.formats.protocol.TableFormat`; what it opens lasts as long as it does."""

    states: dict[str, list[_State]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    name: str = "Memory"
    reserved: frozenset[str] = frozenset()

    def prepare(self, spark: SparkSession) -> None:
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)

    def has_table(self, spark: SparkSession, path: str) -> bool:
        return bool(self.states.get(path))

    def register(self, spark: SparkSession, path: str, label: str) -> bool:
        return True

    def table(self, spark: SparkSession, path: str, label: str) -> MemoryTable:
        self.prepare(spark)
        return MemoryTable(spark, path, label, self.states.setdefault(path, []), self.lock)

    def rows_at(self, spark: SparkSession, path: str, version: Version) -> DataFrame:
        return next(s for s in self.states[path] if s.version == version).frame(spark)

    def view_settings(self, folder: str, engine: ViewEngine) -> Sequence[str]:
        return ()

    def engine_version(self, spark: SparkSession, path: str, version: Version) -> str:
        return str(version)

    def view(self, place: ViewPlace, engine_version: str) -> str:
        return f"AS SELECT {engine_version} AS version"


class MemoryTable:
    """See `spark_consumer.formats.protocol.Table`."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        label: str,
        states: list[_State],
        lock: threading.Lock,
    ) -> None:
        self.spark = spark
        self.path = path
        self.label = label
        self._states = states
        self._lock = lock

    def version(self) -> Version:
        return self._states[-1].version if self._states else NO_VERSION

    def find(self, trusted: Version = NO_VERSION) -> Found | None:
        return Found(self.version(), self._states[-1].commit) if self._states else None

    def position_at(self, version: Version) -> Position:
        for state in reversed(self._states):
            if state.version <= version:
                return state.commit.position
        raise TableError(f"{self.label}: no version {version}")

    def rows(self) -> DataFrame:
        return self._states[-1].frame(self.spark)

    def fields(self) -> list[StructField]:
        return list(self.rows().schema.fields)

    def bytes(self) -> int | None:
        return None

    def files(self) -> int | None:
        return None

    def tracks_rows(self) -> bool:
        return False

    def believed(self) -> Version | None:
        return None

    def data_files(
        self, found: Found | None, most: int, fields: Sequence[StructField] | None = None
    ) -> None:
        return None

    def replace_files(
        self,
        files: DataFiles,
        removed: Collection[DataFile],
        added: Collection[DataFile],
        commit: Commit,
        changes: Collection[DataFile] | None = None,
    ) -> Version:
        raise NotImplementedError

    def excludes(self, condition: str) -> bool:
        return False

    def greatest(self, names: Sequence[str]) -> Mapping[str, int]:
        return {}

    def write(self, rows: DataFrame, commit: Commit, found: Found | None, mode: WriteMode) -> None:
        self.stage(rows, found, mode).commit(commit)

    def stage(self, rows: DataFrame, found: Found | None, mode: WriteMode) -> MemoryDraft:
        return MemoryDraft(self, rows, found, mode)

    def upsert(self, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
        row = F.struct(*(F.col(quoted(c.name)) for c in changes.columns)).alias("t")
        joined = (
            self.rows()
            .select(row, F.lit(True).alias("there"))
            .join(changes.source.alias("s"), F.expr(same_key(changes.keys)), "full_outer")
        )
        missed = joined.where(f"there IS NULL AND ({NEEDS_ROW})").count()
        kept = joined.where("s.action IS NULL OR s.action = 'put' OR s.action = 'set' AND there")
        values = assigned(changes.columns).items()
        self._replace(kept.select(*(F.expr(sql).alias(n) for n, sql in values)), commit, found)
        return missed

    def exchange(self, changes: ValueChanges, commit: Commit, found: Found | None) -> None:
        source = changes.source.alias("s")
        stays = self.rows().alias("t").join(source, F.expr(same_value(changes.columns)), "anti")
        new = source.where("action = 'insert'").select(
            *(F.col(f"v.`{c.field}`").alias(c.name) for c in changes.columns)
        )
        self._replace(stays.unionByName(new), commit, found)

    def alter(self, steps: Iterable[Step]) -> None:
        rows = self.rows()
        for step in steps:
            match step:
                case Rename(name, to):
                    rows = rows.withColumnRenamed(name, to)
                case Drop(name):
                    rows = rows.drop(F.col(quoted(name)))
                case Widen(name, to):
                    known = {
                        each.name: F.col(quoted(each.name)).alias(each.name, metadata=each.metadata)
                        for each in rows.schema
                    }
                    wide = F.col(quoted(name)).cast(to)
                    known[name] = wide.alias(name, metadata=rows.schema[name].metadata)
                    rows = rows.select(*known.values())
                case Add(column, missing, exists):
                    kind = column.dataType
                    value = F.lit(None).cast(kind) if missing is None else literal(missing, column)
                    others = [F.col(quoted(name)) for name in rows.columns if name != column.name]
                    if missing is not None or not exists:
                        added = value.alias(column.name, metadata=column.metadata)
                        rows = rows.select(*others, added)
        state = self._states[-1]
        self.append(rows._jdf.collectAsList(), rows._jdf.schema(), state.commit, None)

    def keep_history(self, hours: float) -> None:
        pass

    def compact(self, commit: Commit, *, small: int) -> None:
        pass

    def vacuum(self, hours: float) -> None:
        del self._states[:-1]

    def _replace(self, rows: DataFrame, commit: Commit, found: Found | None) -> None:
        """Let the table hold `rows`, which have its columns, in one commit."""
        draft = MemoryDraft(self, rows, found, WriteMode.REPLACE_ROWS, self._states[-1].schema)
        draft.commit(commit)

    def append(self, rows: Any, schema: Any, commit: Commit, found: Found | None) -> Version:
        """Add a state, on top of the one that was found."""
        with self._lock:
            if found is not None and self._states[-1].commit != found.commit:
                raise TransientConsumerError(f"{self.label}: somebody else has written to it")
            version = Version(self.version() + _GAP)
            self._states.append(_State(version, rows, schema, commit))
            return version


class MemoryDraft:
    """See `spark_consumer.formats.protocol.Draft`."""

    def __init__(
        self,
        table: MemoryTable,
        rows: DataFrame,
        found: Found | None,
        mode: WriteMode,
        schema: Any = None,
    ) -> None:
        self._table = table
        self._found = found
        self._schema = schema or rows._jdf.schema()
        # A range has numbers, not rows, for Java.
        self._brought: Any = rows._jdf.toDF().collectAsList()
        self._rows = self._brought
        if not mode.empties:
            before = table.rows()
            self._schema = before._jdf.schema()
            jvm: Any = table.spark._jvm
            self._rows = jvm.java.util.ArrayList(before._jdf.collectAsList())
            self._rows.addAll(self._brought)

    def rows(self, names: Sequence[str]) -> DataFrame:
        spark = self._table.spark
        made = spark._jsparkSession.createDataFrame(self._brought, self._schema)
        return DataFrame(made, spark).select(*map(quoted, names))

    def commit(self, commit: Commit) -> Version:
        return self._table.append(self._rows, self._schema, commit, self._found)

    def discard(self) -> None:
        pass
