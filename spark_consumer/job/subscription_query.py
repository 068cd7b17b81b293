"""One subscription's part of the job: its streaming query and the handling of micro-batches.

A failure of a subscription holds only that subscription, with the reason; one that concerns every
table (`spark_consumer.spark.failures`) ends the job.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.topic_names import topic_part
from spark_consumer.display import logger
from spark_consumer.errors import ConsumerError, ContractError, FatalConsumerError
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.job.marker_batches import batch_markers
from spark_consumer.job.rebuild import Rebuild
from spark_consumer.kafka.marker_trust import Refused, Witness, warnings
from spark_consumer.kafka.markers import Copy, Marker, MarkerRecord, read_markers
from spark_consumer.kafka.registry import Schemas
from spark_consumer.kafka.topics import TopicStates
from spark_consumer.names import transaction_topic
from spark_consumer.settings import ConsumerSettings, source_options
from spark_consumer.spark.failures import (
    MemoryShortError,
    StoppedError,
    TableTransientError,
    as_error,
    cause,
    every_table,
    may_pass,
)
from spark_consumer.spark.files import Folder
from spark_consumer.spark.query_listener import query_name
from spark_consumer.spark.task_counts import running_tasks
from spark_consumer.spark.tuning import INTERPRETED, is_small, tuned
from spark_consumer.states.manifests import Hold, Manifest

__all__ = ["Subscription"]

_log: Final = logger(__name__)
_MARKERS: Final = 100_000
"""Most markers in a micro-batch; the size of a marker batch is bounded by its records."""
_RESTARTS: Final = 3
"""Number of restarts of a query whose source fails, before the subscription is held."""


class Subscription:
    """One subscription's part of the job.

    Args:
        settings: Settings of the job.
        spark: Any session of the application.
        table_format: Format of the tables.
        name: Name of the subscription.
        schemas: Writer schemas by ID.
        topics: Source of topic descriptions.

    Attributes:
        failure: Failure of the last micro-batch, after which no other is applied; None if it
            succeeded. It is not raised to Spark, which regards the batch as done: Spark's own log
            of a failure is longer, and says less.
        held: Reason for which the subscription is not read now; None while it is.
        stopping: Event that ends the running micro-batch after the table that is being written.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        spark: SparkSession,
        table_format: TableFormat,
        name: str,
        schemas: Schemas,
        topics: TopicStates,
    ) -> None:
        self.name = name
        self.failure: ConsumerError | None = None
        self.held: ConsumerError | None = None
        self.stopping = threading.Event()
        self.rebuild = Rebuild(settings, spark, table_format, name, schemas, topics, self.stopping)
        self._settings = settings
        self._spark = spark
        self._schemas = schemas
        self._topics = topics
        self._topic = transaction_topic(name)
        # Markers of a Kafka transaction whose PROGRESS has not been read yet.
        self._waiting: list[Marker | Copy] = []
        self._witness = Witness(name, settings.topics, None)
        self._loaded = False
        self._begun_at = -1
        self._restarts = 0

    @property
    def manifest(self) -> Manifest:
        """Manifest of the current state."""
        return self.rebuild.manifest

    def load(self) -> None:
        """Load the state, on the first call.

        Raises:
            ConsumerError: see the subclasses.
        """
        if not self._loaded:
            self.rebuild.load()
            self._loaded = True

    def is_complete(self) -> bool:
        """Whether tables and histories hold everything until `ConsumerSettings.endpos`."""
        endpos = self._settings.endpos
        complete = self.manifest.complete_lsn
        if endpos is None or complete is None or complete < endpos:
            return False
        return not self.rebuild.has_lagging_history()

    def is_stuck(self) -> bool:
        """Whether everything until `ConsumerSettings.endpos` has been read, and a table is held."""
        endpos = self._settings.endpos
        manifest = self.manifest
        return (
            endpos is not None
            and manifest.marker >= 0
            and manifest.end_lsn >= endpos
            and manifest.has_held_tables
        )

    def is_there(self) -> bool:
        """Whether the marker topic exists; the gateway creates it."""
        return bool(self._topics.describe([self._topic]))

    def hold(self, error: ConsumerError) -> None:
        """Hold the subscription, with the reason in the log, the metrics and the manifest.

        Raises:
            TransientConsumerError: the file system fails.
        """
        known, self.held = self.held, error
        self.rebuild.figures.held = error.message
        if known is None or known.message != error.message:
            _log.error(
                "subscription held: subscription=%s: %s\nhint: %s",
                self.name,
                error.message,
                error.hint,
            )
        self.rebuild.hold(Hold(error.message, error.hint, self.manifest.end_lsn))

    def hold_as_gone(self) -> None:
        """Hold the subscription because its marker topic is gone, if there was one.

        Raises:
            TransientConsumerError: the file system fails.
        """
        if self.manifest.marker >= 0:
            hint = "the gateway recreates it when it starts, and copies the tables again"
            self.hold(FatalConsumerError(f"topic {self._topic} is gone", hint=hint))

    def release(self) -> None:
        """Release the subscription; the next micro-batch updates the manifest."""
        if self.held is not None:
            _log.info("subscription released: subscription=%s", self.name)
        self.held = self.rebuild.figures.held = None

    def start(self) -> StreamingQuery:
        """Check the tables, then start the query.

        Raises:
            ConsumerError: see the subclasses.
        """
        self.failure = None
        self.stopping.clear()
        state = self._topics.describe([self._topic])[self._topic]
        self.rebuild.open(state.id)
        begin = max(self.manifest.marker + 1, state.earliest[0])
        self._waiting = []
        owner = self.manifest.owner
        self._witness = Witness(self.name, self._settings.topics, owner, self.manifest.end_lsn)
        self._restarts = self._restarts + 1 if begin == self._begun_at else 0
        self._begun_at = begin
        interval = self._settings.trigger_interval_s
        if self._settings.endpos is not None:
            interval = min(interval, 0.5)
        reader = (
            self._spark.readStream.format("kafka")
            .option("subscribe", self._topic)
            .option("startingOffsets", json.dumps({self._topic: {"0": begin}}))
            .option("failOnDataLoss", "false")
            .option("maxOffsetsPerTrigger", _MARKERS)
            .options(**source_options(self._settings))
        )
        # Spark waits for a batch to end when its query is stopped, without a bound by default.
        timeout = f"{max(1, math.ceil(self._settings.shutdown_timeout_s * 500))}ms"
        self._spark.conf.set("spark.sql.streaming.stopTimeout", timeout)
        folder = f"{self._settings.checkpoint.rstrip('/')}/{topic_part(self.name)}"
        Folder(self._spark, folder).remove_all()
        _log.info("reading: subscription=%s from marker %d", self.name, begin)
        writer = (
            reader.load()
            .writeStream.queryName(query_name(self.name))
            .option("checkpointLocation", folder)
            .foreachBatch(self.process)
        )
        if self._settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval:g} seconds").start()

    def report(self) -> None:
        """Log how far a cut is that takes long, now and then."""
        line = self.rebuild.figures.progress.report()
        if line is not None:
            tasks = running_tasks(self._spark)
            _log.info("applying: subscription=%s %s%s", self.name, line, tasks)

    def may_restart(self) -> bool:
        """Whether a query that ended can be restarted; a few times without any progress."""
        passing = self.failure is None or isinstance(self.failure, TableTransientError)
        return passing and self._restarts < _RESTARTS

    def end_reason(self, query: StreamingQuery) -> ConsumerError:
        """Return the reason for which the query has ended."""
        if self.failure is not None:
            return self.failure
        error = query.exception()
        text = "the query ended without an error" if error is None else str(error)
        first = next((line for line in text.splitlines() if line.strip()), text)
        java = query._jsq.exception()
        if error is not None and java.isDefined() and may_pass(java.get()):
            return TableTransientError(first, hint=f"can topic {self._topic} be read?")
        return FatalConsumerError(first, hint=f"can topic {self._topic} be read?")

    def process(self, records: DataFrame, batch: int) -> None:
        """Apply a micro-batch of markers, or set `failure`; the function for foreachBatch.

        Args:
            records: Records of the marker topic, as Spark's Kafka source returns them.
            batch: Number of the micro-batch, which is not used.
        """
        if self.failure is not None:
            return
        try:
            self._process(records)
        except StoppedError:
            # Spark regards the batch as done, and its checkpoint is not used: see `start`.
            return
        except Exception as error:
            if self.stopping.is_set() and not isinstance(error, ConsumerError):
                _log.warning("batch abandoned: subscription=%s: %s", self.name, cause(error))
                return
            self.failure = every_table(error) or _of_markers(as_error("its markers", error))
        finally:
            self.rebuild.figures.progress.interrupt()

    def _process(self, records: DataFrame) -> None:
        self._check_marker_topic()
        with tuned(records.sparkSession, INTERPRETED):
            read = read_markers(records, self._schemas)
        self._waiting += self._trusted(read.found)
        batches = list(batch_markers(self._waiting, self._settings.max_batch_records))
        progress = self.rebuild.figures.progress
        cuts = [batch.records() for batch in batches]
        progress.read(cuts)
        if not is_small(sum(cuts)):
            topics = {topic for batch in batches for topic in batch.topics()}
            _log.info(
                "markers read: subscription=%s cuts=%d records=%d topics=%d",
                self.name,
                len(cuts),
                sum(cuts),
                len(topics),
            )
        for number, batch in enumerate(batches):
            if self.stopping.is_set():
                raise StoppedError("stopped between two batches")
            self.rebuild.figures.waiting_since = batch.first_commit_time()
            self.rebuild.wait_for(batches[number:])
            progress.begin(number, len(batch.topics()))
            self.rebuild.apply(batch)
        self.rebuild.figures.waiting_since = None
        progress.read(())
        self.rebuild.wait_for(())
        self._waiting = [one for one in self._waiting if one.offset > self.manifest.marker]
        if read.error is not None:
            raise read.error
        self.release()
        self.rebuild.hold(None)

    def _check_marker_topic(self) -> None:
        """Detect a recreated marker topic, whose offsets mean something else.

        Raises:
            TableTransientError: it was recreated or deleted; the query has to be restarted.
            TransientConsumerError: the broker does not answer.
        """
        state = self._topics.describe([self._topic]).get(self._topic)
        if state is None or state.id != self.manifest.marker_topic_id:
            raise TableTransientError(f"topic {self._topic} is gone, or was recreated")

    def _trusted(self, read: Iterable[MarkerRecord]) -> Iterator[Marker | Copy]:
        refused: list[Refused] = []
        for one in self._witness.judge(read):
            if isinstance(one, Refused):
                refused.append(one)
            else:
                yield one
        self.rebuild.figures.refused += len(refused)
        for line in warnings(self.name, refused, self._witness.withdrawn):
            _log.warning("%s", line)
        self._witness.withdrawn.clear()


def _of_markers(error: ConsumerError) -> ConsumerError:
    """Treat a marker that exceeds the memory as permanent: a retry would fail the same way."""
    if isinstance(error, MemoryShortError):
        return ContractError(error.message, hint=error.hint)
    return error
