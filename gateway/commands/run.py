"""``pgsluice run``: the daemon."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from gateway.commands.signals import end_in_time, reload_on_signal, stop_on_signals
from gateway.config import Settings
from gateway.core.lsn import Lsn
from gateway.monitor.notify import Notifier
from gateway.monitor.watch import Watch
from gateway.observe import RecentErrors, event
from gateway.runtime.copy.jobs import CopyStanding
from gateway.runtime.daemon import Daemon
from gateway.runtime.loop.memory import give_back_large_blocks
from gateway.runtime.planning.preflight import local_refusals

if TYPE_CHECKING:
    from gateway.monitor.telemetry import Telemetry

__all__ = ["run"]

_LOG: Final = logging.getLogger(__name__)
_BAR_WIDTH: Final = 30


def run(settings: Settings, *, endpos: Lsn | None) -> int:
    """Run until SIGTERM, SIGINT or `endpos`; return the exit code 0. SIGHUP reloads definitions.

    Raises:
        ConfigError: it cannot start on this machine; nothing was made.
        TransientError: gave up after ``limits.retry_for_s``.
        FatalError: a person must act.
    """
    for _, error in local_refusals(settings):
        raise error
    give_back_large_blocks()
    recent_errors = RecentErrors()
    logging.getLogger().addHandler(recent_errors)
    notifier = Notifier()
    with (
        stop_on_signals() as flag,
        reload_on_signal() as reload,
        end_in_time(flag, settings.limits.shutdown_timeout_s),
        _telemetry(settings) as telemetry,
    ):
        daemon = Daemon(
            settings,
            endpos=endpos,
            stopping=flag.is_set,
            pause=flag.wait,
            reload=reload.pop,
            report_copy=_show_bar if sys.stderr.isatty() else _log_copy,
            on_batch=None if telemetry is None else telemetry.trace_batches(),
        )
        shows = settings.http.listen is not None or telemetry is not None
        watch = Watch(settings, daemon.counters, notifier, server=shows)
        if telemetry is not None:
            telemetry.send_metrics(watch, recent_errors)
        with (
            _served(settings, watch, recent_errors) as port,
            watch,
            _lineage(settings, watch),
        ):
            if port is not None:
                event(_LOG, logging.INFO, "metrics, health and status are served", port=port)
            daemon.run()
    return 0


def _served(
    settings: Settings, watch: Watch, recent_errors: RecentErrors
) -> AbstractContextManager[int | None]:
    if settings.http.listen is None:
        return nullcontext()
    # Here: without [http] a start need not load the server and prometheus_client.
    from gateway.monitor.http import serve

    return serve(settings, watch, recent_errors)


def _telemetry(settings: Settings) -> AbstractContextManager[Telemetry | None]:
    if not settings.monitor.opentelemetry:
        return nullcontext()
    # Here: its packages need not be installed.
    from gateway.monitor.telemetry import Telemetry

    return Telemetry(settings)


def _lineage(settings: Settings, watch: Watch) -> AbstractContextManager[None]:
    if not settings.monitor.openlineage:
        return nullcontext()
    # Here, for the same reason.
    from gateway.monitor.lineage import sending_lineage

    return sending_lineage(settings, watch)


def _log_copy(standing: CopyStanding) -> None:
    if standing.done:
        return  # "table copied" says so, with the numbers
    left = standing.seconds_left
    event(
        _LOG,
        logging.INFO,
        "copying",
        subscriptions=",".join(standing.subscriptions),
        relation=standing.table,
        rows=standing.rows,
        estimate="unknown" if standing.estimate is None else standing.estimate,
        rows_per_second=round(standing.rows_per_second),
        seconds_left="unknown" if left is None else left,
    )


def _show_bar(standing: CopyStanding) -> None:
    """Draw one line in place; stale statistics make the estimate a guess."""
    rows, estimate = standing.rows, standing.estimate
    share = 1.0 if standing.done else min(rows / estimate, 1.0) if estimate else 0.0
    filled = round(share * _BAR_WIDTH)
    bar = "#" * filled + "." * (_BAR_WIDTH - filled)
    left = "" if standing.seconds_left is None else f", {standing.seconds_left} s left"
    end = "\n" if standing.done else left
    rate = f"{standing.rows_per_second:.0f} rows/s"
    sys.stderr.write(f"\r\x1b[Kcopying {standing.table} [{bar}] {rows} rows, {rate}{end}")
    sys.stderr.flush()
