"""Application of batches to the tables of one subscription, from cut to cut.

A batch has a share for each table that changed in it. Small shares are read together by the driver,
those that are left to Spark one by one; tables are written in parallel, each in a session of its
own. A table that fails is held with the reason, and the others continue; it is released once the
missing records can be read again, or by its next copy.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from spark_consumer.apply.driver.reader import SmallReader
from spark_consumer.display import logger
from spark_consumer.errors import COPY_AGAIN, TableError, TransientConsumerError
from spark_consumer.formats.catalog import Catalog, write_catalog
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.job.histories import Histories
from spark_consumer.job.maintenance import Maintenance
from spark_consumer.job.marker_batches import MarkerBatch, batch_markers
from spark_consumer.job.planner import Planner, Task
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.job.workers import Workers
from spark_consumer.kafka.decode import read_offsets
from spark_consumer.kafka.marker_trust import Witness, owner_before
from spark_consumer.kafka.markers import Marker, read_markers
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.topics import TopicStates
from spark_consumer.names import lsn_text, transaction_topic
from spark_consumer.observe.figures import Figures
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import SparkFailedError, every_table
from spark_consumer.spark.files import Folder
from spark_consumer.spark.tuning import INTERPRETED, tuned
from spark_consumer.states.manifests import (
    Hold,
    Manifest,
    Manifests,
    TableState,
    manifest_folder,
)
from spark_consumer.states.views import Views

__all__ = ["BACK_OFF_S", "TRIES", "Rebuild"]

_log: Final = logger(__name__)
TRIES: Final = 4
"""Number of attempts at a batch."""
BACK_OFF_S: Final = 1.0
"""Pause after the first attempt, in seconds; it doubles with each."""
_PRUNE_CUTS: Final = 100
"""Number of cuts between two removals of old manifests."""
_GARBAGE_RECORDS: Final = 10_000
"""Number of records whose objects may remain in memory. To find them takes a tenth of a second."""
_TABLE_RECORDS: Final = 100
"""Number of records that leave as many objects as the application of a share itself."""


class Rebuild:
    """Tables of one subscription, and the application of batches to them.

    Args:
        settings: Settings of the job.
        spark: Any session of the application.
        table_format: Format of the tables.
        subscription: Name of the subscription.
        schemas: Writer schemas by ID.
        topics: Source of topic descriptions.
        stopping: Event after which no further table is begun.

    Attributes:
        manifest: Current state, once it is loaded; see `load`.
        figures: Figures of the subscription.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        table_format: TableFormat,
        subscription: str,
        schemas: Schemas,
        topics: TopicStates,
        stopping: threading.Event,
    ) -> None:
        self._stopping = stopping
        self._uncollected = 0
        self.subscription = subscription
        self._settings = settings
        self._spark = spark.newSession()
        table_format.prepare(self._spark)
        self._schemas = schemas
        self._topics = topics
        self._marker_topic = transaction_topic(subscription)
        self._manifests = Manifests(spark, settings.warehouse, subscription)
        self._views = Views(
            self._spark, table_format, settings.warehouse, subscription, settings.views
        )
        self._tables = SubscriberTables(self._spark, table_format, settings.warehouse, subscription)
        self._reader = SmallReader(spark, settings)
        self._planner = Planner(
            settings,
            self._spark,
            schemas,
            topics,
            self._tables,
            self._reader,
            self._markers_between,
        )
        self.figures = Figures()
        self._workers = Workers(
            settings, spark, schemas, self._tables, self._reader, stopping, self.figures
        )
        self._histories = Histories(
            settings,
            self._spark,
            subscription,
            schemas,
            topics,
            self._tables,
            self._planner,
            self._markers_between,
            stopping,
            self.figures.progress,
        )
        self._maintenance = Maintenance(settings, self._spark, subscription, self._tables)
        self.manifest = Manifest("")

    def close(self) -> None:
        """Close connections."""
        self._reader.close()

    def load(self) -> None:
        """Load the newest state.

        Raises:
            FatalConsumerError: it is of another version of the job, or a history would be in the
                folder of a table.
            TransientConsumerError: the file system fails.
        """
        self.manifest = self._manifests.newest() or Manifest("")
        self._histories.check(self.manifest)
        write_catalog(
            Folder(self._spark, manifest_folder(self._settings.warehouse, self.subscription)),
            Catalog.of(self._settings, self.subscription),
        )
        # A job may have been stopped between its manifest and its views, or had other settings.
        self._views.clear()
        self._views.publish(self.manifest)
        self._tables.register(self.manifest.every_table())
        self._count(0)

    def has_lagging_history(self) -> bool:
        """Whether a history lacks something that its table has."""
        return self._histories.is_any_lagging(self.manifest)

    def hold(self, unread: Hold | None) -> None:
        """Store in the manifest why the markers cannot be read; None: they can.

        Raises:
            TransientConsumerError: the file system fails.
        """
        # Without a state there is nothing to continue from.
        if self.manifest.marker >= 0 and self.manifest.unread != unread:
            self._store(replace(self.manifest, unread=unread))

    def open(self, marker_topic_id: str) -> None:
        """Check the tables before anything is applied, and bring lagging ones up to date.

        Args:
            marker_topic_id: ID of the marker topic.

        Raises:
            ConsumerError: see the subclasses.
        """
        if self.manifest.marker_topic_id != marker_topic_id:
            _log.info("marker topic created or recreated: subscription=%s", self.subscription)
            self.manifest = replace(
                self.manifest, marker_topic_id=marker_topic_id, marker=-1, owner=None
            )
        self._tables.names = {state.topic: name for name, state in self.manifest.tables.items()}
        lagging = [name for name in self.manifest.tables if self._is_lagging(name)]
        lagging += [name for name in self.manifest.held_by_job if name not in lagging]
        if lagging and self.manifest.marker >= 0:
            _log.info("catching up: tables=%s", ", ".join(lagging))
            topics = {
                self.manifest.tables[name].topic if name in self.manifest.tables else name
                for name in lagging
            }
            self._catch_up(topics, lagging)
        if self.manifest.marker >= 0:
            after = self._with_histories(self.manifest)
            if after.histories != self.manifest.histories:
                self._store(after)

    def apply(self, batch: MarkerBatch) -> None:
        """Apply a batch, and store the manifest of its cut.

        A failed batch is retried after a pause, in halves; tables that have it already skip it.

        Args:
            batch: Batch after those already applied.

        Raises:
            ConsumerError: the job cannot continue; a table that fails is held instead.
        """
        for trial in range(1, TRIES + 1):
            try:
                self._try(batch, last=trial == TRIES)
                return
            except TransientConsumerError as error:
                if trial == TRIES or self._stopping.is_set():
                    raise
                wait_s = BACK_OFF_S * 2 ** (trial - 1)
                _log.warning("retrying in %g s: %s", wait_s, error.message)
                self._stopping.wait(wait_s)
                if isinstance(error, SparkFailedError) and len(batch.markers) > 1:
                    for half in batch.halves():
                        self.apply(half)
                    return

    def _try(self, batch: MarkerBatch, *, last: bool) -> None:
        begun = time.monotonic()
        with self.figures.cut(batch.cut.end_lsn, batch.records()):
            tables, holds = self._apply(batch.markers, batch.topics(), last=last)
            self._advance(batch, tables, holds)
        self._count(batch.records())
        self.figures.cuts += 1
        if self.figures.cuts % _PRUNE_CUTS == 1:
            with self.figures.phase("manifest"):
                self._manifests.prune(self._settings.keep_hours, self.manifest)
        _log.info(
            "cut applied: subscription=%s end_lsn=%s records=%d tables=%d seconds=%.1f",
            self.subscription,
            lsn_text(batch.cut.end_lsn),
            batch.records(),
            len(tables),
            time.monotonic() - begun,
        )
        self._maintain()

    def _collect_garbage(self, tasks: Sequence[Task]) -> None:
        """Let the JVM forget the objects of applied shares, now and then.

        It keeps each object that Python knows, and one whose methods were called is in a cycle of
        references, for which Python looks too rarely.
        """
        self._uncollected += sum(_TABLE_RECORDS + task.share.records() for task in tasks)
        if self._uncollected >= _GARBAGE_RECORDS:
            gc.collect()
            self._uncollected = 0

    def _maintain(self) -> None:
        """Maintain the tables when due, and store a manifest with their versions."""
        if self._maintenance.is_due():
            with self.figures.phase("maintenance"):
                moved = self._maintenance.tidy(self.manifest.every_table())
            if moved:
                self._store(self.manifest.moved(moved))

    def _count(self, records: int) -> None:
        self.figures.end_lsn = self.manifest.end_lsn
        self.figures.commit_time = self.manifest.commit_time
        self.figures.tables_held = len(self.manifest.held_by_job)
        self.figures.records += records

    def wait_for(self, batches: Sequence[MarkerBatch]) -> None:
        """Let the figures say which tables lack what.

        Args:
            batches: Batches that have been read and are not applied, in their order.
        """
        since: dict[str, int] = {}
        for batch in reversed(batches):
            since |= batch.first_commit_times()
        names = self._tables.names
        lacking = {names[topic]: at for topic, at in since.items() if topic in names}
        known = dict.fromkeys(self.manifest.tables) | lacking
        self.figures.tables = {**known, **self._held_since()}

    def _held_since(self) -> dict[str, int | None]:
        """Return commit times until which held tables are complete, as far as known."""
        times: dict[str, int | None] = {}
        for name in self.manifest.held_by_job:
            found = self._tables.found.get(name)
            own = None if found is None else found.commit.position.commit_time
            # The first one stays, while those of the other tables go on.
            times[name] = own or self.figures.tables.get(name) or self.manifest.commit_time
        return times

    def _markers_between(self, after: int, last: int) -> list[Marker]:
        """Return the PROGRESS markers after an offset of the marker topic, until another.

        Those that the topic no longer has are missing.
        """
        state = self._topics.describe([self._marker_topic])[self._marker_topic]
        begin = max(after + 1, state.earliest[0])
        if begin > last:
            return []
        spans = {self._marker_topic: {0: (begin, last + 1)}}
        frame = read_offsets(self._spark, self._settings, spans)
        with tuned(self._spark, INTERPRETED):
            read = read_markers(frame, self._schemas)
        if read.error is not None:
            raise read.error
        owner = owner_before(read.found, self.manifest.owner)
        judged = Witness(self.subscription, self._settings.topics, owner).judge(read.found)
        return [one for one in judged if isinstance(one, Marker)]

    def _is_lagging(self, name: str) -> bool:
        """Whether a table lacks commits that the manifest knows."""
        state = self.manifest.tables[name]
        try:
            found = self._tables.find(name, state.version)
        except Exception as error:  # the next step checks again, and holds the table
            if (every := every_table(error)) is not None:
                raise every from error
            return True
        return found is None or found.version < state.version

    def _catch_up(self, topics: Iterable[str], names: Sequence[str]) -> None:
        for name in names:
            self._tables.found.pop(name, None)
        wanted = set(topics)
        tables: dict[str, TableState] = {}
        holds: dict[str, Hold] = {}
        markers = self._markers_between(-1, self.manifest.marker)
        for batch in batch_markers(markers, self._settings.max_batch_records):
            done, failed = self._apply(
                batch.markers, sorted(wanted & set(batch.topics())), last=True
            )
            tables |= done
            holds = {name: why for name, why in holds.items() if name not in done} | failed
        # A table without anything left to read is as it was found.
        for name in names:
            if name in tables or name in holds:
                continue
            try:
                found = self._tables.find(name)
            except Exception as error:
                if (every := every_table(error)) is not None:
                    raise every from error
                holds[name] = self._tables.failed(name, error, last=True)
                continue
            if name in self.manifest.held_by_job:
                holds[name] = self.manifest.held_by_job[name]
            elif found is None:
                gone = TableError("its folder is gone", hint=COPY_AGAIN)
                holds[name] = self._tables.hold(name, gone)
            else:
                tables[name] = TableState(found.version, found.commit.position.topic)
        kept = {name: one for name, one in self.manifest.held_by_job.items() if name not in names}
        self._report(self.manifest, tables, holds)
        self._store(
            replace(
                self.manifest,
                tables={**self.manifest.tables, **tables},
                held_by_job={**kept, **holds},
            )
        )

    def _advance(
        self, batch: MarkerBatch, tables: Mapping[str, TableState], holds: Mapping[str, Hold]
    ) -> None:
        before = self.manifest
        # Markers after the last one that has records change nothing.
        begin = next((one for one in reversed(batch.markers) if one.ranges), batch.cut)
        back = {*tables, *(state.topic for state in tables.values())}
        kept = {name: why for name, why in before.held_by_job.items() if name not in back}
        after = replace(before, held_by_job={**kept, **holds}).after(batch.copies)
        after = self._with_histories(
            replace(
                after,
                marker=batch.cut.offset,
                since_lsn=begin.end_lsn,
                since_time=begin.commit_time or before.since_time,
                since_marker=begin.offset,
                end_lsn=batch.cut.end_lsn,
                commit_time=batch.last_commit_time() or before.commit_time,
                tables={**before.tables, **tables},
                fenced=self._fenced_after(tables),
                owner=batch.cut.writer or before.owner,
            )
        )
        with self.figures.phase("manifest"):
            self._store(after)
        self._report(before, tables, holds)

    def _with_histories(self, manifest: Manifest) -> Manifest:
        """Return a state with the histories brought up to its tables, if that is due."""
        manifest = manifest.without_replaced_histories()
        if not self._histories.is_due():
            return manifest
        with self.figures.phase("history"):
            return replace(manifest, histories=self._histories.write(manifest))

    def _report(
        self, before: Manifest, tables: Mapping[str, TableState], holds: Mapping[str, Hold]
    ) -> None:
        for name, why in holds.items():
            if before.held_by_job.get(name) != why:
                _log.error(
                    "table held: subscription=%s table=%s: %s\nhint: %s",
                    self.subscription,
                    name,
                    why.reason,
                    why.hint,
                )
        for name in before.held_by_job:
            if name in tables:
                _log.info("table released: subscription=%s table=%s", self.subscription, name)

    def _store(self, manifest: Manifest) -> None:
        self.manifest = self._manifests.store(manifest, self.manifest)
        self._views.publish(self.manifest)
        self._tables.register(self.manifest.every_table())

    def _apply(
        self, markers: Sequence[Marker], topics: Sequence[str], *, last: bool
    ) -> tuple[dict[str, TableState], dict[str, Hold]]:
        """Apply the shares of some topics between markers; return changed tables and held ones."""
        tables: dict[str, TableState] = {}
        with self.figures.phase("plan"):
            tasks, holds = self._planner.plan(self.manifest, markers, topics, last=last)
        try:
            done = self._workers.apply(tasks, last=last)
        finally:
            self._collect_garbage(tasks)
        self.figures.skipped = self._workers.skipped
        for name, outcome in done.items():
            if isinstance(outcome, Found):
                topic = outcome.commit.position.topic
                self._tables.found[name] = outcome
                self._tables.names[topic] = name
                tables[name] = TableState(outcome.version, topic)
            else:
                holds[name] = outcome
        return self._written_before(markers, topics, {*tables, *holds}) | tables, holds

    def _written_before(
        self, markers: Sequence[Marker], topics: Sequence[str], seen: Collection[str]
    ) -> dict[str, TableState]:
        """Return tables that have the batch already, from a run that stored no manifest for it."""
        tables = {}
        for topic in topics:
            name = self._tables.names.get(topic, topic)
            found = self._tables.found.get(name)
            if found is None or name in seen or name in self.manifest.held_by_job:
                continue
            position, state = found.commit.position, TableState(found.version, topic)
            here = (position.topic, position.marker_topic_id) == (
                topic,
                self.manifest.marker_topic_id,
            )
            ahead = position.marker > markers[-1].offset
            if here and not ahead and self.manifest.tables.get(name) != state:
                tables[name] = state
        return tables

    def _fenced_after(self, tables: Mapping[str, TableState]) -> tuple[str, ...]:
        """Return the topics that tables have left for others."""
        fenced = set(self.manifest.fenced)
        for name, state in tables.items():
            before = self.manifest.tables.get(name)
            if before is not None and before.topic != state.topic:
                fenced.add(before.topic)
                _log.warning(
                    "another topic feeds the table now: subscription=%s table=%s topic=%s",
                    self.subscription,
                    name,
                    state.topic,
                )
            fenced.discard(state.topic)
        return tuple(sorted(fenced))
