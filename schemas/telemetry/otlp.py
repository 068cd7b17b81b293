"""Traces and metrics of a program by OTLP over HTTP, by OpenTelemetry's own SDK and exporters.

OpenTelemetry's standard variables say where they go (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``_HEADERS``,
``_CERTIFICATE``, ...), as whose (``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``), how often
(``OTEL_METRIC_EXPORT_INTERVAL``, ``OTEL_BSP_...``) and how many (``OTEL_TRACES_SAMPLER``).
``OTEL_TRACES_EXPORTER=none`` and ``OTEL_METRICS_EXPORTER=none`` leave one of them out.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Tracer
from prometheus_client import Metric as Family

from schemas.telemetry import CLOSE_S
from schemas.telemetry.metric_points import as_metrics
from schemas.telemetry.outage import Log, Outage

__all__ = ["metrics_sent", "resource", "traces_sent"]

_SCOPE: Final = "pgsluice"
_INTERVAL_MS: Final = 60_000.0
_HINT: Final = "check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS, and the collector"
_LAST_WORD_S: Final = 0.2
"""Seconds in which an exporter that is abandoned between two attempts says that it has failed."""
_TOO_LATE: Final = "the program has ended"
_PROTOCOL: Final = "http/protobuf"


def resource(service: str, version: str) -> Resource:
    """Return what the telemetry says of its program; the environment prevails."""
    return Resource.create(
        {
            "service.name": service,
            "service.version": version,
            "service.instance.id": str(uuid.uuid4()),
            **OTELResourceDetector().detect().attributes,
        }
    )


@contextmanager
def traces_sent(of: Resource, log: Log) -> Iterator[Tracer | None]:
    """Send the spans of a tracer while the block runs; None where the environment wants none."""
    if not _wants("TRACES", log):
        yield None
        return
    _quiet()
    session = _Session()
    exporter = OTLPSpanExporter(session=session)
    watched = _WatchedExporter(exporter, session, Outage(log, "traces", _HINT))
    provider = TracerProvider(resource=of, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(watched))
    try:
        yield provider.get_tracer(_SCOPE, str(of.attributes["service.version"]))
    finally:
        _close(provider.shutdown, watched.shutdown)


@contextmanager
def metrics_sent(of: Resource, log: Log, collect: Callable[[], Iterable[Family]]) -> Iterator[None]:
    """Send all metrics at intervals while the block runs, and once more at its end.

    Args:
        of: Description of the program.
        log: Writer of lines about the exporter.
        collect: Returns the metrics, as Prometheus would get them.
    """
    if not _wants("METRICS", log):
        yield
        return
    _quiet()
    sender = _MetricSender(of, log, collect)
    sender.start()
    try:
        yield
    finally:
        _close(sender.end, sender.abandon)


class _Session(requests.Session):
    """HTTP session that remembers how its last request went.

    Attributes:
        outcome: Class of an error or status of the response.
    """

    outcome = ""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request."""
        try:
            response = super().send(request, **options)
        except requests.RequestException as error:
            self.outcome = type(error).__name__
            raise
        self.outcome = f"HTTP {response.status_code}"
        return response


class _WatchedExporter(SpanExporter):
    """The exporter of spans, whose failures are logged once."""

    def __init__(self, exporter: OTLPSpanExporter, session: _Session, outage: Outage) -> None:
        self._exporter = exporter
        self._session = session
        self._outage = outage
        self._is_over = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; in the thread of the processor."""
        if self._is_over:
            self._outage.failed(_TOO_LATE)
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._outage.passed()
        else:
            self._outage.failed(self._session.outcome or "nothing was sent")
        return result

    def shutdown(self) -> None:
        """End the exporter, at the first call."""
        over, self._is_over = self._is_over, True
        if not over:
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _MetricSender:
    """Thread that sends all metrics at intervals."""

    def __init__(self, of: Resource, log: Log, collect: Callable[[], Iterable[Family]]) -> None:
        self._resource = of
        self._collect = collect
        self._session = _Session()
        self._exporter = OTLPMetricExporter(session=self._session)
        self._outage = Outage(log, "metrics", _HINT)
        self._interval_s = _interval_ms() / 1000
        self._begun = time.time_ns()
        self._ended = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="pgsluice metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Let the thread send once more, and wait for it."""
        self._ended.set()
        self._thread.join()
        self.abandon()

    def abandon(self) -> None:
        """End the exporter, at the first call."""
        over, self._is_over = self._is_over, True
        if not over:
            self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        if self._is_over:
            self._outage.failed(_TOO_LATE)
            return
        try:
            result = self._exporter.export(self._data())
        except Exception as error:  # one round fails, and the next one is tried
            self._outage.failed(type(error).__name__)
            return
        if result is MetricExportResult.SUCCESS:
            self._outage.passed()
        else:
            self._outage.failed(self._session.outcome or "nothing was sent")

    def _data(self) -> MetricsData:
        metrics = list(as_metrics(self._collect(), self._begun, time.time_ns()))
        version = str(self._resource.attributes["service.version"])
        scope = ScopeMetrics(InstrumentationScope(_SCOPE, version), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def _wants(signal: str, log: Log) -> bool:
    """Whether the environment wants ``TRACES`` or ``METRICS``."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return False
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for name in names:
        protocol = os.environ.get(name, "").strip()
        if protocol and protocol != _PROTOCOL:
            log(
                logging.WARNING,
                f"telemetry is sent by {_PROTOCOL}, whatever the environment says",
                variable=name,
                hint="the endpoint has to be the collector's for HTTP, usually port 4318",
            )
    return True


def _interval_ms() -> float:
    try:
        given = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", _INTERVAL_MS))
    except ValueError:
        return _INTERVAL_MS
    return given if given > 0 else _INTERVAL_MS


def _quiet() -> None:
    """Keep the clients' own lines away: one for each attempt, with the text of a response.

    One for headers that are not as the variable has them, too, with the headers. For good, since a
    thread that was left alone at the end may still have something to say.
    """
    for name in ("exporter", "sdk._shared_internal", "util.re"):
        logging.getLogger(f"opentelemetry.{name}").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)


def _close(end: Callable[[], None], abandon: Callable[[], None]) -> None:
    """Wait for `end`, at most `CLOSE_S`; then `abandon` it, and let its threads end as they may."""
    ending = threading.Thread(target=end, name="pgsluice telemetry end", daemon=True)
    ending.start()
    ending.join(CLOSE_S - _LAST_WORD_S)
    if ending.is_alive():
        abandon()
        ending.join(_LAST_WORD_S)
