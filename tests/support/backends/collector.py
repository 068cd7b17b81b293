"""A collector: an HTTP server that decodes what OpenTelemetry's and OpenLineage's clients send."""

from __future__ import annotations

import gzip
import json
from contextlib import ExitStack
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent
from openlineage.client.event_v2 import RunState as EventType
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.backends.answers import AnsweringHandler, serving

__all__ = ["Collector", "values"]


class Collector:
    """Serves while its block runs.

    Attributes:
        answer: Status with which it answers.
        bodies: Bodies that were sent since `forget`, by path.
        received: All that was sent.
        headers: Headers of the last request.
    """

    def __init__(self) -> None:
        self.answer = 200
        self.bodies: dict[str, list[bytes]] = {}
        self.received: list[bytes] = []
        self.headers: dict[str, str] = {}
        collector = self

        class Handler(AnsweringHandler):
            def do_POST(self) -> None:
                body = self.read_body()
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.headers = {name.lower(): text for name, text in self.headers.items()}
                collector.received.append(body)
                collector.bodies.setdefault(self.path, []).append(body)
                self.answer(b"", status=collector.answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._stack = ExitStack()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._stack.enter_context(serving(self._server))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def environment(self, **variables: str) -> dict[str, str]:
        """The standard variables of both clients; that of OpenTelemetry sends often."""
        return {
            # OPENLINEAGE_URL would stay: the client translates it in the environment.
            "OPENLINEAGE__TRANSPORT__TYPE": "http",
            "OPENLINEAGE__TRANSPORT__URL": self.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
            **variables,
        }

    def forget(self) -> None:
        """Forget what was sent so far."""
        self.bodies = {}

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
        """Return the resource attributes of the last metrics."""
        (resource,) = ExportMetricsServiceRequest.FromString(
            self.bodies["/v1/metrics"][-1]
        ).resource_metrics
        return values(resource.resource.attributes)

    def events(self) -> list[dict[str, Any]]:
        """All events of OpenLineage, each accepted by the classes that are made of its schema."""
        found = [json.loads(body) for body in self.bodies.get("/api/v1/lineage", [])]
        for event in found:
            given = {key: value for key, value in event.items() if key != "schemaURL"}
            run, job = Run(**given.pop("run")), Job(**given.pop("job"))
            state = EventType(given.pop("eventType"))
            inputs = [InputDataset(**one) for one in given.pop("inputs")]
            outputs = [OutputDataset(**one) for one in given.pop("outputs")]
            made = RunEvent(
                **given, eventType=state, run=run, job=job, inputs=inputs, outputs=outputs
            )
            assert made.schemaURL == event["schemaURL"]
        return found

    def ended_run(self, but: str = "") -> list[dict[str, Any]]:
        """The events of a run that has ended, other than a certain one; none before."""
        events = [event for event in self.events() if event["run"]["runId"] != but]
        return events if events and events[-1]["eventType"] in ("COMPLETE", "FAIL") else []


def values(attributes: Any) -> dict[str, Any]:
    """Attributes of OTLP."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
