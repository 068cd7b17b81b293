"""Plan of a batch: what each table has to read to reach its cut, or why it cannot."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from schemas.topic_names import topic_part
from spark_consumer.apply.driver.reader import SmallReader
from spark_consumer.display import logger
from spark_consumer.errors import COPY_AGAIN, AccessError, FatalConsumerError, TableError
from spark_consumer.formats.commit_metadata import NO_VERSION, Found, Version
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.batch_profile import copy_beginnings, schema_id, schema_number, survey
from spark_consumer.kafka.decode import read_offsets, source_table, wire
from spark_consumer.kafka.layout import value_layout
from spark_consumer.kafka.markers import Marker
from spark_consumer.kafka.position import Gap, Position, Share, TopicState, beginning, share
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.topics import TopicStates
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import TableTransientError, cause, every_table
from spark_consumer.spark.tuning import is_small
from spark_consumer.states.manifests import Hold, Manifest

__all__ = ["Planner", "Task", "offsets", "read_shares"]

_log: Final = logger(__name__)
_PIECE: Final = 50_000
"""Number of records of a piece, in which a large share is read."""
_FIRST: Final = 4
"""Number of a topic's first offsets that are read to learn its table."""


@dataclass(frozen=True, slots=True)
class Task:
    """One table's work in a batch.

    Attributes:
        name: ``schema.table``.
        share: Records to apply.
        found: Current state of the table; None if it is rebuilt from a copy.
    """

    name: str
    share: Share
    found: Found | None


