"""What the job tells Prometheus: counters and gauges by subscription, over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from spark_consumer.errors import SettingsError

__all__ = ["Figures", "exposition", "serve"]

_CONTENT: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Figures:
    """What is known of one subscription's part of the job.

    Attributes:
        end_lsn: Up to where the tables are, but for those that are set aside.
        commit_time: The source's commit time then, microseconds since 1970; None when not known.
        records: Applied since the start.
        cuts: Applied since the start.
        skipped: For how many keys, batch by batch, an UPDATE or DELETE has found no row.
        tables_aside: How many tables are set aside now.
        waiting_since: Commit time of the oldest marker that has been read and is not applied,
            microseconds since 1970; None when there is none.
        markers_behind: How many markers the topic had that had not been read, when last looked.
        seconds: Spent since the start, by phase: stream (Spark's own, around each micro-batch),
            plan, apply, manifest, maintenance.
    """

    end_lsn: int = 0
    commit_time: int | None = None
    records: int = 0
    cuts: int = 0
    skipped: int = 0
    tables_aside: int = 0
    waiting_since: int | None = None
    markers_behind: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def lag(self) -> float:
        """Seconds since the source committed what waits to be applied; 0 when nothing does."""
        if self.waiting_since is None:
            return 0.0
        return max(0.0, time.time() - self.waiting_since / 1_000_000)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time spent inside for a phase."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.spend(name, time.monotonic() - begun)

    def spend(self, name: str, seconds: float) -> None:
        """Count time for a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


_METRICS: Final = (
    ("end_lsn", "gauge", "LSN up to which the tables are, but for those that are set aside."),
    ("commit_timestamp_seconds", "gauge", "Commit time at the source of what was applied last."),
    ("records_total", "counter", "Records applied since the start."),
    ("cuts_total", "counter", "Cuts applied since the start."),
    ("skipped_total", "counter", "Keys whose UPDATE or DELETE found no row, batch by batch."),
    ("tables_aside", "gauge", "Tables that are set aside."),
    ("lag_seconds", "gauge", "Since the source committed what waits to be applied."),
    ("markers_behind", "gauge", "Markers in the topic that have not been read."),
)


def exposition(subscriptions: dict[str, Figures]) -> str:
    """The figures in Prometheus' text format."""
    lines = []
    for name, kind, text in _METRICS:
        lines += [f"# HELP {_full(name)} {text}", f"# TYPE {_full(name)} {kind}"]
        for subscription, figures in subscriptions.items():
            value = _value(name, figures)
            if value is not None:
                lines.append(f'{_full(name)}{{subscription="{_label(subscription)}"}} {value}')
    spent = _full("phase_seconds_total")
    lines += [f"# HELP {spent} Seconds spent, by phase.", f"# TYPE {spent} counter"]
    for subscription, figures in subscriptions.items():
        for phase, seconds in sorted(figures.seconds.items()):
            labels = f'subscription="{_label(subscription)}",phase="{phase}"'
            lines.append(f"{spent}{{{labels}}} {seconds:.3f}")
    return "\n".join(lines) + "\n"


def _full(name: str) -> str:
    return f"pgsluice_consumer_{name}"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _value(name: str, figures: Figures) -> int | float | None:
    match name:
        case "end_lsn":
            return figures.end_lsn
        case "commit_timestamp_seconds":
            known = figures.commit_time
            return None if known is None else known / 1_000_000
        case "records_total":
            return figures.records
        case "cuts_total":
            return figures.cuts
        case "skipped_total":
            return figures.skipped
        case "lag_seconds":
            return round(figures.lag, 3)
        case "markers_behind":
            return figures.markers_behind
    return figures.tables_aside


@contextmanager
def serve(listen: str | None, subscriptions: dict[str, Figures]) -> Iterator[int | None]:
    """Answer ``GET /metrics`` while the block runs.

    Args:
        listen: ``host:port``; port 0 takes a free one. None to serve nothing.
        subscriptions: the figures; they may change meanwhile.

    Returns:
        The port; None when nothing is served.

    Raises:
        SettingsError: `listen` cannot be used.
    """
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(subscriptions))
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


def _handler(subscriptions: dict[str, Figures]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path.partition("?")[0] == "/metrics"
            body = exposition(subscriptions).encode() if known else b"see /metrics\n"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", _CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing; a scrape is not news."""

    return Handler
