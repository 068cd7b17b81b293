"""Application of a table's share of a cut: idempotent, and only when the share is complete.

Invariant: a table's commit carries the position that it completes
(`spark_consumer.kafka.position`), and a share begins where that position ends. Hence it does not
matter when a crash occurs, where batches end, or whether one is repeated: each change takes effect
once, on the state for which it was meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_consumer.apply.driver.records import DriverRecords
from spark_consumer.apply.driver.writer import NotSmallError, SmallWriter
from spark_consumer.apply.frames.batch import after, next_serial
from spark_consumer.apply.frames.guessed import GuessedShares, Learnt
from spark_consumer.apply.frames.writer import FrameWriter
from spark_consumer.errors import COPY_AGAIN, ContractError, TableError
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found, Written
from spark_consumer.formats.protocol import Table
from spark_consumer.formats.schema_evolution import Known, follow, known_after, matched, planned
from spark_consumer.kafka.batch_profile import TopicProfile, survey
from spark_consumer.kafka.decode import RowTypes
from spark_consumer.kafka.layout import ColumnPlan, Layout, value_layout
from spark_consumer.kafka.position import Position, Share
from spark_consumer.kafka.records import FrameRecords, TopicRecords
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.schema_epochs import Epoch, cut_epochs
from spark_consumer.spark.failures import is_of_record
from spark_consumer.spark.tuning import cached, query_settings, tuned

__all__ = ["Applier", "EpochWriter", "begun_copy", "checked", "reached"]


class EpochWriter(Protocol):
    """Writes an epoch's changes to a table, by one commit."""

    def write(
        self,
        table: Table,
        columns: tuple[ColumnPlan, ...],
        epoch: Epoch,
        commit: Commit,
        found: Found | None,
        mode: WriteMode,
    ) -> Written:
        """Write changes.

        Args:
            table: The table.
            columns: Its columns, in order.
            epoch: The changes, of a kind of records that the writer knows.
            commit: Metadata of the commit.
            found: The table before the commit; None if it does not exist.
            mode: Treatment of the table's rows and columns.
        """


