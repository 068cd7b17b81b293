"""What the daemon says of itself: log lines with fields, and counters.

One event per line: a lower-case constant, then ``name=value`` fields; never a column value, never a
DSN. Counters are plain attributes, incremented per batch and not per row.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import UnfitKind

__all__ = ["Counters", "event", "report_quarantined", "set_up_logging"]


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    frames: int = 0
    transactions: int = 0
    records: int = 0
    copied_rows: int = 0
    durable_lsn: int = 0
    lost_values: int = 0
    quarantined: int = 0


def event(logger: logging.Logger, level: int, message: str, **fields: object) -> None:
    """Log one event with its fields."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"fields": fields})


def report_quarantined(
    logger: logging.Logger, counters: Counters, changes: Mapping[tuple[str, UnfitKind], int]
) -> None:
    """Count the records for the error topic, by table and kind, and warn once for each."""
    for (table, kind), records in changes.items():
        counters.quarantined += records
        event(
            logger,
            logging.WARNING,
            "changes that cannot be published are in the error topic instead; the subscriptions "
            "go on without them",
            relation=table,
            kind=kind,
            records=records,
        )


class _FieldFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z info  gateway.runtime.daemon: slot created slot=pgsluice``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S%z")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        fields: dict[str, object] = getattr(record, "fields", {})
        return line + "".join(f" {name}={_quote(value)}" for name, value in fields.items())


def _quote(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in text for c in ' \n\t"=') else text


def set_up_logging(*, verbose: bool = False) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FieldFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("gateway").setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("py4j", "httpx", "httpx2", "httpcore", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
