"""Metrics in Prometheus' format, made on request from the figures that the loop has posted.

Labels name subscriptions, tables and kinds, never values, and are escaped as everywhere
(`gateway.core.display`). The tables are those of the definitions; one that is removed while the
gateway runs keeps its last value until the next start. Counters with known labels start
at 0: a series that appears with its first event has no increase, which no alert would notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.core.display import shown
from gateway.core.errors import TransientError, UnfitKind
from gateway.definitions.ddl.authentication import REASONS
from gateway.envelope.envelope import package_version
from gateway.monitor.health import lag_seconds
from gateway.monitor.status import SOURCE, Status
from gateway.observe import Figures, Histogram
from gateway.source.session.blockers import Task

__all__ = ["CONTENT_TYPE", "PREFIX", "Exposition"]

PREFIX: Final = "pgsluice_gateway_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ROLES: Final = {"streaming": "leader", "standby": "standby"}
_STATES: Final = ("pending", "copying", "ready", "held", "missing")
_OF_TABLE: Final = ("subscription", "table")
_OPERATIONS: Final = ("insert", "update", "delete", "truncate", "copy")


class Exposition(Collector):
    """Collector of everything served at ``/metrics``.

    Args:
        figures: Figures posted by the loop; None before the first.
        status: Status of slot and tables; None before the server was reached.
        recent_errors: Warnings and errors of the log, by level and source.
        slot: Slot name, which distinguishes several gateways in one job.
    """

    def __init__(
        self,
        figures: Callable[[], Figures | None],
        status: Callable[[], Status | None],
        recent_errors: Callable[[], Mapping[tuple[str, str], int]],
        slot: str,
    ) -> None:
        self._figures = figures
        self._status = status
        self._recent_errors = recent_errors
        self._slot = slot
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        ProcessCollector(namespace="pgsluice_gateway", registry=self._registry)

    def text(self) -> bytes:
        """Return everything, in Prometheus' text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterable[Metric]:
        """Return everything, as `prometheus_client` has it."""
        return self._registry.collect()

    def describe(self) -> Iterable[Metric]:
        """Describe nothing at registration; see `Collector`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield everything; see `Collector`."""
        return map(_harmless, self._collect())

    def _collect(self) -> Iterator[Metric]:
        version = _gauge(
            "info", "Always 1; the label is the version of the gateway that answers.", ("version",)
        )
        version.add_metric([package_version()], 1)
        yield version
        logged = _counter(
            "log_events",
            "Number of warnings and errors in the log since the start, by module.",
            ("level", "source"),
        )
        for labels, count in self._recent_errors().items():
            logged.add_metric(labels, count)
        yield logged
        figures, status = self._figures(), self._status()
        if figures is not None:
            tables = [(one.subscription, one.table) for one in status.tables] if status else []
            yield from _of_process(figures, self._slot, {table for _, table in tables})
            yield from _of_rows(figures, tables)
            yield from _of_loop(figures)
        if status is not None:
            yield from _of_status(status)


def _harmless(metric: Metric) -> Metric:
    """Escape the labels; of samples that become equal, keep the first.

    Names are joined by dots, so tables of different schemas can have the same name.
    """
    found: dict[tuple[str, ...], Sample] = {}
    for sample in metric.samples:
        labels = {name: shown(value) for name, value in sample.labels.items()}
        found.setdefault((sample.name, *labels.values()), sample._replace(labels=labels))
    metric.samples = list(found.values())
    return metric


