"""A table's topic applied without a broker: cuts of its records, with the markers' ranges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.topic_names import topic_part
from spark_consumer.apply.applier import Applier
from spark_consumer.apply.driver.records import DriverRecords
from spark_consumer.apply.driver.writer import NotSmallError
from spark_consumer.apply.frames.guessed import Learnt
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.protocol import Table, TableFormat
from spark_consumer.kafka.decode import wire
from spark_consumer.kafka.markers import Marker, Range
from spark_consumer.kafka.position import Share, TopicState, share
from spark_consumer.names import quoted, table_folder
from tests.support.spark.records import Record, TableTopic, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def let_mark(table: Direct, *, may: bool = True) -> None:
    """Enable or disable deletion vectors, as somebody who owns the table could."""
    properties = f"'delta.enableDeletionVectors' = '{str(may).lower()}'"
    table.spark.sql(f"ALTER TABLE delta.{quoted(table.path)} SET TBLPROPERTIES ({properties})")


class Direct:
    """Applies one topic's records to its table, in a session of its own each time.

    Args:
        spark: the run's session.
        warehouse: folder of the tables.
        topic: the records.
        tables: the format of the table.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Path,
        topic: TableTopic,
        tables: TableFormat | None = None,
    ) -> None:
        self.tables = tables or DeltaFormat()
        self.spark = spark
        self._topic = topic
        self._learnt = Learnt()
        self._left: tuple[TableFormat, Found] | None = None
        self.skipped = 0
        self.held = 0
        self.path = table_folder(
            str(warehouse), "s", f"{topic_part(topic.schema)}.{topic_part(topic.table)}"
        )

    def apply(
        self,
        upto: int | None = None,
        *,
        first: int = 0,
        held: bool = True,
        small: bool = True,
        lost: int = 0,
    ) -> Found | None:
        """Apply a cut: the records up to `upto` that the table does not have.

        Markers stand at `first`, at `upto` and where the table is. The first `lost` of the records
        do not arrive. The cut is applied by the driver if `held`, and if that is possible, or else
        in frames, as a small share or not.
        """
        placed = self._placed()
        upto = len(placed) if upto is None else upto
        spark = self.spark.newSession()
        applier = Applier(spark, self._topic.registry, self._learnt)
        table = self.tables.table(spark, self.path, f"subscription s, table {self._topic.table}")
        found = self._left_in(table) or table.find()
        wanted = self._share(placed, [first, upto] if first < upto else [upto], found)
        if wanted is None:
            return found
        self._left = None
        starts = {span.partition: span.start for span in wanted.spans}
        records = [
            (offset, record)
            for offset, record in placed[:upto]
            if offset >= starts.get(record.partition, offset + 1)
        ]
        read = frame(spark, records[lost:])
        try:
            if held:
                done = applier.apply_in_driver(table, found, wanted, self._in_driver(spark, read))
                self.held += 1
                self._left = self.tables, done
                return done
        except NotSmallError as error:
            if error.reached is not None:
                found = error.reached
                wanted = replace(wanted, start=found.commit.position, begins=False)
        finally:
            self.skipped += applier.skipped
            applier.skipped = 0
        done = applier.apply_in_frames(table, found, wanted, wire(read), small=small)
        self.skipped += applier.skipped
        return done

    def _left_in(self, table: Table) -> Found | None:
        """The state in which the driver has left the table, as a job remembers it.

        To read it again takes longer than a cut. None: another format's object is here, as in
        another process, or somebody has written to the table.
        """
        if self._left is None or self._left[0] is not self.tables:
            return None
        found = self._left[1]
        log = Path(self.path, "_delta_log")
        newest = [f"{version:020}.json" for version in (found.version, found.version + 1)]
        if [(log / name).exists() for name in newest] != [True, False]:
            return None
        return found if table.believed() == found.version else None

    def _in_driver(self, spark: SparkSession, read: DataFrame) -> DriverRecords:
        jvm: Any = spark._jvm
        rows = read._jdf.collectAsList()
        topic = self._topic.topic
        return DriverRecords(topic, jvm.pgsluice.small.Records.of(topic, rows))

    def found(self) -> Found | None:
        """The table as it is."""
        return self.tables.table(self.spark.newSession(), self.path, "t").find()

    def rows(self) -> list[tuple[Any, ...]]:
        """The table's rows, sorted."""
        table = self.tables.table(self.spark.newSession(), self.path, "t").rows()
        return sorted((tuple(row) for row in table.collect()), key=repr)

    def _placed(self) -> list[tuple[int, Record]]:
        counts: Counter[int] = Counter()
        placed = []
        for record in self._topic.records:
            placed.append((counts[record.partition], record))
            counts[record.partition] += 1
        return placed

    def _share(
        self, placed: list[tuple[int, Record]], ends: list[int], found: Found | None
    ) -> Share | None:
        markers = []
        begin = 0
        previous: Counter[int] = Counter()
        # Markers where earlier cuts have ended, too: a table's position is at one of them.
        known = found.commit.position.marker if found is not None else 0
        for end in sorted({*ends, known} - {0}):
            ranges = []
            for partition in range(self._topic.partitions):
                offsets = [o for o, record in placed[begin:end] if record.partition == partition]
                if offsets:
                    before = previous[partition]
                    ranges.append(
                        Range(partition, offsets[0], offsets[-1] + 1, before, len(offsets))
                    )
                    previous[partition] = offsets[-1] + 1
            if ranges:
                markers.append(Marker(end, end, None, {self._topic.topic: tuple(ranges)}))
            begin = end
        latest = Counter(record.partition for _, record in placed)
        state = TopicState("id", dict.fromkeys(latest, 0), latest)
        position = found.commit.position if found is not None else None
        wanted = share(self._topic.topic, "markers", state, markers, position)
        assert wanted is None or isinstance(wanted, Share), wanted
        return wanted
