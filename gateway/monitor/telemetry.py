"""OpenTelemetry: a trace for each batch, and the metrics of `/metrics` by OTLP.

The spans of a batch, of which ``batch`` is the root:

    batch   |-------------------------------|   first transaction received, Kafka's commit
    queue   |-------|                           received and waiting to be routed
    route           |------------|              made into records
    commit                |-----------------|   with the producer, until Kafka's commit

This module is imported only where ``[monitor] opentelemetry`` is on. A span has numbers and the
slot's name, never a value of a row. The loop only makes the spans: they wait in a queue of
OpenTelemetry's SDK, which drops those that a collector does not accept in time.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Final, Self

from opentelemetry import trace
from opentelemetry.context import Context

from gateway.config import Settings
from gateway.core.errors import ConfigError
from gateway.core.lsn import Lsn, format_lsn
from gateway.envelope.envelope import package_version
from gateway.monitor.metrics import Exposition
from gateway.monitor.watch import Watch
from gateway.observe import BatchTimes, OnBatch, RecentErrors, event
from schemas.telemetry.otlp import metrics_sent, resource, traces_sent
from schemas.telemetry.outage import Outage

__all__ = ["BatchTracing", "Telemetry"]

_LOG: Final = logging.getLogger(__name__)


class Telemetry:
    """Connection to a collector, while its block runs."""

    def __init__(self, settings: Settings) -> None:
        self._slot = settings.source.slot
        self._resource = resource("pgsluice-gateway", package_version())
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def trace_batches(self) -> OnBatch | None:
        """Begin to send a trace for each batch; None: the environment wants none.

        Raises:
            ConfigError: the environment asks for what cannot be.
        """
        try:
            tracer = self._stack.enter_context(traces_sent(self._resource, _log))
        except ValueError as error:
            raise ConfigError(
                f"a variable of OpenTelemetry has a value that it cannot have: {error}",
                key="monitor.opentelemetry",
                hint="correct it: those of traces that are numbers begin with OTEL_BSP_",
            ) from None
        return None if tracer is None else BatchTracing(tracer, self._slot)

    def send_metrics(self, watch: Watch, recent_errors: RecentErrors) -> None:
        """Begin to send the metrics."""
        exposition = Exposition(
            lambda: watch.figures, watch.status, recent_errors.counts, self._slot
        )
        self._stack.enter_context(metrics_sent(self._resource, _log, exposition.families))


class BatchTracing:
    """Maker of the spans of batches, which are in the module's drawing."""

    def __init__(self, tracer: trace.Tracer, slot: str) -> None:
        self._tracer = tracer
        self._slot = slot
        self._nowhere = Context()
        self._outage = Outage(_log, "traces", "check OTEL_TRACES_SAMPLER")

    def __call__(self, batch: BatchTimes) -> None:
        """Make the spans of a batch; they are sent by another thread."""
        try:
            self._make_spans(batch)
        except Exception as error:  # a sampler that the environment names may be anybody's
            self._outage.failed(type(error).__name__)

    def _make_spans(self, batch: BatchTimes) -> None:
        ahead = time.time_ns() - round(time.monotonic() * 1e9)

        def at(seconds: float) -> int:
            return ahead + round(seconds * 1e9)

        root = self._tracer.start_span(
            "batch",
            self._nowhere,
            start_time=at(batch.received_at),
            attributes={
                "pgsluice.slot": self._slot,
                "pgsluice.records": batch.records,
                "pgsluice.pieces": batch.pieces,
                "pgsluice.end_lsn": format_lsn(Lsn(batch.end_lsn)),
            },
        )
        context = trace.set_span_in_context(root, self._nowhere)
        for name, begin, end in (
            ("queue", batch.received_at, batch.routed_at),
            ("route", batch.routed_at, batch.routed_until),
            ("commit", batch.handed_over_at, batch.ended_at),
        ):
            span = self._tracer.start_span(name, context, start_time=at(begin))
            span.end(at(end))
        if batch.error:
            root.set_attribute("error.type", batch.error)
            root.set_status(trace.StatusCode.ERROR)
        root.end(at(batch.ended_at))


def _log(level: int, message: str, **fields: object) -> None:
    event(_LOG, level, message, **fields)