def _of_process(figures: Figures, slot: str, tables: Collection[str]) -> Iterator[Metric]:
    role = _gauge(
        "role",
        "1 for the role that this gateway has now: leader, standby, or none.",
        ("role", "slot"),
    )
    mine = _ROLES.get(figures.phase, "none")
    for name in ("leader", "standby", "none"):
        role.add_metric([name, slot], name == mine)
    yield role
    yield _plain(
        "definitions_refused_since_seconds",
        "Since when changed definitions are refused, in seconds since 1970; 0 if none are refused.",
        0 if figures.refusal is None else figures.refusal.since_ms / 1000,
    )
    yield _plain(
        "kafka_away_since_seconds",
        "Since when Kafka does not answer the leader, in seconds since 1970; 0 while it answers.",
        figures.away_since if figures.phase == "streaming" else 0,
    )
    yield _plain(
        "takeover_refused",
        "1 while a standby does not take over, because that would change what is published.",
        bool(figures.takeover_refused),
    )
    yield from _of_commits(figures)
    yield _plain_counter(
        "frames",
        "Number of replication messages received from the source server since the start.",
        figures.frames,
    )
    yield _plain_counter(
        "transactions",
        "Number of transactions of the source that were turned into records since the start.",
        figures.transactions,
    )
    yield _plain_counter(
        "records",
        "Number of Kafka records made since the start, with markers and tombstones.",
        figures.records,
    )
    yield _plain_counter(
        "copied_rows",
        "Number of records made of the rows that tables already had, since the start.",
        figures.copied_rows,
    )
    yield _plain_counter(
        "server_evaluated_rows",
        "Number of rows that the source server was asked about, because of a row filter.",
        figures.evaluated_rows,
    )
    yield _plain_counter(
        "lost_values",
        "Number of rows published with NULL for a large value that the stream did not have.",
        figures.lost_values,
    )
    yield _plain_counter(
        "passed_over_records",
        "Number of records in the progress topic that were skipped, because no gateway wrote them.",
        figures.passed_over,
    )
    quarantined = _counter(
        "quarantined_records",
        "Number of changes that could not be published and are in the error topic instead.",
        ("table", "kind"),
    )
    kinds = get_args(UnfitKind)
    none_yet = dict.fromkeys(((table, kind) for table in tables for kind in kinds), 0)
    for labels, count in (none_yet | dict(figures.quarantined)).items():
        quarantined.add_metric(labels, count)
    yield quarantined
    ignored = _counter(
        "ddl_messages_ignored",
        "Number of DDL messages in the stream that were ignored, by reason.",
        ("reason",),
    )
    for reason in REASONS:
        ignored.add_metric([reason], figures.ignored.get(reason, 0))
    yield ignored
    errors = _counter(
        "errors",
        "Number of times that replication stopped with an error and began again, by error class.",
        ("kind",),
    )
    for kind, count in (
        dict.fromkeys((*_kinds(TransientError), "AccessError"), 0) | dict(figures.errors)
    ).items():
        errors.add_metric([kind], count)
    yield errors
    yield _histogram(
        "commit_seconds",
        "Time from handing a batch to the Kafka producer until its transaction is committed.",
        figures.commit_seconds,
    )
    yield _histogram(
        "commit_records",
        "Number of records in a committed Kafka transaction.",
        figures.commit_records,
    )


def _of_commits(figures: Figures) -> Iterator[Metric]:
    loop = figures.loop
    yield _plain(
        "last_commit_timestamp_seconds",
        "Time of this gateway's last commit in Kafka, in seconds since 1970; 0 before the first.",
        figures.committed_at,
    )
    if loop is not None and loop.last_change is not None:
        yield _plain(
            "last_change_timestamp_seconds",
            "When the source committed the last transaction with changes that is in Kafka, in "
            "seconds since 1970.",
            loop.last_change,
        )
    owner = _gauge(
        "owner",
        "1 while this gateway streams, as the owner of its subscriptions' topics; the labels are "
        "the identity in the markers.",
        ("system_identifier", "database", "slot"),
    )
    if figures.owner is not None:
        owner.add_metric(figures.owner, figures.phase == "streaming")
    yield owner


def _kinds(error: type[Exception]) -> Iterator[str]:
    """Yield the names of an error class and of its subclasses."""
    yield error.__name__
    for kind in error.__subclasses__():
        yield from _kinds(kind)


def _of_rows(figures: Figures, tables: Sequence[tuple[str, str]]) -> Iterator[Metric]:
    rows = _counter(
        "rows",
        "Number of changes and copied rows that are in Kafka, as each subscription takes them.",
        (*_OF_TABLE, "operation"),
    )
    of_tables = ((*table, operation) for table in tables for operation in _OPERATIONS)
    for of_rows, count in (dict.fromkeys(of_tables, 0) | dict(figures.rows)).items():
        rows.add_metric(of_rows, count)
    yield rows
    by_table = (
        (
            "filtered_rows",
            "Number of changes that filters or publications kept from a subscription.",
            figures.filtered,
        ),
        (
            "moved_rows",
            "Number of rows read because they enter or leave a subscription with another table.",
            figures.moved_rows,
        ),
    )
    for name, meaning, counts in by_table:
        counter = _counter(name, meaning, _OF_TABLE)
        for of_table, count in (dict.fromkeys(tables, 0) | dict(counts)).items():
            counter.add_metric(of_table, count)
        yield counter
    moving = {(each.subscription, each.table): each for each in figures.moving}
    now, none = time.time(), dict.fromkeys(tables, 0.0)
    for name, text, found in (
        (
            "unsettled_values",
            "Number of values and keys whose rows are still to be read, because another table has "
            "changed.",
            {of: float(each.unsettled) for of, each in moving.items()},
        ),
        (
            "moving_seconds",
            "For how many seconds rows have entered or left with another table; 0 if none do.",
            {of: max(0.0, now - (each.since or now)) for of, each in moving.items()},
        ),
    ):
        family = _gauge(name, text, _OF_TABLE)
        for of_table, value in (none | found).items():
            family.add_metric(of_table, value)
        yield family


