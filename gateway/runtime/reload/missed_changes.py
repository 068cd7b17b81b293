"""Report of changes that are missing from the stream, because others altered the publications."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from gateway.definitions.model import Fault, Plan, TableId
from gateway.observe import event

__all__ = ["report_missed"]

_LOG: Final = logging.getLogger(__name__)


def report_missed(plan: Plan, faults: Mapping[TableId, Fault]) -> None:
    """Log each table at once: the process may end before it is committed that they are held."""
    for (subscription, oid), fault in faults.items():
        event(
            _LOG,
            logging.ERROR,
            "changes of a table are missing; it is copied again",
            subscription=subscription,
            table=str(plan.tables[oid]),
            because=fault.reason,
        )