class Applier:
    """Applier of shares, one after another.

    Args:
        spark: Session that nothing else uses meanwhile.
        schemas: Writer schemas by ID.
        learnt: Knowledge from earlier shares, common to all appliers.

    Attributes:
        skipped: Number of updates and deletes that matched no row, where counted; see `write`.
    """

    def __init__(
        self,
        spark: SparkSession,
        schemas: Schemas,
        learnt: Learnt,
    ) -> None:
        self.spark = spark
        self._learnt = learnt
        self.skipped = 0
        self._schemas = schemas
        self._types = RowTypes(spark, schemas)
        self._guessed = GuessedShares(schemas, self._types, learnt)
        self._in_driver = SmallWriter(spark, schemas, self._types)
        self._in_frames = FrameWriter(schemas, learnt.frontiers)

    def apply(
        self,
        table: Table,
        found: Found | None,
        share: Share,
        records: TopicRecords,
        profile: TopicProfile | None,
        writer: EpochWriter,
    ) -> Found:
        """Bring one table up to date with its share.

        Args:
            table: Table, opened with the applier's session.
            found: Current state of the table; None if it does not exist.
            share: Share to apply.
            records: Records of the share.
            profile: Their profile; None if there are none.
            writer: Writer of the table.

        Raises:
            ContractError: the records are not those that the markers promise.
            TableError: the table cannot hold them.
        """
        profile = checked(share, profile)
        mine, left = _rest(records, profile, share.start.done)
        begun = begun_copy(share, mine, left, self._schemas)
        parts = left.partitions.items() if left is not None else ()
        truncates = {n: part.truncate + 1 for n, part in parts if part.truncate is not None}
        if left is not None and truncates:
            mine, left = _rest(mine, left, truncates)
        done = {**share.start.done, **truncates}
        mode = _mode(found, begun, truncates)
        emptying_id = next((part.truncate_id for n, part in parts if n in truncates), None)
        epochs = cut_epochs(mine, left, self._schemas) if left is not None else []
        if not epochs:
            return self._write_nothing(table, found, share, profile, emptying_id, mode)
        generation = _generation(table, found, mode)
        position = replace(share.start, topic=share.topic, topic_id=share.position.topic_id)
        for epoch in epochs:
            done |= {number: offset + 1 for number, offset in epoch.last.items()}
            position = (
                reached(share)
                if epoch.is_last
                else replace(position, step=position.step + 1, done=dict(done))
            )
            position = replace(position, generation=generation)
            known: Mapping[str, Known] = {}
            if found is not None and mode is not WriteMode.REPLACE_TABLE:
                known = found.commit.columns
            value_id = epoch.pieces[0].value_id
            columns = self._columns(table, known, epoch.layout, value_id, mode)
            serial = next_serial(table, found)
            commit = Commit(position, known_after(epoch.layout, known), serial)
            try:
                written = writer.write(table, columns, epoch, commit, found, mode)
            except NotSmallError as error:
                error.reached = None if epoch is epochs[0] else found
                raise
            self.skipped += written.skipped
            found = Found(written.version, commit)
            mode = WriteMode.APPEND
        assert found is not None
        self._learnt.kinds[share.topic] = epochs[-1].pieces
        return found

    def apply_in_driver(
        self, table: Table, found: Found | None, share: Share, records: DriverRecords
    ) -> Found:
        """Apply a share like `apply`, without Spark.

        Args:
            table: Table, opened with the applier's session.
            found: Current state of the table; None if it does not exist.
            share: Share to apply.
            records: Records of the share.

        Raises:
            NotSmallError: it has to be applied by Spark; some commits may have been made.
        """
        return self.apply(table, found, share, records, records.survey(), self._in_driver)

    def apply_in_frames(
        self,
        table: Table,
        found: Found | None,
        share: Share,
        records: DataFrame,
        *,
        small: bool,
    ) -> Found:
        """Apply a share like `apply`, by queries of Spark; read its records once if possible.

        Args:
            table: Table, opened with the applier's session.
            found: Current state of the table; None if it does not exist.
            share: Share to apply.
            records: Wire frame of the share.
            small: Whether the records are few and small.

        Raises:
            ContractError: the records are not those that the markers promise.
            TableError: the table cannot hold them.
        """
        with ExitStack() as stack:
            if small:
                size = 0 if found is None else table.bytes()
                stack.enter_context(tuned(self.spark, query_settings(size)))
                # One read, whatever is asked of them, and one file for each commit.
                records = stack.enter_context(cached(records.coalesce(1)))
            try:
                applied = self._guessed.apply(table, found, share, records)
            except (PySparkException, Py4JError) as error:
                # The guess decodes records that the share may supersede by a `t`, too.
                if not is_of_record(error):
                    raise
                applied = None
            if applied is None:
                profile = survey(records).get(share.topic)
                frame = FrameRecords(records)
                return self.apply(table, found, share, frame, profile, self._in_frames)
        self.skipped += applied.skipped
        return applied.found

    def _write_nothing(
        self,
        table: Table,
        found: Found | None,
        share: Share,
        profile: TopicProfile,
        emptying_id: int | None,
        mode: WriteMode,
    ) -> Found:
        """Apply a share that leaves no rows: an empty copy, a TRUNCATE, or a change of position.

        The columns are those of the last `t`, as they are when its rows and the `t` come apart.

        Args:
            table: Table, opened with the applier's session.
            found: Current state of the table; None if it does not exist.
            share: Share to apply.
            profile: Profile of the share.
            emptying_id: Value schema's id of the last `t`; None if there is none.
            mode: Treatment of the table's rows and columns.
        """
        generation = _generation(table, found, mode)
        position = replace(reached(share), generation=generation)
        serial = next_serial(table, found)
        if mode is WriteMode.REPLACE_TABLE:
            value_id = emptying_id or max(piece.value_id for piece in profile.pieces)
            layout = value_layout(self._schemas.schema(value_id))
            columns = self._columns(table, {}, layout, value_id, mode)
            commit = Commit(position, known_after(layout), serial)
            fields = ", ".join(f"`{c.field}` {c.spark_type}" for c in columns)
            rows = self.spark.createDataFrame([], f"v struct<{fields.replace('` ', '`: ')}>")
            named = rows.select(
                *(
                    F.col(f"v.`{c.field}`").alias(c.name, metadata={"comment": c.pg_type})
                    for c in columns
                )
            )
            table.write(named, commit, found, mode)
        else:
            assert found is not None
            known = found.commit.columns
            if emptying_id is not None:
                layout = value_layout(self._schemas.schema(emptying_id))
                self._columns(table, known, layout, emptying_id, mode)
                known = known_after(layout, known)
            commit = Commit(position, known, serial)
            none = self.spark.createDataFrame([], StructType(table.fields()))
            table.write(none, commit, found, mode)
        return after(table, commit)

    def _columns(
        self,
        table: Table,
        known: Mapping[str, Known],
        layout: Layout,
        value_id: int,
        mode: WriteMode,
    ) -> tuple[ColumnPlan, ...]:
        """Evolve the table to the columns of a layout; return them as the table has them."""
        written = self._types.of(value_id)
        if mode is WriteMode.REPLACE_TABLE:
            return planned(layout, written)
        fields = table.fields()
        steps = follow(fields, known, layout, written, table.label)
        if steps:
            table.alter(steps)
            fields = table.fields()
        return matched(fields, layout)


