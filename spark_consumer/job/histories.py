"""Histories of one subscription's tables: when they are written, until where, and why one is held.

A history is written after its table, until the table's position, from the records between its own
position and that one. Nothing but its own commits says what it has: after a crash at any moment the
next round continues there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from schemas.topic_names import topic_identifier
from spark_consumer.display import logger
from spark_consumer.errors import COPY_AGAIN, ConsumerError, SettingsError, TableError
from spark_consumer.formats.commit_metadata import NO_VERSION, Found
from spark_consumer.formats.protocol import Table
from spark_consumer.history.applier import HistoryApplier
from spark_consumer.history.transactions import transactions
from spark_consumer.job.marker_batches import batch_markers
from spark_consumer.job.planner import Planner, read_shares
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.decode import read_offsets, wire
from spark_consumer.kafka.markers import Marker, Owner
from spark_consumer.kafka.position import Gap, Position, Share, share
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.topics import TopicStates
from spark_consumer.names import history_name, transaction_topic
from spark_consumer.observe.progress import Progress
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import (
    StoppedError,
    TableTransientError,
    as_error,
    every_table,
)
from spark_consumer.states.manifests import HistoryState, Hold, Manifest

__all__ = ["Histories"]

_log: Final = logger(__name__)
_TRIES: Final = 4
"""Number of attempts at a failure that may pass, before the history is held."""
_BACK_OFF_S: Final = 1.0


class Histories:
    """Histories of one subscription.

    Args:
        settings: Settings of the job.
        spark: Session that nothing else uses meanwhile.
        subscription: Name of the subscription.
        schemas: Writer schemas by ID.
        topics: Source of topic descriptions.
        tables: Tables of the subscription.
        planner: Planner of the subscription's batches.
        markers_between: Function that returns the markers after an offset of the marker topic,
            until another.
        stopping: Event after which no further history is begun.
        progress: Progress that names the history at work in the log.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        subscription: str,
        schemas: Schemas,
        topics: TopicStates,
        tables: SubscriberTables,
        planner: Planner,
        markers_between: Callable[[int, int], list[Marker]],
        stopping: threading.Event,
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._progress = progress
        self._subscription = subscription
        self._schemas = schemas
        self._topics = topics
        self._tables = tables
        self._planner = planner
        self._markers_between = markers_between
        self._stopping = stopping
        self._applier = HistoryApplier(spark, schemas)
        self._wanted = frozenset(settings.history)
        self._next = 0.0
        self._given_up: dict[str, int] = {}
        """Copy that the tables of held histories had at the last attempt; see `_is_given_up`."""

    def check(self, manifest: Manifest) -> None:
        """Refuse a history whose folder is that of another table.

        Raises:
            SettingsError: it is; the message names both.
        """
        for name in manifest.tables:
            if self._is_wanted(name) and history_name(name) in manifest.tables:
                raise SettingsError(
                    f"subscription {self._subscription}: the table"
                    f" {topic_identifier(history_name(name))} has the folder that the history of"
                    f" {topic_identifier(name)} would have",
                    hint="rename that table, or take this one out of consumer.history",
                )

    def is_due(self) -> bool:
        """Whether there are histories, and `history_interval_s` has passed since the last round.

        A job that stops by itself writes them with each cut, as the cut may be its last.
        """
        if not self._wanted:
            return False
        ends = self._settings.endpos is not None or self._settings.available_now
        return ends or time.monotonic() >= self._next

    def is_any_lagging(self, manifest: Manifest) -> bool:
        """Whether a history lacks something that its table has at a state."""
        return any(
            self._is_wanted(name) and (state is None or state.end_lsn < manifest.end_lsn)
            for name, state in ((name, manifest.histories.get(name)) for name in manifest.tables)
        )

    def write(self, manifest: Manifest) -> dict[str, HistoryState]:
        """Bring the histories up to their tables.

        Args:
            manifest: State with the versions of the tables.

        Returns:
            The states of all histories, those included that are not written any more.

        Raises:
            ConsumerError: what concerns every table; a history that fails is held instead.
        """
        states = dict(manifest.histories)
        for name, state in manifest.tables.items():
            if not self._is_wanted(name) or name in manifest.held_by_job:
                continue
            before = states.get(name)
            if before is not None and before.held is not None and self._is_given_up(name):
                continue
            with self._progress.table(f"history of {topic_identifier(name)}"):
                states[name] = self._brought_up(name, state.topic, manifest, before)
        self._next = time.monotonic() + self._settings.history_interval_s
        return states

    def _brought_up(
        self, name: str, topic: str, manifest: Manifest, before: HistoryState | None
    ) -> HistoryState:
        """Return the state of a history after its round: written, or held."""
        is_held = before is not None and before.held is not None
        tries = 1 if is_held else _TRIES
        for trial in range(1, tries + 1):
            if self._stopping.is_set():
                raise StoppedError("stopped between two histories")
            try:
                found = self._written(name, topic, manifest, before)
            except Exception as error:  # whatever it is, it is this history's
                failure = self._failure(self._label(name), error)
                if trial == tries or not isinstance(failure, TableTransientError):
                    return self._held(name, failure, before)
                wait_s = _BACK_OFF_S * 2 ** (trial - 1)
                _log.warning("history not written, retrying in %g s: %s", wait_s, failure.message)
                self._stopping.wait(wait_s)
                continue
            if is_held:
                _log.info("history released: %s", self._label(name))
            self._given_up.pop(name, None)
            break
        return HistoryState(found.version, manifest.end_lsn)

    def _failure(self, label: str, error: Exception) -> ConsumerError:
        """Return a failure that is a history's own; raise any other, and a stop."""
        if self._stopping.is_set() and not isinstance(error, ConsumerError):
            raise StoppedError("stopped while a history was written") from error
        if (every := every_table(error)) is not None:
            raise every from error
        known = as_error(label, error)
        if known is not error:
            _log.debug("%s", label, exc_info=error)
        return known

    def _held(self, name: str, known: ConsumerError, before: HistoryState | None) -> HistoryState:
        if before is None:
            before = HistoryState(NO_VERSION, 0)
        hint = self._tables.with_copy_command(known.hint, name)
        # A failure that may pass is tried again in each round.
        table_found = self._tables.found.get(name)
        if table_found is not None and not isinstance(known, TableTransientError):
            self._given_up[name] = table_found.commit.position.generation
        hold = Hold(known.message, hint, before.end_lsn)
        if before.held != hold:
            _log.error("history held: %s\nhint: %s", known.message, hint)
        return HistoryState(before.version, before.end_lsn, hold)

    def _written(
        self, name: str, topic: str, manifest: Manifest, before: HistoryState | None
    ) -> Found:
        """Return a history after all records that its table has.

        Raises:
            TableError: it cannot have them; a copy, or what the hint says, is needed.
        """
        table = self._tables.table(self._spark, history_name(name))
        target = self._tables.find(name)
        if target is None:
            raise TableError(f"{self._label(name)}: its table is gone", hint=COPY_AGAIN)
        failure: ConsumerError | None = None
        try:
            found = table.find(NO_VERSION if before is None else before.version)
        except TableError as error:
            failure = error
            found = self._newest(table)
        if found is not None and not found.commit.history:
            raise TableError(
                f"{table.label}: its folder {table.path} has a table that is no history",
                hint="move it away, and the history begins",
            )
        if found is None:
            return self._begun(name, table, target)
        position, until = found.commit.position, target.commit.position
        same = (position.marker_topic_id, position.topic, position.topic_id) == (
            until.marker_topic_id,
            topic,
            until.topic_id,
        )
        if failure is None and same and position.marker >= until.marker:
            return found
        return self._continued(table, found, failure, topic, until, manifest.owner)

    def _continued(
        self,
        table: Table,
        found: Found,
        failure: ConsumerError | None,
        topic: str,
        until: Position,
        owner: Owner | None,
    ) -> Found:
        """Return a history after all records until a position of its table.

        Args:
            table: The history.
            found: Its current state.
            failure: Reason for which only a copy can follow; None if there is none.
            topic: Topic of its table.
            until: Position of its table.
            owner: Owner of the topics; None if not known.

        Raises:
            TableError: there is a gap, or `failure`, and no copy after it.
        """
        position = found.commit.position
        known = position.marker_topic_id == until.marker_topic_id
        markers = self._markers_between(position.marker if known else -1, until.marker)
        state = self._topics.describe([topic]).get(topic)
        if state is None:
            raise TableError(f"topic {topic} is gone", hint="let the gateway recreate it")
        begin = position.marker + 1 if known else 0
        for batch in batch_markers(markers, self._settings.max_batch_records):
            if self._stopping.is_set():
                raise StoppedError("stopped between two commits of a history")
            mine, end = batch.markers, batch.markers[-1].offset + 1
            wanted: Share | Gap | None = None
            if failure is None:
                wanted = share(topic, until.marker_topic_id, state, mine, found.commit.position)
            if isinstance(wanted, Gap):
                failure = TableError(f"{table.label}: {wanted.reason}", hint=COPY_AGAIN)
            elif wanted is not None:
                try:
                    found = self._applied(table, found, wanted, begin, end, owner)
                except Exception as error:  # as in `_brought_up`; a copy may come after it
                    failure = self._failure(table.label, error)
                    if isinstance(failure, TableTransientError):
                        raise failure from error
                    found = self._newest(table) or found
            if failure is not None:
                copy = self._planner.copy(topic, until.marker_topic_id, state, mine)
                if copy is not None:
                    found = self._applied(table, found, copy, begin, end, owner)
                    failure = None
            begin = end
        if failure is not None:
            raise failure
        return found

    def _newest(self, table: Table) -> Found | None:
        """Return a history's own last commit: of what others have written a copy makes an end."""
        return table.find(table.version())

    def _applied(
        self,
        table: Table,
        found: Found,
        wanted: Share,
        begin: int,
        end: int,
        owner: Owner | None,
    ) -> Found:
        """Return a history after a share, whose markers are between two offsets."""
        records = wire(read_shares(self._spark, self._settings, [wanted]))
        ends = self._transactions(begin, end, owner)
        return self._applier.apply(table, found, wanted, records, ends)

    def _transactions(self, begin: int, end: int, owner: Owner | None) -> DataFrame:
        """Return the transactions that the marker topic names between two offsets."""
        topic = transaction_topic(self._subscription)
        state = self._topics.describe([topic])[topic]
        spans = {topic: {0: (max(begin, state.earliest[0]), end)}}
        return transactions(read_offsets(self._spark, self._settings, spans), self._schemas, owner)

    def _begun(self, name: str, table: Table, target: Found) -> Found:
        self._tables.refuse_other_format(table)
        rows = self._tables.rows_at(self._spark, name, target.version)
        found = self._applier.begin(table, rows, target.commit)
        _log.info("history begins: %s", self._label(name))
        return found

    def _is_given_up(self, name: str) -> bool:
        """Whether a held history has been tried since its table was copied last.

        Nothing but a copy, or a person, lets it go on, and each attempt reads the topic.
        """
        known = self._tables.found.get(name)
        return known is not None and self._given_up.get(name) == known.commit.position.generation

    def _is_wanted(self, name: str) -> bool:
        return topic_identifier(name) in self._wanted

    def _label(self, name: str) -> str:
        return self._tables.label(history_name(name))
