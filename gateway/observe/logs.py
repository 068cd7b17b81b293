"""Log lines: one event per line, as text or JSON.

An event is a constant lower-case message with fields. Neither may contain a column value or a DSN.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from gateway.core.display import lines_shown, shown
from gateway.core.errors import UnfitKind
from gateway.observe.counters import Counters

__all__ = ["LogFormat", "event", "report_ignored", "report_quarantined", "set_up_logging"]

LogFormat: TypeAlias = Literal["text", "json"]
_NOISY: Final = ("py4j", "httpx", "httpx2", "httpcore", "httpcore2")


def event(logger: logging.Logger, level: int, message: str, **fields: object) -> None:
    """Log one event with its fields."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"fields": fields})


def report_quarantined(
    logger: logging.Logger, counters: Counters, changes: Mapping[tuple[str, UnfitKind], int]
) -> None:
    """Count records of the error topic, by table and kind, and log one warning for each pair."""
    for (table, kind), records in changes.items():
        counters.quarantined[table, kind] = counters.quarantined.get((table, kind), 0) + records
        event(
            logger,
            logging.WARNING,
            "changes that cannot be published are in the error topic instead; the subscriptions "
            "go on without them",
            relation=table,
            kind=kind,
            records=records,
        )


def report_ignored(logger: logging.Logger, counters: Counters, messages: Mapping[Any, int]) -> None:
    """Count rejected DDL messages, by reason, with a warning at the first and each power of ten.

    Any role can write any number of them, so that a warning for each would flood the log.
    """
    for reason, number in messages.items():
        before = counters.ignored.get(reason, 0)
        counters.ignored[reason] = before + number
        if len(str(before + number)) > len(str(before)) or before == 0:
            event(
                logger,
                logging.WARNING,
                "DDL message ignored: not written by the event triggers, or unreadable",
                reason=reason,
                messages=before + number,
            )


class _FieldFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z info  gateway.runtime.daemon: slot created slot=pgsluice``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S%z")

    def format(self, record: logging.LogRecord) -> str:
        line = lines_shown(super().format(record))
        fields: dict[str, object] = getattr(record, "fields", {})
        return line + "".join(f" {name}={_quote(value)}" for name, value in fields.items())


class _JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``message``, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return shown(json.dumps(line, default=str, ensure_ascii=False))


def _quote(value: object) -> str:
    text = str(value)
    return shown(json.dumps(text) if not text or any(c in text for c in ' \n\t"=') else text)


def set_up_logging(*, verbose: bool = False, log_format: LogFormat = "text") -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _FieldFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("gateway").setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
