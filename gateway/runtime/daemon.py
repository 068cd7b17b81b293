"""The daemon: attempts, one after the other, until it is stopped.

Every attempt (`gateway.runtime.lifecycle.attempt`) begins from nothing but the configuration, the
server and the watermark in Kafka, so that a retry is the same as a restart. Transient errors
are retried with growing pauses, until nothing has worked for ``limits.retry_for_s``; so is refused
access, once the gateway has streamed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from gateway.config import Settings
from gateway.core.errors import (
    AccessError,
    GatewayError,
    LostRecordsError,
    TransientError,
)
from gateway.core.lsn import Lsn
from gateway.core.shortage import shortage
from gateway.observe import Counters, OnBatch, event
from gateway.routing.ports import UnexpectedFilterError
from gateway.runtime.copy.jobs import CopyReport, CopyStanding
from gateway.runtime.lifecycle.attempt import Attempt
from gateway.runtime.lifecycle.backoff import Retries
from gateway.runtime.lifecycle.leadership import StoppedWaiting
from gateway.runtime.lifecycle.process import Carried, Process
from gateway.runtime.lifecycle.standby import Standby
from gateway.runtime.loop.memory import clear_up
from gateway.runtime.loop.pipeline import Outcome
from gateway.runtime.reload.held_retries import HeldLooks
from gateway.source.provisioning.lost_members import MembersWatch

__all__ = ["Daemon"]

_LOG: Final = logging.getLogger(__name__)
_CLOSE_S: Final = 1.0
_GRACE: Final = 0.8
"""Share of ``limits.shutdown_timeout_s`` for what is complete; the rest is for closing."""
_NOT_THE_END: Final = frozenset({Outcome.REACHED_SWITCH, Outcome.START_AGAIN})
"""Outcomes of an attempt after which another one follows at once."""


class Daemon:
    """Runs the gateway.

    Args:
        stopping: Called often; True ends the run in good order.
        pause: Waits for a number of seconds, or until `stopping` may have changed.
        reload: Returns True once after a request to read the definitions again.
        report_copy: Called with the progress of each copy.
        on_batch: Called at the end of each batch that has records; None: nobody wants to know.

    Attributes:
        counters: Counters, which others only read as they are posted.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        endpos: Lsn | None,
        stopping: Callable[[], bool],
        pause: Callable[[float], None],
        report_copy: CopyReport,
        reload: Callable[[], bool] = lambda: False,
        on_batch: OnBatch | None = None,
    ) -> None:
        self._settings = settings
        self._asked_to_stop = stopping
        self._stop_by: float | None = None
        self.counters = Counters()
        self._report_copy = report_copy
        self._process = Process(
            settings,
            self.counters,
            endpos=endpos,
            stopping=self._stopping,
            pause=pause,
            reload=reload,
            report_copy=self._note_copy,
            close_timeout_s=self._close_timeout_s,
            time_is_up=self._time_is_up,
            standby=Standby(settings, self.counters, reload),
            held_looks=HeldLooks(settings.definitions.watch_interval_s),
            members=MembersWatch(settings.source.slot),
            on_batch=on_batch,
        )
        self._carried = Carried()

    def run(self) -> Outcome:
        """Run until stopped or at endpos; retry after transient errors.

        Raises:
            TransientError: nothing has worked for ``limits.retry_for_s``.
            FatalError: a person must act.
        """
        for warning in self._settings.warnings:
            event(_LOG, logging.WARNING, "doubtful setting", detail=warning)
        try:
            return self._attempts()
        finally:
            self.counters.enter("stopped")

    def _attempts(self) -> Outcome:
        retries = Retries(self._settings.limits.retry_for_s, self._settings.source.slot)
        tried = False
        while not self._stopping():
            before = self.counters.durable_lsn
            attempt = Attempt(self._process, self._carried)
            if tried:
                clear_up()  # cycles left by the attempt before
            tried = True
            try:
                outcome = attempt.run()
                if outcome not in _NOT_THE_END:
                    return outcome
                self._carried.was_down = attempt.streaming_since is None
                retries.reset()
            except StoppedWaiting:
                break
            except (GatewayError, OSError, RuntimeError) as failure:
                error = self._retryable(failure)
                if error is None:
                    raise
                if self._stopping():
                    break  # nothing uncommitted was acknowledged
                self._carried.was_down = True
                self._carried.ask_server |= isinstance(error, UnexpectedFilterError)
                if isinstance(error, LostRecordsError):
                    self._carried.lost |= error.topics
                self._carried.note_hidden(error)
                self.counters.count_error(error)
                pause_s = retries.after(
                    error,
                    now=time.monotonic(),
                    worked=self.counters.durable_lsn > before,
                    stood_by=attempt.stood_by,
                    streaming_since=attempt.streaming_since,
                )
                self.counters.set_away(error.message)
                self.counters.set_denied(error)
                self.counters.enter("retrying")
                event(_LOG, logging.WARNING, "trying again", in_s=pause_s, error=error.message)
                self._process.pause(pause_s)
        return Outcome.STOPPED

    def _retryable(self, failure: Exception) -> GatewayError | None:
        """Return the error after which another attempt is made, or None.

        A refusal of access counts as transient once a stream has run: the right was there, may be
        granted again, and until then the status says what is missing.
        """
        if isinstance(failure, AccessError) and self._carried.has_streamed:
            return failure
        return failure if isinstance(failure, TransientError) else shortage(failure)

    def _note_copy(self, standing: CopyStanding) -> None:
        """Keep a table's estimated size for the metrics, and pass the progress on."""
        if standing.estimate is not None:
            for subscription in standing.subscriptions:
                of_table = subscription, str(standing.table)
                self.counters.estimates[of_table] = standing.estimate
        self._report_copy(standing)

    def _stopping(self) -> bool:
        if self._stop_by is None and self._asked_to_stop():
            self._stop_by = time.monotonic() + _GRACE * self._settings.limits.shutdown_timeout_s
        return self._stop_by is not None

    def _time_is_up(self) -> bool:
        return self._stop_by is not None and time.monotonic() >= self._stop_by

    def _close_timeout_s(self) -> float:
        """Return the seconds left for an open Kafka transaction during the shutdown."""
        if self._stop_by is None:
            return self._settings.limits.shutdown_timeout_s
        return max(_CLOSE_S, self._stop_by - time.monotonic())