class Planner:
    """Planner of one subscription's batches.

    Args:
        settings: Settings of the job.
        spark: Session to read Kafka with.
        schemas: Writer schemas by ID.
        topics: Source of topic descriptions.
        tables: Tables of the subscription.
        reader: Reader of the first records of new topics.
        markers_between: Function that returns the markers after an offset of the marker topic,
            until another.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        schemas: Schemas,
        topics: TopicStates,
        tables: SubscriberTables,
        reader: SmallReader,
        markers_between: Callable[[int, int], list[Marker]],
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._schemas = schemas
        self._topics = topics
        self._tables = tables
        self._reader = reader
        self._markers_between = markers_between
        self._manifest = Manifest("")

    def plan(
        self,
        manifest: Manifest,
        markers: Sequence[Marker],
        topics: Sequence[str],
        *,
        last: bool,
    ) -> tuple[list[Task], dict[str, Hold]]:
        """Return the tasks of a batch, and the tables that are held.

        Args:
            manifest: Current state.
            markers: Markers of one batch, or of several.
            topics: Topics to plan.
            last: Whether this is the last attempt: then transient failures hold tables, too.

        Raises:
            TransientConsumerError: the batch should be retried.
            AccessError: the broker or the registry refuses the user.
        """
        self._manifest = manifest
        try:
            states = self._topics.describe(topics)
        except AccessError:
            raise
        except (FatalConsumerError, TableTransientError):  # one fails: describe each alone
            states = {}
        self._learn_names(states, markers)
        tasks: dict[str, Task] = {}
        holds: dict[str, Hold] = {}
        for topic in topics:
            try:
                state = states.get(topic) or self._topics.describe([topic]).get(topic)
                task = self._task(topic, state, markers)
            except Exception as error:  # whatever it is, it is this table's
                if (every := every_table(error)) is not None:
                    raise every from error
                name = self._tables.names.get(topic, topic)
                holds[name] = self._tables.failed(name, error, last=last)
                continue
            if task is not None and _is_newer(task, tasks.get(task.name)):
                tasks[task.name] = task
        return list(tasks.values()), {n: why for n, why in holds.items() if n not in tasks}

    def _task(self, topic: str, state: TopicState | None, markers: Sequence[Marker]) -> Task | None:
        """Return the task for one topic; None if its table has everything.

        Raises:
            TableError: records that the table needs are gone.
        """
        if state is None:
            raise TableError(f"topic {topic} is gone", hint="let the gateway recreate it")
        name = self._tables.names.get(topic)
        if name is None:
            name = self._tables.names[topic] = self._name(topic, state, markers)
        self._check(name)
        marker_topic_id = self._manifest.marker_topic_id
        fresh = [one for one in markers if one.offset > self._manifest.marker]
        if name in self._manifest.held_by_job and (
            copy := self.copy(topic, marker_topic_id, state, fresh)
        ):
            return Task(name, copy, None)
        try:
            found = self._tables.find(name, self._trusted(name))
        except TableError:
            # Its position cannot be trusted, so its topic is read again from the first record.
            every = self._since(-1, markers)
            wanted = share(topic, marker_topic_id, state, every, None)
            again = wanted if isinstance(wanted, Share) else None
            again = again or self.copy(topic, marker_topic_id, state, every)
            if again is None:
                raise
            return Task(name, again, None)
        return self._continued(name, found, topic, state, markers)

    def _check(self, name: str) -> None:
        """Refuse a table that cannot have its folder, or its name in the catalog.

        Raises:
            TableError: the format reserves the folder, or another table or a history has it or
                the name; or the position of the table there cannot be trusted.
        """
        self._tables.check_name(name)
        if (twin := self._tables.twin(name)) is not None:
            raise TableError(
                f"{self._tables.label(name)}: its folder is that of table {twin}, too, as the file"
                " system does not distinguish names by case",
                hint="rename one of them, leave one out, or move the warehouse",
            )

    def _continued(
        self,
        name: str,
        found: Found | None,
        topic: str,
        state: TopicState,
        markers: Sequence[Marker],
    ) -> Task | None:
        """Return the task of a table from where it is, or from a copy after that.

        Raises:
            TableError: there is a gap, and no copy after it.
        """
        marker_topic_id = self._manifest.marker_topic_id
        position = None if found is None else found.commit.position
        has = -1
        if position is not None and position.marker_topic_id == marker_topic_id:
            has = position.marker
        wanted = share(topic, marker_topic_id, state, markers, position)
        if isinstance(wanted, Gap) and not self._is_fenced(topic, position):
            markers = self._since(has, markers)
            wanted = share(topic, marker_topic_id, state, markers, position)
        if not isinstance(wanted, Gap):
            return None if wanted is None else Task(name, wanted, found)
        lacked = [one for one in markers if one.offset > has]
        if copy := self.copy(topic, marker_topic_id, state, lacked):
            return Task(name, copy, None)
        if self._is_fenced(topic, position):
            return None
        raise TableError(f"{self._tables.label(name)}: {wanted.reason}", hint=COPY_AGAIN)

    def _since(self, marker: int, markers: Sequence[Marker]) -> list[Marker]:
        """Return some markers, and those before them that follow the marker at an offset."""
        return [*self._markers_between(marker, markers[0].offset - 1), *markers]

    def copy(
        self, topic: str, marker_topic_id: str, state: TopicState, markers: Sequence[Marker]
    ) -> Share | None:
        """Return the share that begins with the last copy's first Kafka transaction, if any."""
        left = beginning(topic, marker_topic_id, state, markers)
        if left is None:
            return None
        frame = wire(read_shares(self._spark, self._settings, [left]))
        profile = survey(frame).get(topic)
        begun = copy_beginnings(frame, profile, self._schemas) if profile is not None else {}
        if not begun:
            return None
        number, (offset, _) = next(iter(begun.items()))
        since = [
            marker
            for marker in markers
            if any(r.partition == number and r.next > offset for r in marker.ranges.get(topic, ()))
        ]
        return beginning(
            topic, marker_topic_id, state, [one for one in markers if one.offset >= since[0].offset]
        )

    def _learn_names(self, states: Mapping[str, TopicState], markers: Sequence[Marker]) -> None:
        """Learn the tables of new topics, whose first records are read together.

        A table that cannot be learnt in this way is left to `_name`, which says why.
        """
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        for marker in markers:
            for topic, ranges in marker.ranges.items():
                if topic not in states or topic in self._tables.names or topic in spans:
                    continue
                number, state = ranges[0].partition, states[topic]
                # A marker may name a partition or offsets that the topic does not have.
                begin = max(ranges[0].first, state.earliest.get(number, 0))
                end = min(ranges[0].next, begin + _FIRST)
                if begin < end <= state.latest.get(number, 0):
                    spans[topic] = {number: (begin, end)}
        if not spans:
            return
        try:
            found = self._reader.read(spans) or {}
        except Exception as error:
            if (every := every_table(error)) is not None:
                raise every from error
            _log.debug("first records are left to Spark to read: %s", cause(error))
            return
        for topic, records in found.items():
            try:
                names = records.table(self._schemas)
            except Exception as error:
                if (every := every_table(error)) is not None:
                    raise every from error
                continue
            if names is not None:
                self._tables.names[topic] = ".".join(topic_part(name) for name in names)

    def _name(self, topic: str, state: TopicState, markers: Sequence[Marker]) -> str:
        """Return ``schema.table``, by the topic's first record in the markers' ranges."""
        for marker in markers:
            for span in marker.ranges.get(topic, ()):
                begin = max(span.first, state.earliest.get(span.partition, 0))
                if begin >= span.next:
                    continue
                spans = {topic: {span.partition: (begin, span.next)}}
                frame = wire(read_offsets(self._spark, self._settings, spans)).where(
                    F.col("value_id").isNotNull() & F.col("fault").isNull()
                )
                first = frame.select("value_id").first()
                if first is not None:
                    value_id = schema_number(first.value_id)
                    mine = frame.where(F.col("value_id") == schema_id(value_id))
                    schema = self._schemas.schema(value_id)
                    # Checked here for a better message than Spark's.
                    value_layout(schema)
                    names = source_table(mine, json.dumps(schema))
                    return ".".join(topic_part(name) for name in names)
        raise TableError(
            f"topic {topic}: the records that its markers name are gone",
            hint=COPY_AGAIN,
        )

    def _trusted(self, name: str) -> Version:
        state = self._manifest.tables.get(name)
        return NO_VERSION if state is None else state.version

    def _is_fenced(self, topic: str, position: Position | None) -> bool:
        """Whether the table has moved to another topic, and this is one that it left."""
        return position is not None and position.topic != topic and topic in self._manifest.fenced


def _is_newer(task: Task, other: Task | None) -> bool:
    """Whether `task` supersedes `other`: the share of the newer copy wins."""
    if other is None:
        return True
    mine, others = task.share, other.share
    return (mine.begins, mine.start.marker) > (others.begins, others.start.marker)


def offsets(shares: Iterable[Share]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the first offset of each share and the one after the last, by topic and partition."""
    return {
        one.topic: {span.partition: (span.start, span.end) for span in one.spans} for one in shares
    }


def read_shares(
    spark: SparkSession, settings: ConsumerSettings, shares: Sequence[Share]
) -> DataFrame:
    """Return the records of some shares, partitioned by their number."""
    spans = offsets(shares)
    records = sum(one.records() for one in shares)
    tasks = None
    if not is_small(records):
        # Each piece has its own consumer, whose creation takes longer than reading a small batch.
        most = min(spark.sparkContext.defaultParallelism * 2, math.ceil(records / _PIECE))
        tasks = settings.min_partitions or most
    return read_offsets(spark, settings, spans, tasks=tasks)
