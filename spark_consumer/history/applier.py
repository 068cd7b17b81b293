"""Application of a topic's records to a history: idempotent, and only when the share is complete.

Invariant: as for tables (`spark_consumer.apply.applier`), a commit carries the position that it
completes. A share is divided at the beginning of a copy, by offset, and where columns or identity
change, by position. A part has all records between two such points, truncates too, and its commit's
`done` names the end of them in each partition: a truncate belongs to one part in all partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_consumer.apply.applier import begun_copy, checked, reached
from spark_consumer.apply.frames.batch import after, next_serial
from spark_consumer.formats.changes import KeyedChanges, WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.protocol import Table
from spark_consumer.formats.schema_evolution import known_after
from spark_consumer.history.columns import (
    OWN,
    Columns,
    check_names,
    evolved,
    plan,
)
from spark_consumer.history.fold import Truncate, fold_keyed_versions, fold_unkeyed_versions
from spark_consumer.history.frames import ended_versions, outcomes, struct, versions_that_go_on
from spark_consumer.kafka.batch_profile import TopicProfile
from spark_consumer.kafka.decode import RowTypes, changes
from spark_consumer.kafka.layout import KeyLayout, Layout, value_layout
from spark_consumer.kafka.position import Position, Share
from spark_consumer.kafka.records import FrameRecords
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.schema_epochs import kind_of
from spark_consumer.names import quoted
from spark_consumer.spark.tuning import cached, is_small, query_settings, stored, tuned

__all__ = ["HistoryApplier"]

_GOES_ON: Final = "`_to_lsn` IS NULL"
_MOST_TRUNCATES: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Part:
    """Records that one commit applies.

    Attributes:
        records: The records, without tombstones.
        found: Their profile.
        done: Offset after the last record, by partition.
        begun: Offset of the `t` with which a copy begins, by partition; empty if none does.
        kind: Identity and columns of the changes; None if there are none.
        truncates: Truncates, in order, without the one that begins a copy.
    """

    records: FrameRecords
    found: TopicProfile
    done: Mapping[int, int]
    begun: Mapping[int, int]
    kind: tuple[KeyLayout | None, Layout] | None
    truncates: Sequence[Truncate]


class HistoryApplier:
    """Applier of shares to histories.

    Args:
        spark: Session that nothing else uses meanwhile.
        schemas: Writer schemas by ID.
    """

    def __init__(self, spark: SparkSession, schemas: Schemas) -> None:
        self.spark = spark
        self._schemas = schemas
        self._types = RowTypes(spark, schemas)

    def begin(self, table: Table, rows: DataFrame, of: Commit) -> Found:
        """Create a history, with the rows that its table has at a position.

        Args:
            table: History, opened with the applier's session; it does not exist.
            rows: Rows of the table.
            of: Metadata of the table's commit at that position.

        Raises:
            TableError: a column has a name of the history's own.
        """
        check_names(rows.columns, table.label)
        place = of.position
        values = {
            # Not like the IDs of rows that come later, which are partition and offset: see `apply`.
            "_row": f"concat('{place.topic_id}/s{place.marker}/', monotonically_increasing_id())",
            "_from_lsn": f"{place.end_lsn}L",
            "_from_seq": "0L",
            "_from_op": "'s'",
        }
        own = [
            F.expr(f"CAST({values.get(field.name, 'NULL')} AS {field.dataType.simpleString()})")
            .alias(field.name, metadata=field.metadata)
            for field in OWN
        ]  # fmt: skip
        commit = Commit(place, of.columns, next_serial(table, None), history=True)
        made = rows.select(*own, *(F.col(quoted(name)) for name in rows.columns))
        table.write(made, commit, None, WriteMode.REPLACE_TABLE)
        return after(table, commit)

    def apply(
        self, table: Table, found: Found, share: Share, records: DataFrame, ends: DataFrame
    ) -> Found:
        """Bring a history up to date with a share.

        Args:
            table: History, opened with the applier's session.
            found: Current state of the history.
            share: Share to apply.
            records: Wire frame of the share.
            ends: Transactions of the share; see `transactions`.

        Raises:
            ContractError: the records are not those that the markers promise.
            TableError: the history cannot hold them.
        """
        with ExitStack() as stack:
            if is_small(share.records()):
                stack.enter_context(tuned(self.spark, query_settings(table.bytes() or 0)))
                records, ends = records.coalesce(1), ends.coalesce(1)
            kept = FrameRecords(stack.enter_context(cached(records)))
            ends = stack.enter_context(cached(ends))
            parts = list(self._parts(share, kept, checked(share, kept.survey())))
            position = replace(share.start, topic=share.topic, topic_id=share.position.topic_id)
            done = dict(share.start.done)
            generation = found.commit.position.generation
            for number, part in enumerate(parts):
                done |= part.done
                position = replace(position, step=position.step + 1, done=dict(done))
                if number == len(parts) - 1:
                    position = reached(share)
                position = replace(position, generation=generation)
                found = self._write(table, found, part, position, ends)
            if not parts:
                position = replace(reached(share), generation=generation)
                serial = next_serial(table, found)
                commit = Commit(position, found.commit.columns, serial, history=True)
                found = self._write_nothing(table, commit, found)
        return found

    def _parts(self, share: Share, records: FrameRecords, profile: TopicProfile) -> Iterator[_Part]:
        """Divide a share's records that are not applied yet."""
        mine = records.without_tombstones()
        left: TopicProfile | None = profile
        if share.start.done:
            mine = mine.beyond(share.start.done)
            left = mine.survey()
        begun = begun_copy(share, mine, left, self._schemas)
        if left is None:
            return
        offsets = {number: offset for number, (offset, _) in begun.items()}
        if not offsets:
            yield from self._runs(mine, left, {})
            return
        if not share.begins:
            before = FrameRecords(mine.frame.where(~_beyond(offsets)))
            if (found := before.survey()) is not None:
                *first, last = self._runs(before, found, {})
                yield from first
                yield replace(last, done=offsets)
        copied = mine.beyond(offsets)
        found = copied.survey()
        assert found is not None
        yield from self._runs(copied, found, offsets)

    def _runs(
        self, records: FrameRecords, found: TopicProfile, begun: Mapping[int, int]
    ) -> Iterator[_Part]:
        changing = tuple(piece for piece in found.pieces if piece.changes)
        kinds = {piece: kind_of(piece, found, self._schemas) for piece in changing}
        ordered = list(dict.fromkeys(kinds.values()))
        if len(ordered) <= 1:
            yield from _bounded(records, found, begun, ordered[0] if ordered else None)
            return
        numbers = {piece: ordered.index(kinds[piece]) for piece in changing}
        for number, (kind_number, run) in enumerate(records.runs(found, numbers)):
            profile = run.survey()
            assert profile is not None
            yield from _bounded(run, profile, {} if number else begun, ordered[kind_number])

    def _write(
        self, table: Table, found: Found, part: _Part, position: Position, ends: DataFrame
    ) -> Found:
        known = found.commit.columns
        layout = None if part.kind is None else part.kind[1]
        value_id = next((p.value_id for p in part.found.pieces if p.changes), None)
        if layout is None and part.begun:
            value_id = next(h.truncate_id for h in part.found.partitions.values())
            assert value_id is not None
            layout = value_layout(self._schemas.schema(value_id))
        if layout is not None:
            assert value_id is not None
            written = self._types.of(value_id)
            copied = bool(part.begun)
            steps = evolved(table.fields(), known, layout, written, table.label, copied=copied)
            if steps:
                table.alter(steps)
            known = known_after(layout, {} if copied else known)
        else:
            layout = Layout(())
        serial = next_serial(table, found)
        commit = Commit(position, known, serial, history=True)
        columns = plan(table.fields(), layout)
        versions = self._versions(table, part, columns, position.topic_id)
        with stored(outcomes(versions, columns, ends)) as source:
            counts = source.groupBy().agg(
                F.count_if(F.expr("action = 'put'")).alias("puts"),
                F.count_if(F.expr("action = 'set'")).alias("sets"),
            )
            puts, sets = counts.collect()[0]
            if not puts and not sets:
                return self._write_nothing(table, commit, found)
            if not sets:
                rows = source.select(
                    *(
                        F.col(f"v.`{c.field}`").alias(c.name, metadata={"comment": c.pg_type})
                        for c in columns.every
                    )
                )
                table.write(rows, commit, found, WriteMode.APPEND)
            else:
                changed = KeyedChanges(
                    source,
                    columns.every,
                    columns.identity,
                    f"t.{_GOES_ON}",
                    needing=sets,
                    puts=puts,
                    partial=sets,
                    changes=puts + sets,
                )
                table.upsert(changed, commit, found)
        return after(table, commit)

    def _write_nothing(self, table: Table, commit: Commit, found: Found) -> Found:
        none = self.spark.createDataFrame([], StructType(table.fields()))
        table.write(none, commit, found, WriteMode.APPEND)
        return after(table, commit)

    def _versions(self, table: Table, part: _Part, columns: Columns, topic_id: str) -> DataFrame:
        """Return the versions that the part's changes begin and end."""
        truncates = part.truncates
        there = table.rows().where(_GOES_ON)
        if part.kind is None:
            key, changed = None, None
        else:
            key = part.kind[0]
            # The topic's ID, not its name: one that is recreated has the same offsets again.
            more = {"code": "op", "row": f"concat('{topic_id}/', partition, '/', offset)"}
            pieces = part.found.pieces
            changed = changes(
                part.records.frame, pieces, columns.live, key, self._schemas, more
            ).localCheckpoint()
        base = versions_that_go_on(there, columns, key)
        ended: list[DataFrame] = []
        if part.begun:
            ended.append(ended_versions(base, _beginning(part)))
            base = base.where("false")
        if changed is None:
            if truncates:
                ended.append(ended_versions(base, truncates[0]))
            if not ended:
                ended.append(ended_versions(base.where("false"), Truncate("", 0, "t")))
        elif key is None:
            new, old = (
                struct((c.field, c.canonical(f"{side}.`{c.field}`")) for c in columns.live)
                for side in ("v", "b")
            )
            base = base.localCheckpoint()
            ended.append(fold_unkeyed_versions(changed, new, old, base, truncates))
        else:
            moves = any(piece.moves for piece in part.found.pieces)
            if not truncates:
                keys = changed.select("k")
                if moves:
                    keys = keys.union(changed.where("f IS NOT NULL").select(F.col("f").alias("k")))
                base = base.join(keys.distinct(), "k", "left_semi")
            base = base.localCheckpoint()
            fields = [column.field for column in columns.live]
            ended.append(fold_keyed_versions(changed, fields, base, truncates, moves=moves))
        every = reduce(DataFrame.unionByName, ended)
        return every.where("old IS NULL OR t IS NOT NULL")


