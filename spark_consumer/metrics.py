"""Metrics by subscription for Prometheus, and health of the job, over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from schemas.topic_names import topic_identifier
from spark_consumer.bounded_http import BoundedServer, answering
from spark_consumer.cut_times import CutTimes, OnCut, Step
from spark_consumer.display import as_label, shown
from spark_consumer.errors import SettingsError
from spark_consumer.progress import Progress

__all__ = ["PHASES", "Figures", "Pulse", "exposition", "health", "readiness", "serve"]

_CONTENT: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "pgsluice_consumer_"
PHASES: Final = ("stream", "plan", "read", "apply", "history", "manifest", "maintenance")
_STALE_S: Final = 300.0
"""Seconds without activity after which a job is considered hung: a step takes less."""


@dataclass(slots=True)
class Figures:
    """Figures of one subscription in the job.

    Attributes:
        end_lsn: LSN until which all tables that are not held are complete.
        commit_time: The source's commit time at `end_lsn`, microseconds since 1970; None if not
            known.
        records: Number of records applied since the start.
        cuts: Number of cuts reached since the start.
        skipped: Number of keys whose UPDATE or DELETE matched no row, summed over batches.
        tables_held: Number of tables that the job holds now.
        waiting_since: Commit time of the oldest marker that has been read and is not applied,
            microseconds since 1970; None if there is none.
        unread_markers: Number of unread markers in the topic, by the last progress report.
        held: Reason for which the subscription is not read; None while it is.
        refused: Number of markers skipped since the start; the log has the reasons.
        tables: By table, commit time of the oldest change that it lacks, microseconds since 1970;
            None if it lacks none.
        seconds: Seconds spent since the start, by phase: stream (Spark's own, around each
            micro-batch), plan, read (records, by the driver), apply, history, manifest,
            maintenance.
        seen_at: Time of the last activity of the query or of a step of the job, in seconds of the
            monotonic clock; None before the first.
        progress: Progress through the cuts that have been read.
        on_cut: Receiver of the times of each cut; None where nobody wants them.
    """

    end_lsn: int = 0
    commit_time: int | None = None
    records: int = 0
    cuts: int = 0
    skipped: int = 0
    tables_held: int = 0
    waiting_since: int | None = None
    unread_markers: int = 0
    held: str | None = None
    refused: int = 0
    tables: Mapping[str, int | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    seen_at: float | None = None
    progress: Progress = field(default_factory=Progress)
    on_cut: OnCut | None = None
    _steps: list[Step] | None = None

    def see(self) -> None:
        """Record activity of the query, or of a step of the job."""
        self.seen_at = time.monotonic()

    @property
    def silence(self) -> float | None:
        """Seconds since the last activity; None before the first one."""
        return None if self.seen_at is None else time.monotonic() - self.seen_at

    @property
    def lag(self) -> float:
        """Seconds since the source committed the oldest unapplied marker; 0 if there is none.

        While the subscription is held, unread markers are unknown: since the last applied commit.
        """
        since = self.waiting_since
        if since is None and self.held is not None:
            since = self.commit_time
        return _age(since)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        self.see()
        begun = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self.spend(name, ended - begun)
            if self._steps is not None and name != "apply":  # its steps are those of the tables
                self._steps.append(Step(name, "", begun, ended))

    @contextmanager
    def table(self, name: str) -> Iterator[None]:
        """Note the times in which a table is written; any thread may do so."""
        begun = time.monotonic()
        try:
            with self.progress.table(name):
                yield
        finally:
            if (steps := self._steps) is not None:
                steps.append(Step("apply", name, begun, time.monotonic()))

    @contextmanager
    def cut(self, end_lsn: int, records: int) -> Iterator[None]:
        """Report the times of a cut to `on_cut`, failed or not."""
        if self.on_cut is None:
            yield
            return
        steps: list[Step] = []
        self._steps = steps
        begun, error = time.monotonic(), ""
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._steps = None
            self.on_cut(CutTimes(end_lsn, records, begun, time.monotonic(), steps, error))

    def spend(self, name: str, seconds: float) -> None:
        """Add time to a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.see()


def _age(since: int | None) -> float:
    """Return the seconds since a time in microseconds since 1970; 0 for none."""
    return 0.0 if since is None else max(0.0, time.time() - since / 1_000_000)


class Pulse:
    """Heartbeat of the job's loop, which any thread may read.

    Attributes:
        at: Time of the loop's last round, in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self.at = time.monotonic()

    def beat(self) -> None:
        """Record a round of the loop."""
        self.at = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the loop's last round."""
        return time.monotonic() - self.at


def health(pulse: Pulse, subscriptions: Mapping[str, Figures]) -> str | None:
    """Return the reason for which the job must be restarted, or None while it is active."""
    seen = (figures.silence for figures in subscriptions.values())
    age = min([pulse.age, *(silence for silence in seen if silence is not None)])
    return f"nothing has been seen of the job for {age:.0f} s" if age > _STALE_S else None


def readiness(pulse: Pulse, subscriptions: Mapping[str, Figures]) -> str | None:
    """Return what keeps the job from being ready, or None while all subscriptions are read."""
    if (why := health(pulse, subscriptions)) is not None:
        return why
    for name, figures in subscriptions.items():
        if figures.held is not None:
            return f"subscription {name} is held: {figures.held}"
        if figures.silence is None:
            return f"subscription {name} is not read yet"
        if figures.silence > _STALE_S:
            return f"nothing has been seen of subscription {name} for {figures.silence:.0f} s"
    return None