def _of_loop(figures: Figures) -> Iterator[Metric]:
    loop = figures.loop
    lag = lag_seconds(figures, time.time())
    if loop is None or lag is None:
        return
    yield _plain(
        "lag_seconds",
        "Seconds since the source committed the oldest transaction that is not in Kafka yet.",
        lag,
    )
    yield _plain(
        "durable_lsn",
        "Position in the source's WAL up to which everything is in Kafka.",
        loop.durable_lsn,
    )
    yield _plain(
        "waiting_transactions",
        "Number of transactions that are received and wait to be turned into records.",
        loop.waiting_transactions,
    )
    for name, sizes, text in (
        (
            "buffer_bytes",
            loop.buffers,
            "Memory in bytes used by changes that are not in Kafka yet.",
        ),
        (
            "spool_bytes",
            loop.spools,
            "Disk space in bytes used by changes that do not fit into memory.",
        ),
    ):
        family = _gauge(name, text, ("buffer",))
        for buffer, size in sizes.items():
            family.add_metric([buffer], size)
        yield family


def _of_status(status: Status) -> Iterator[Metric]:
    slot = status.slot
    yield _plain(
        "access_refused",
        "1 while a server refuses the user or a certificate, or the user lacks a right required "
        "by all tables.",
        bool(status.denied),
    )
    if status.server_lsn is not None:
        yield _plain(
            "server_lsn",
            "Position up to which the source server has written its WAL.",
            status.server_lsn,
        )
    if SOURCE not in status.away:
        active = slot is not None and slot.active
        lost = slot is not None and slot.lost
        yield _plain(
            "slot_active",
            "1 while some process reads the replication slot, 0 while none does.",
            active,
        )
        yield _plain(
            "slot_lost",
            "1 when the replication slot has lost WAL and can never be read again.",
            lost,
        )
    if status.lag_bytes is not None:
        yield _plain(
            "lag_bytes",
            "WAL in bytes that the source has written and that is not in Kafka.",
            status.lag_bytes,
        )
    if status.retained is not None:
        yield _plain(
            "retained_wal_bytes",
            "WAL in bytes that the source server keeps on disk for the replication slot.",
            status.retained,
        )
    if status.left is not None:
        yield _plain(
            "retained_wal_left_bytes",
            "WAL in bytes that can still be written before the replication slot may be lost.",
            max(0, status.left),
        )
    awaited = _gauge(
        "awaited_transactions",
        "Number of transactions of other sessions that the gateway waits for, by task.",
        ("task",),
    )
    for task in get_args(Task):
        awaited.add_metric([task], sum(len(w.names) for w in status.waits if w.task == task))
    yield awaited
    counts = dict.fromkeys(_STATES, 0)
    rows = _gauge(
        "copy_rows", "Number of rows that the copy of a table has read so far.", _OF_TABLE
    )
    sent = _gauge(
        "copy_published_rows",
        "Number of rows of the copy of a table that passed the filters and were published.",
        _OF_TABLE,
    )
    estimates = _gauge(
        "copy_estimated_rows",
        "Estimated number of rows of a table that is copied, by the server's statistics.",
        _OF_TABLE,
    )
    held = _gauge(
        "table_held",
        "1 for a table that is not published, because it is held or missing.",
        (*_OF_TABLE, "state"),
    )
    for table in status.tables:
        counts[table.state] += 1
        of_table = [table.subscription, table.table]
        rows.add_metric(of_table, table.read)
        sent.add_metric(of_table, table.published)
        if table.estimate is not None:
            estimates.add_metric(of_table, table.estimate)
        if table.state in ("held", "missing"):
            held.add_metric([*of_table, table.state], 1)
    muted = _gauge(
        "subscription_held",
        "1 for a subscription for which nothing is published; /status has the reason.",
        _OF_TABLE[:1],
    )
    for name in status.muted:
        muted.add_metric([name], 1)
    yield muted
    tables = _gauge(
        "tables", "Number of tables of all subscriptions, by state of their copy.", ("state",)
    )
    for state, count in counts.items():
        tables.add_metric([state], count)
    yield from (tables, rows, sent, estimates, held)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _counter(name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _plain(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _plain_counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    buckets: list[tuple[str, float]] = []
    count = 0
    for bound, in_range in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        count += in_range
        buckets.append((str(bound), count))
    return HistogramMetricFamily(PREFIX + name, text, buckets=buckets, sum_value=histogram.total)
