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
        ProcessCollector(namespace="pgsluice_gateway", registry=self._registry)

    def text(self) -> bytes:
        """Return everything, in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Describe nothing at registration; see `Collector`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield everything; see `Collector`."""
        return map(_harmless, self._collect())

    def _collect(self) -> Iterator[Metric]:
        version = _gauge("info", "Always 1; the label is the version.", ("version",))
        version.add_metric([package_version()], 1)
        yield version
        logged = _counter("log_events", "Warnings and errors in the log.", ("level", "source"))
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
    role = _gauge("role", "1 for the current role.", ("role", "slot"))
    mine = _ROLES.get(figures.phase, "none")
    for name in ("leader", "standby", "none"):
        role.add_metric([name, slot], name == mine)
    yield role
    yield _plain(
        "definitions_refused_since_seconds",
        "Time when changed definitions were refused, in seconds since 1970; 0 if they are not.",
        0 if figures.refusal is None else figures.refusal.since_ms / 1000,
    )
    yield _plain(
        "kafka_away_since_seconds",
        "Start of an outage of Kafka while streaming, in seconds since 1970; 0 if there is none.",
        figures.away_since if figures.phase == "streaming" else 0,
    )
    yield _plain(
        "takeover_refused",
        "1 while a standby does not take over, because that would change what is published.",
        bool(figures.takeover_refused),
    )
    yield _plain_counter("frames", "Messages received from the server.", figures.frames)
    yield _plain_counter("transactions", "Source transactions routed.", figures.transactions)
    yield _plain_counter("records", "Records produced, markers included.", figures.records)
    yield _plain_counter("copied_rows", "Copied rows turned into records.", figures.copied_rows)
    yield _plain_counter(
        "server_evaluated_rows",
        "Rows whose row filter a server evaluated.",
        figures.evaluated_rows,
    )
    yield _plain_counter(
        "lost_values", "Rows sent with NULL for an unchanged large value.", figures.lost_values
    )
    yield _plain_counter(
        "passed_over_records",
        "Skipped records of the progress topic, written by no gateway.",
        figures.passed_over,
    )
    quarantined = _counter("quarantined_records", "Records in the error topic.", ("table", "kind"))
    kinds = get_args(UnfitKind)
    none_yet = dict.fromkeys(((table, kind) for table in tables for kind in kinds), 0)
    for labels, count in (none_yet | dict(figures.quarantined)).items():
        quarantined.add_metric(labels, count)
    yield quarantined
    ignored = _counter("ddl_messages_ignored", "DDL messages that were rejected.", ("reason",))
    for reason in REASONS:
        ignored.add_metric([reason], figures.ignored.get(reason, 0))
    yield ignored
    errors = _counter("errors", "Attempts that ended with an error.", ("kind",))
    for kind, count in (
        dict.fromkeys((*_kinds(TransientError), "AccessError"), 0) | dict(figures.errors)
    ).items():
        errors.add_metric([kind], count)
    yield errors
    yield _histogram(
        "commit_seconds",
        "Time from handing a batch to the sink until its commit.",
        figures.commit_seconds,
    )
    yield _histogram("commit_records", "Records in a Kafka transaction.", figures.commit_records)


def _kinds(error: type[Exception]) -> Iterator[str]:
    """Yield the names of an error class and of its subclasses."""
    yield error.__name__
    for kind in error.__subclasses__():
        yield from _kinds(kind)


def _of_rows(figures: Figures, tables: Sequence[tuple[str, str]]) -> Iterator[Metric]:
    rows = _counter("rows", "Changes and copied rows in Kafka.", (*_OF_TABLE, "operation"))
    of_tables = ((*table, operation) for table in tables for operation in _OPERATIONS)
    for of_rows, count in (dict.fromkeys(of_tables, 0) | dict(figures.rows)).items():
        rows.add_metric(of_rows, count)
    yield rows
    filtered = _counter(
        "filtered_rows",
        "Changes of its tables that were not published to a subscription.",
        _OF_TABLE,
    )
    for of_table, count in (dict.fromkeys(tables, 0) | dict(figures.filtered)).items():
        filtered.add_metric(of_table, count)
    yield filtered


def _of_loop(figures: Figures) -> Iterator[Metric]:
    loop = figures.loop
    lag = lag_seconds(figures, time.time())
    if loop is None or lag is None:
        return
    yield _plain("lag_seconds", "Time that the oldest change has waited.", lag)
    yield _plain("durable_lsn", "The watermark in Kafka.", loop.durable_lsn)
    yield _plain(
        "waiting_transactions", "Transactions received, not routed yet.", loop.waiting_transactions
    )
    for name, sizes, text in (
        ("buffer_bytes", loop.buffers, "Memory of transactions that are not in Kafka."),
        ("spool_bytes", loop.spools, "Disk used by data that does not fit into memory."),
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
        yield _plain("server_lsn", "End of the server's WAL.", status.server_lsn)
    if SOURCE not in status.away:
        active = slot is not None and slot.active
        lost = slot is not None and slot.lost
        yield _plain("slot_active", "1 while some process reads the slot.", active)
        yield _plain("slot_lost", "1 when the slot can never be read again.", lost)
    if status.lag_bytes is not None:
        yield _plain("lag_bytes", "WAL of the server after the watermark.", status.lag_bytes)
    if status.retained is not None:
        yield _plain("retained_wal_bytes", "WAL kept for the slot.", status.retained)
    if status.left is not None:
        yield _plain(
            "retained_wal_left_bytes",
            "WAL that fits before the slot is lost.",
            max(0, status.left),
        )
    awaited = _gauge(
        "awaited_transactions",
        "Other sessions' transactions that the gateway waits for.",
        ("task",),
    )
    for task in get_args(Task):
        awaited.add_metric([task], sum(len(w.names) for w in status.waits if w.task == task))
    yield awaited
    counts = dict.fromkeys(_STATES, 0)
    rows = _gauge("copy_rows", "Rows that a copy has read so far.", _OF_TABLE)
    sent = _gauge("copy_published_rows", "Rows of a copy that passed the filters.", _OF_TABLE)
    estimates = _gauge("copy_estimated_rows", "Estimated total rows of a copy.", _OF_TABLE)
    held = _gauge("table_held", "1 for a table that is held or missing.", (*_OF_TABLE, "state"))
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
        "subscription_held", "1 for a subscription for which nothing is published.", _OF_TABLE[:1]
    )
    for name in status.muted:
        muted.add_metric([name], 1)
    yield muted
    tables = _gauge("tables", "Tables of subscriptions, by state.", ("state",))
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
