"""Repeated attempts to add detachable partitions to the gateway's own publications.

A partition that is locked, or that only its owner may add, is left out when a plan comes into
force; `gateway.source.provisioning.detachable_partitions` says what that costs.
"""

from __future__ import annotations

import logging
import time
from typing import Final

import psycopg

from gateway.definitions.model import Plan
from gateway.observe import event
from gateway.source.provisioning.detachable_partitions import MissingPartitions, add_partitions

__all__ = ["PartitionRetries"]

_LOG: Final = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 3600.0
_REASONS: Final = 3
_LACK: Final = "the gateway's publications lack partitions; changes are lost if one is detached"


class PartitionRetries:
    """Schedule of the attempts for one plan.

    While the gateway can add some of them itself, each call is an attempt. When only the owner's
    part is left, the attempts are further and further apart. They end when nothing is missing.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._missing: MissingPartitions | None = None  # not known before the first attempt
        self._pause_s = 0.0
        self._next_at = 0.0

    def add_if_due(self, connection: psycopg.Connection) -> None:
        """Add what can be added, and log what is missing.

        Raises:
            FatalError, TransientError: as `add_partitions`.
        """
        before = self._missing
        if before == MissingPartitions() or time.monotonic() < self._next_at:
            return
        done, missing = add_partitions(connection, self._plan)
        for line in done:
            event(_LOG, logging.INFO, "publication", detail=line)
        _log_missing(before, missing)
        self._missing, self._pause_s = missing, self._pause_after(missing)
        self._next_at = time.monotonic() + self._pause_s

    def _pause_after(self, missing: MissingPartitions) -> float:
        if missing.by_gateway:
            return 0.0
        return min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)


def _log_missing(before: MissingPartitions | None, missing: MissingPartitions) -> None:
    if missing.by_owner and (before is None or missing.by_owner != before.by_owner):
        event(
            _LOG,
            logging.WARNING,
            _LACK,
            partitions=missing.others,
            hint=f"{missing.who} what pgsluice check --sql prints",
            **({"refused": "; ".join(missing.reasons[:_REASONS])} if missing.reasons else {}),
        )
    elif missing.by_gateway and before is None:
        event(_LOG, logging.INFO, _LACK, hint="they are locked: the gateway tries again")
