"""A table's history without a broker, and the states that it has to show, by LSN."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_consumer.formats.commit_metadata import Found
from spark_consumer.formats.protocol import Table, TableFormat
from spark_consumer.history.applier import HistoryApplier
from spark_consumer.history.columns import OWN
from spark_consumer.history.transactions import COLUMNS
from spark_consumer.kafka.decode import wire
from tests.support.spark.apply_worker import KeyedTable, Multiset
from tests.support.spark.direct import Direct
from tests.support.spark.records import TableTopic, frame, header_lsn

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

COMMIT = 5
"""Length of a commit record: a transaction ends so much after its `commit_lsn`."""
HIDDEN = {field.name for field in OWN}


class DatedTopic(TableTopic):
    """Records whose states of the table are kept, by the LSN at which their transactions end."""

    states: dict[int, list[tuple[Any, ...]]]
    ends: dict[int, int]

    def change(self, op: str, commit_lsn: int, seq: int, **given: Any) -> None:
        if not hasattr(self, "ends"):
            self.states, self.ends = {}, {}
        # The rows that a copy reads were there at its LSN.
        self.now = commit_lsn + (0 if given.get("snapshot", "false") != "false" else COMMIT)
        if self.now != commit_lsn:
            self.ends[commit_lsn] = self.now
        super().change(op, commit_lsn, seq, **given)

    def at(self, lsn: int) -> list[tuple[Any, ...]]:
        """The table's rows at an LSN."""
        known = sorted(self.states)
        return self.states[known[bisect.bisect_right(known, lsn) - 1]]


def _kept(name: str) -> Callable[..., None]:
    def method(self: Any, *given: Any, **more: Any) -> None:
        getattr(super(type(self), self), name)(*given, **more)
        self.topic.states[self.topic.now] = self.contents()

    return method


class DatedTable(KeyedTable):
    """The model of a keyed table, which keeps its states."""

    def __init__(self, topic: DatedTopic, key: str) -> None:
        super().__init__(key)
        self.topic = topic

    insert, update, delete, truncate = map(_kept, ("insert", "update", "delete", "truncate"))


class DatedMultiset(Multiset):
    """The model of a table without a key, which keeps its states."""

    def __init__(self, topic: DatedTopic) -> None:
        super().__init__()
        self.topic = topic

    insert, update, delete, truncate = map(_kept, ("insert", "update", "delete", "truncate"))


class Versioned(Direct):
    """Applies one topic's records to its table, and to the history of that."""

    def __init__(
        self, spark: SparkSession, warehouse: Path, topic: DatedTopic, tables: TableFormat
    ) -> None:
        super().__init__(spark, warehouse, topic, tables)
        self.dated = topic

    def history(self, spark: SparkSession | None = None) -> Table:
        """The history, whether it exists or not."""
        session = spark or self.spark.newSession()
        return self.tables.table(session, f"{self.path}__history", "history of table t")

    def begin(self, upto: int) -> Found:
        """Apply a cut to the table, and let the history begin with its rows."""
        found = self.apply(upto, held=False)
        assert found is not None
        spark = self.spark.newSession()
        self.tables.prepare(spark)
        rows = self.tables.rows_at(spark, self.path, found.version)
        return HistoryApplier(spark, self._topic.registry).begin(
            self.history(spark), rows, found.commit
        )

    def follow(self, upto: int | None = None, *, first: int = 0) -> Found:
        """Apply a cut to the history alone; see `Direct.apply`."""
        placed = self._placed()
        upto = len(placed) if upto is None else upto
        spark = self.spark.newSession()
        table = self.history(spark)
        found = table.find()
        assert found is not None
        wanted = self._share(placed, [first, upto] if first < upto else [upto], found)
        if wanted is None:
            return found
        starts = {span.partition: span.start for span in wanted.spans}
        records = wire(
            frame(
                spark,
                [
                    (offset, record)
                    for offset, record in placed[:upto]
                    if offset >= starts.get(record.partition, offset + 1)
                ],
            )
        )
        ended = [(header_lsn(lsn), end, None, lsn, None) for lsn, end in self.dated.ends.items()]
        ends = spark.createDataFrame(ended, COLUMNS)
        applier = HistoryApplier(spark, self._topic.registry)
        return applier.apply(table, found, wanted, records, ends)

    def versions(self) -> list[Row]:
        """All versions that the history has."""
        return self.history().rows().collect()


def as_of(
    versions: Iterable[Row], lsn: int, names: Iterable[str] | None = None
) -> list[tuple[Any, ...]]:
    """The rows at an LSN; of all columns of the table, or of some."""
    found = []
    for row in versions:
        one: Mapping[str, Any] = row.asDict(recursive=True)
        if one["_from_lsn"] <= lsn and (one["_to_lsn"] is None or one["_to_lsn"] > lsn):
            wanted = names or [name for name in one if name not in HIDDEN]
            found.append(tuple(one[name] for name in wanted))
    return sorted(found, key=repr)