def _bounded(
    records: FrameRecords,
    found: TopicProfile,
    begun: Mapping[int, int],
    kind: tuple[KeyLayout | None, Layout] | None,
) -> Iterator[_Part]:
    """Yield records of one kind as parts of a bounded number of truncates."""
    truncates = _truncates(records, found, begun)
    while len(truncates) > _MOST_TRUNCATES:
        last = truncates[_MOST_TRUNCATES - 1]
        before = f"struct(lsn, seq) <= struct('{last.lsn}', {last.seq}L)"
        first = FrameRecords(records.frame.where(before))
        profile = first.survey()
        assert profile is not None
        mine = kind if any(piece.changes for piece in profile.pieces) else None
        yield _Part(first, profile, _ends_of(profile), begun, mine, truncates[:_MOST_TRUNCATES])
        records = FrameRecords(records.frame.where(f"NOT {before}"))
        rest = records.survey()
        assert rest is not None
        found, begun, truncates = rest, {}, truncates[_MOST_TRUNCATES:]
    if not any(piece.changes for piece in found.pieces):
        kind = None
    yield _Part(records, found, _ends_of(found), begun, kind, truncates)


def _truncates(
    records: FrameRecords, found: TopicProfile, begun: Mapping[int, int]
) -> Sequence[Truncate]:
    """Return the truncates among records, in order, without the one that begins a copy."""
    # A copy's part has nothing before the copy.
    partitions = found.partitions.items()
    if all(one.truncate in (None, begun.get(number)) for number, one in partitions):
        return ()
    frame = records.frame.where("op = 't'")
    for number, offset in begun.items():
        frame = frame.where((F.col("partition") != number) | (F.col("offset") > offset))
    rows = frame.select("lsn", "seq").distinct().orderBy("lsn", "seq").collect()
    # A copy that another one follows: only its beginning has no number in a transaction.
    return [Truncate(row["lsn"], row["seq"], "t" if row["seq"] else "r") for row in rows]


def _beginning(part: _Part) -> Truncate:
    """Return where a copy begins, as a TRUNCATE."""
    number, offset = next(iter(part.begun.items()))
    here = (F.col("partition") == number) & (F.col("offset") == offset)
    row = part.records.frame.where(here).select("lsn", "seq").collect()[0]
    return Truncate(row["lsn"], row["seq"], "r")


def _beyond(offsets: Mapping[int, int]) -> Expr:
    return reduce(
        lambda one, other: one | other,
        (
            (F.col("partition") == number) & (F.col("offset") >= offset)
            for number, offset in offsets.items()
        ),
    )


def _ends_of(found: TopicProfile) -> dict[int, int]:
    return {number: one.last + 1 for number, one in found.partitions.items()}
