"""A collector: an HTTP server that decodes what OpenTelemetry's and OpenLineage's clients send."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector", "values"]


class Collector:
    """Serves while its block runs.

    Attributes:
        answer: Status with which it answers.
        bodies: All that was sent, by path.
        headers: Headers of the last request.
    """

    def __init__(self) -> None:
        self.answer = 200
        self.bodies: dict[str, list[bytes]] = {}
        self.headers: dict[str, str] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.headers = {name.lower(): text for name, text in self.headers.items()}
                collector.bodies.setdefault(self.path, []).append(body)
                self.send_response(collector.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Be quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def environment(self, **variables: str) -> dict[str, str]:
        """The standard variables of a client of OpenTelemetry that sends often."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
            **variables,
        }

    def spans(self) -> list[Span]:
        """All spans."""
        requests = map(ExportTraceServiceRequest.FromString, self.bodies.get("/v1/traces", []))
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, Metric]:
        """The metrics of the last request, by name."""
        bodies = self.bodies.get("/v1/metrics")
        if not bodies:
            return {}
        (resource,) = ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def resource(self) -> dict[str, Any]:
        """What the last metrics say of their sender."""
        (resource,) = ExportMetricsServiceRequest.FromString(
            self.bodies["/v1/metrics"][-1]
        ).resource_metrics
        return values(resource.resource.attributes)

    def events(self) -> list[dict[str, Any]]:
        """All events of OpenLineage."""
        return [json.loads(body) for body in self.bodies.get("/api/v1/lineage", [])]


def values(attributes: Any) -> dict[str, Any]:
    """Attributes of OTLP."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