def begun_copy(
    share: Share, records: TopicRecords, profile: TopicProfile | None, schemas: Schemas
) -> dict[int, tuple[int, int]]:
    """Return where the last copy among records begins; see `TopicRecords.beginnings`.

    Args:
        share: The share.
        records: Those of its records that are not applied yet.
        profile: Their profile; None if there are none.
        schemas: Writer schemas by ID.

    Raises:
        ContractError: a copy begins in some partitions only.
        TableError: the share has to begin with a copy, and has none.
    """
    begun = records.beginnings(profile, schemas) if profile is not None else {}
    if begun and set(begun) != set(share.position.next):
        raise ContractError(
            f"topic {share.topic}: a copy begins in some of its partitions only",
            hint=COPY_AGAIN,
        )
    if share.begins and not begun:
        raise TableError(
            f"topic {share.topic}: the beginning of the table's records is gone", hint=COPY_AGAIN
        )
    return begun


def checked(share: Share, profile: TopicProfile | None) -> TopicProfile:
    """Check the records that were read against the markers."""
    partitions = profile.partitions if profile is not None else {}
    for span in share.spans:
        records = partitions[span.partition].records if span.partition in partitions else 0
        if records != span.records:
            raise ContractError(
                f"topic {share.topic}, partition {span.partition}, offsets {span.start} to"
                f" {span.end - 1}: {records} records, and the markers say {span.records}",
                hint=f"nothing of them was applied; {COPY_AGAIN}",
            )
    assert profile is not None
    return profile


def _rest(
    records: TopicRecords, profile: TopicProfile, done: Mapping[int, int]
) -> tuple[TopicRecords, TopicProfile | None]:
    """Return the records that are not applied yet, without tombstones."""
    mine = records.without_tombstones()
    passed = {
        number: offset
        for number, offset in done.items()
        if number in profile.partitions and offset > profile.partitions[number].first
    }
    if not passed:
        return mine, profile
    first = {number: profile.partitions[number].first for number in passed}
    # A copy's records begin with a `t`, which is no change: the rest is known.
    if all(profile.partitions[n].truncate == first[n] == passed[n] - 1 for n in passed):
        left = {
            number: replace(
                part,
                first=part.first + 1,
                records=part.records - 1,
                truncate=None,
                truncate_id=None,
            )
            if number in passed
            else part
            for number, part in profile.partitions.items()
            if number not in passed or part.records > 1
        }
        return mine.without_truncates(), replace(profile, partitions=left) if left else None
    mine = mine.beyond(passed)
    return mine, mine.survey()


def reached(share: Share) -> Position:
    """Return the position after a share.

    The commits of an earlier try may have more: it was of a larger cut, and failed in the middle.
    """
    end = share.position
    done = {n: offset for n, offset in share.start.done.items() if offset > end.next.get(n, 0)}
    return replace(end, done=done)


def _mode(
    found: Found | None, begun: Mapping[int, object], truncates: Mapping[int, object]
) -> WriteMode:
    """Return the treatment of a table by a share; a copy begins with a TRUNCATE."""
    if found is None or begun:
        return WriteMode.REPLACE_TABLE
    return WriteMode.REPLACE_ROWS if truncates else WriteMode.APPEND


def _generation(table: Table, found: Found | None, mode: WriteMode) -> int:
    if found is None or mode is WriteMode.REPLACE_TABLE:
        return table.version() + 1
    return found.commit.position.generation