@dataclass(frozen=True, slots=True)
class _Metric:
    """A metric that has one value for each subscription.

    Attributes:
        name: Name, without the prefix of all.
        kind: Type in Prometheus: gauge or counter.
        text: Line of help.
        value: Function from a subscription's figures to the value; None where it is not known.
    """

    name: str
    kind: str
    text: str
    value: Callable[[Figures], float | None]


_METRICS: Final = (
    _Metric(
        "end_lsn",
        "gauge",
        "Position in the source's WAL up to which all tables are complete.",
        lambda figures: figures.end_lsn,
    ),
    _Metric(
        "commit_timestamp_seconds",
        "gauge",
        "When the source committed the last transaction applied, in seconds since 1970.",
        lambda figures: None if figures.commit_time is None else figures.commit_time / 1_000_000,
    ),
    _Metric(
        "records_total",
        "counter",
        "Number of records applied to tables since the start.",
        lambda figures: figures.records,
    ),
    _Metric(
        "cuts_total",
        "counter",
        "Number of cuts, states of all tables at one position, since the start.",
        lambda figures: figures.cuts,
    ),
    _Metric(
        "skipped_total",
        "counter",
        "Number of keys whose UPDATE or DELETE found no row, counted once for each batch.",
        lambda figures: figures.skipped,
    ),
    _Metric(
        "waiting_records",
        "gauge",
        "Number of records that were announced and are in no table yet.",
        lambda figures: figures.progress.waiting_records,
    ),
    _Metric(
        "applying_tables",
        "gauge",
        "Number of tables that the job is writing to now.",
        lambda figures: figures.progress.running_tables,
    ),
    _Metric(
        "tables_held",
        "gauge",
        "Number of tables that the job holds; the log says why.",
        lambda figures: figures.tables_held,
    ),
    _Metric(
        "subscription_held",
        "gauge",
        "1 while nothing of the subscription is read; the log says why.",
        lambda figures: int(figures.held is not None),
    ),
    _Metric(
        "lag_seconds",
        "gauge",
        "Seconds since the source committed the oldest change to be applied.",
        lambda figures: round(figures.lag, 3),
    ),
    _Metric(
        "unread_markers",
        "gauge",
        "Number of markers in the topic that have not been read.",
        lambda figures: figures.unread_markers,
    ),
    _Metric(
        "markers_refused_total",
        "counter",
        "Number of markers that were not followed since the start.",
        lambda figures: figures.refused,
    ),
    _Metric(
        "silent_seconds",
        "gauge",
        "Seconds since the subscription was last seen at work.",
        lambda figures: None if figures.silence is None else round(figures.silence, 3),
    ),
)


def exposition(subscriptions: dict[str, Figures]) -> str:
    """Return the figures in Prometheus' text format."""
    lines = []
    for metric in _METRICS:
        lines += _header(metric.name, metric.kind, metric.text)
        for subscription, figures in subscriptions.items():
            value = metric.value(figures)
            if value is not None:
                lines.append(f"{_sample(metric.name, subscription=subscription)} {value}")
    lines += _header(
        "table_lag_seconds",
        "gauge",
        "Seconds since the source committed the oldest change that a table lacks.",
    )
    for subscription, figures in subscriptions.items():
        for table, since in figures.tables.items():
            of_table = {"subscription": subscription, "table": topic_identifier(table)}
            lines.append(f"{_sample('table_lag_seconds', **of_table)} {round(_age(since), 3)}")
    lines += _header(
        "phase_seconds_total",
        "counter",
        "Seconds that the job has spent since the start, by phase of its work.",
    )
    for subscription, figures in subscriptions.items():
        for phase, seconds in sorted(figures.seconds.items()):
            of_phase = {"subscription": subscription, "phase": phase}
            lines.append(f"{_sample('phase_seconds_total', **of_phase)} {seconds:.3f}")
    return "\n".join(lines) + "\n"


def _header(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {_PREFIX}{name} {text}", f"# TYPE {_PREFIX}{name} {kind}"]


def _sample(name: str, **labels: str) -> str:
    named = ",".join(f'{label}="{as_label(value)}"' for label, value in labels.items())
    return f"{_PREFIX}{name}{{{named}}}"


@contextmanager
def serve(
    listen: str | None, hosts: Collection[str], subscriptions: dict[str, Figures], pulse: Pulse
) -> Iterator[int | None]:
    """Answer ``GET`` of ``/metrics``, ``/healthz`` and ``/readyz`` while the block runs.

    Args:
        listen: Address as ``host:port``; port 0 is any free one. None to serve nothing.
        hosts: Names under which requests are answered, beside that of `listen`.
        subscriptions: Figures by subscription; they may change meanwhile.
        pulse: Heartbeat of the job's loop.

    Returns:
        The port; None when nothing is served.

    Raises:
        SettingsError: `listen` cannot be used.
    """
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")

    def answer(path: str) -> tuple[int, str]:
        match path:
            case "/metrics":
                return 200, exposition(subscriptions)
            case "/healthz":
                return _verdict(health(pulse, subscriptions))
            case "/readyz":
                return _verdict(readiness(pulse, subscriptions))
        return 404, "see /metrics, /healthz and /readyz\n"

    try:
        handler = answering(answer, _CONTENT, {host, *hosts})
        server = BoundedServer((host, int(port)), handler)
    except (ValueError, OSError) as error:
        raise SettingsError(f"metrics_listen: {listen!r} cannot be used: {error}") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _verdict(why_not: str | None) -> tuple[int, str]:
    return (200, "ok\n") if why_not is None else (503, f"{shown(why_not)}\n")
