"""Shares whose content is guessed: decoded as they are read, and written at once if all is new.

The content of a share is a guess until it has been read: the schemas are those of the share before,
or of its first records; and what brought only new rows goes on to. The guess is checked before
anything is committed. If it was wrong, the share is read again, and surveyed first; see
`Applier.apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Observation

from spark_consumer.apply.frames.batch import Batch, after, next_serial
from spark_consumer.apply.frames.max_keys import Frontiers
from spark_consumer.apply.frames.speculative import Expected, decoded_as, peek, well_formed
from spark_consumer.apply.frames.strategies import write, write_outright
from spark_consumer.errors import TableError
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.protocol import Table
from spark_consumer.formats.schema_evolution import Known, follow, known_after, matched, planned
from spark_consumer.kafka.batch_profile import Piece
from spark_consumer.kafka.decode import RowTypes, changes
from spark_consumer.kafka.layout import ColumnPlan, KeyLayout, Layout, identity_layout, value_layout
from spark_consumer.kafka.position import Share
from spark_consumer.kafka.records import FrameRecords
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.schema_epochs import Epoch

__all__ = ["Applied", "GuessedShares", "Learnt"]


@dataclass(frozen=True, slots=True)
class Learnt:
    """Knowledge from applied shares; errors in it cost time, nothing else.

    Attributes:
        kinds: Schemas of the share that was applied last, by topic.
        outright: Whether that share had only new rows, where checked, by topic.
        frontiers: Greatest keys of tables.
    """

    kinds: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    outright: dict[str, bool] = field(default_factory=dict)
    frontiers: Frontiers = field(default_factory=Frontiers)


@dataclass(frozen=True, slots=True)
class Applied:
    """A share that was applied.

    Attributes:
        found: The table after the share.
        skipped: See `write`.
    """

    found: Found
    skipped: int


class GuessedShares:
    """Applier of shares whose content can be guessed.

    Args:
        schemas: Writer schemas by ID.
        types: Types of tables' rows.
        learnt: Knowledge from earlier shares.
    """

    def __init__(self, schemas: Schemas, types: RowTypes, learnt: Learnt) -> None:
        self._schemas = schemas
        self._types = types
        self._learnt = learnt

    def apply(
        self, table: Table, found: Found | None, share: Share, records: DataFrame
    ) -> Applied | None:
        """Apply a share; return None if the guess was wrong and nothing was written.

        Args:
            table: Table, opened with the applier's session.
            found: Current state of the table; None if it does not exist.
            share: Share to apply.
            records: Wire frame of the share.

        Raises:
            TableError: the table cannot hold them.
        """
        if share.start.done:
            return None
        kinds = self._learnt.kinds.get(share.topic, ())
        kind, begins = (kinds[0], False) if len(kinds) == 1 else (None, False)
        if not kinds or found is None or share.begins:
            kind, begins = peek(records, self._schemas)
        if kind is None or (not begins and (found is None or share.begins)):
            return None
        if begins and {span.partition for span in share.spans} != set(share.position.next):
            return None
        there = None if begins else found
        plan = self._plan(table, there, Expected(kind, share, begins))
        if plan is None:
            return None
        tried = begins or self._learnt.outright.get(share.topic, not kind.removals)
        if tried and (done := self._append_outright(plan, found, records)) is not None:
            return done
        return None if begins else self._merge(plan, found, records, tried=tried)

    def _plan(self, table: Table, found: Found | None, expected: Expected) -> _Plan | None:
        """Return how such a share is applied; None when a guess is not possible."""
        kind = expected.kind
        value = self._schemas.schema(kind.value_id)
        layout = value_layout(value)
        of_key = None if kind.key_id is None else self._schemas.schema(kind.key_id)
        key = identity_layout(value, of_key)
        written = self._types.of(kind.value_id)
        if found is None:
            position = replace(expected.share.position, generation=table.version() + 1)
            commit = Commit(position, known_after(layout), next_serial(table, None))
            return _Plan(table, expected, key, layout, planned(layout, written), commit)
        known = found.commit.columns
        fields = table.fields()
        # A guess never alters the table, nor does it refuse one that is altered already.
        try:
            steps = follow(fields, known, layout, written, table.label)
        except TableError:
            return None
        if steps or _differ(known, layout):
            return None
        generation = found.commit.position.generation
        position = replace(expected.share.position, generation=generation)
        commit = Commit(position, known, next_serial(table, found))
        return _Plan(table, expected, key, layout, matched(fields, layout), commit)

    def _append_outright(
        self, plan: _Plan, found: Found | None, records: DataFrame
    ) -> Applied | None:
        expected = plan.expected
        observation = Observation()
        counted = records.observe(observation, *expected.counts(self._schemas))
        mine = well_formed(counted)
        changed = changes(mine, [expected.kind], plan.columns, plan.key, self._schemas)
        batch = self._batch(plan, changed, expected.kind, found, begins=expected.begins)
        done, piece = write_outright(batch, expected, observation)
        if done is None or piece is None:
            return None
        self._learn(expected.share, piece, outright=True)
        return Applied(done, 0)

    def _merge(
        self, plan: _Plan, found: Found | None, records: DataFrame, *, tried: bool
    ) -> Applied | None:
        expected = plan.expected
        with decoded_as(expected, records, plan.columns, plan.key, self._schemas) as (piece, kept):
            if piece is None or (piece.key_id is None and piece.removals):
                return None
            skipped = write(self._batch(plan, kept, piece, found, begins=False))
        self._learn(expected.share, piece, outright=not piece.removals and not tried)
        return Applied(after(plan.table, plan.commit), skipped)

    def _batch(
        self, plan: _Plan, changed: DataFrame, piece: Piece, found: Found | None, *, begins: bool
    ) -> Batch:
        epoch = Epoch(plan.key, plan.layout, (piece,), FrameRecords(changed), {}, True)
        return Batch(
            plan.table,
            plan.columns,
            epoch,
            changed,
            plan.commit,
            found,
            WriteMode.REPLACE_TABLE if begins else WriteMode.APPEND,
            frontiers=self._learnt.frontiers,
        )

    def _learn(self, share: Share, piece: Piece, *, outright: bool) -> None:
        self._learnt.kinds[share.topic] = (piece,)
        self._learnt.outright[share.topic] = outright


@dataclass(frozen=True, slots=True)
class _Plan:
    """Plan for a share whose content is guessed."""

    table: Table
    expected: Expected
    key: KeyLayout | None
    layout: Layout
    columns: tuple[ColumnPlan, ...]
    commit: Commit


def _differ(known: Mapping[str, Known], layout: Layout) -> bool:
    return known_after(layout, known) != known
