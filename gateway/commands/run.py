"""``pgsluice run``: the daemon."""

from __future__ import annotations

import logging
import sys
from typing import Final

from gateway.commands.stopping import reload_on_signal, stop_on_signals
from gateway.config import Settings
from gateway.daemon import Daemon
from gateway.definitions.model import Table
from gateway.lsn import Lsn
from gateway.observe import event

__all__ = ["run"]

_LOG: Final = logging.getLogger(__name__)
_BAR_WIDTH: Final = 30


def run(settings: Settings, *, endpos: Lsn | None) -> int:
    """Run until SIGTERM, SIGINT or `endpos`; return the exit code 0. SIGHUP reloads definitions.

    Raises:
        TransientError: gave up after ``limits.retry_for_s``.
        FatalError: a person must act.
    """
    with stop_on_signals() as flag, reload_on_signal() as reload:
        Daemon(
            settings,
            endpos=endpos,
            stopping=flag.is_set,
            pause=flag.wait,
            reload=reload.take,
            report_copy=_show_bar if sys.stderr.isatty() else _log_copy,
        ).run()
    return 0


def _log_copy(subscription: str, table: Table, rows: int, estimate: int | None) -> None:
    event(
        _LOG,
        logging.INFO,
        "copying",
        subscription=subscription,
        relation=table,
        rows=rows,
        estimate="unknown" if estimate is None else estimate,
    )


def _show_bar(subscription: str, table: Table, rows: int, estimate: int | None) -> None:
    """Draw one line in place; a filter or stale statistics make the estimate a guess."""
    share = min(rows / estimate, 1.0) if estimate else 0.0
    done = round(share * _BAR_WIDTH)
    bar = "#" * done + "." * (_BAR_WIDTH - done)
    end = "\n" if rows == estimate else ""
    sys.stderr.write(f"\r\x1b[Kcopying {subscription}: {table} [{bar}] {rows} rows{end}")
    sys.stderr.flush()
