"""OpenTelemetry: a trace for each cut.

The spans of a cut, of which ``cut`` is the root:

    cut       |-------------------------------|   markers read, manifest stored
    plan      |----|                              what each table has to read
    read           |-----|                        small shares, by the driver
    apply                |-----------|            one for each table that is written
    history                          |---|        histories of tables, where there are some
    manifest                             |----|

This module is imported only where ``[consumer] opentelemetry`` is on. A span has numbers and names
of the subscription and of tables, never a value of a row.
"""

from __future__ import annotations

import time

from opentelemetry import trace
from opentelemetry.context import Context

from schemas.telemetry.outage import Log, Outage
from spark_consumer.names import lsn_text
from spark_consumer.observe.cut_times import CutTimes

__all__ = ["CutTracing"]


class CutTracing:
    """Maker of the spans of one subscription's cuts, which are in the module's drawing."""

    def __init__(self, tracer: trace.Tracer, subscription: str, log: Log) -> None:
        self._tracer = tracer
        self._subscription = subscription
        self._nowhere = Context()
        self._outage = Outage(log, "traces", "check OTEL_TRACES_SAMPLER")

    def __call__(self, cut: CutTimes) -> None:
        """Make the spans of a cut; they are sent by another thread."""
        try:
            self._make_spans(cut)
        except Exception as error:  # a sampler that the environment names may be anybody's
            self._outage.failed(type(error).__name__)

    def _make_spans(self, cut: CutTimes) -> None:
        ahead = time.time_ns() - round(time.monotonic() * 1e9)

        def at(seconds: float) -> int:
            return ahead + round(seconds * 1e9)

        root = self._tracer.start_span(
            "cut",
            self._nowhere,
            start_time=at(cut.begun_at),
            attributes={
                "pgsluice.subscription": self._subscription,
                "pgsluice.records": cut.records,
                "pgsluice.end_lsn": lsn_text(cut.end_lsn),
            },
        )
        context = trace.set_span_in_context(root, self._nowhere)
        for step in cut.steps:
            named = {"pgsluice.table": step.table} if step.table else {}
            begun = at(step.begun_at)
            span = self._tracer.start_span(step.name, context, attributes=named, start_time=begun)
            span.end(at(step.ended_at))
        if cut.error:
            root.set_attribute("error.type", cut.error)
            root.set_status(trace.StatusCode.ERROR)
        root.end(at(cut.ended_at))
