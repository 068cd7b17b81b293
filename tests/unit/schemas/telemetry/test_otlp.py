"""Metrics as Prometheus would get them, and spans, at a collector; none of them delays an end."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from schemas.telemetry import CLOSE_S
from schemas.telemetry.otlp import metrics_sent, resource, traces_sent
from tests.support.backends.collector import Collector, values
from tests.support.run.waiting import wait_until, within

Line = tuple[int, str, dict[str, object]]
SECRET = "do-not-show-me"


class Lines(list[Line]):
    """What an exporter has logged."""

    def __call__(self, level: int, message: str, **fields: object) -> None:
        self.append((level, message, fields))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        for name, value in collector.environment().items():
            monkeypatch.setenv(name, value)
        yield collector


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://user:{SECRET}@127.0.0.1:{server.getsockname()[1]}"


def families() -> list[Metric]:
    counter = CounterMetricFamily("a_rows", "Rows.", labels=("table",))
    counter.add_metric(["t"], 3)
    gauge = GaugeMetricFamily("a_lag_seconds", "Lag.", value=2.5)
    empty = GaugeMetricFamily("a_nothing", "None.", labels=("table",))
    buckets: list[tuple[str, float]] = [("0.1", 1), ("1.0", 4), ("+Inf", 6)]
    histogram = HistogramMetricFamily("a_commit_bytes", "Sizes.", buckets=buckets, sum_value=9.5)
    return [counter, gauge, empty, histogram]


def test_metrics_arrive_with_names_units_help_and_labels(
    environment: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    log, begun = Lines(), time.time_ns()
    with metrics_sent(resource("theirs", "1.2"), log, families):
        wait_until(environment.metrics, 60, "the metrics")
        # On a busy machine the end may come too late for the last ones.
        assert log == []

    found = environment.metrics()
    assert {name: (one.description, one.unit) for name, one in found.items()} == {
        "a_rows": ("Rows.", ""),
        "a_lag_seconds": ("Lag.", "s"),
        "a_commit_bytes": ("Sizes.", "By"),
    }
    (rows,) = found["a_rows"].sum.data_points
    assert (found["a_rows"].sum.is_monotonic, rows.as_double) == (True, 3)
    assert found["a_rows"].sum.aggregation_temporality == 2, "cumulative"
    assert values(rows.attributes) == {"table": "t"}
    assert begun <= rows.start_time_unix_nano <= rows.time_unix_nano <= time.time_ns()
    assert found["a_lag_seconds"].gauge.data_points[0].as_double == 2.5
    (sizes,) = found["a_commit_bytes"].histogram.data_points
    assert list(sizes.explicit_bounds) == [0.1, 1.0]
    assert list(sizes.bucket_counts) == [1, 3, 2]
    assert (sizes.count, sizes.sum) == (6, 9.5)
    assert not sizes.HasField("min")
    described = environment.resource()
    assert described["service.name"] == "mine"
    assert described["service.version"] == "1.2"
    assert described["deployment.environment.name"] == "test"
    assert environment.headers["api-key"] == "abc"


def test_an_outage_is_one_line_until_it_ends(
    environment: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # As in HTTP, and not as in the variable: nothing may quote it.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization: Bearer {SECRET}")
    environment.answer = 401
    log = Lines()

    def asked(times: int) -> bool:
        return len(environment.bodies.get("/v1/metrics", [])) >= times

    with metrics_sent(resource("s", "1"), log, families):
        wait_until(lambda: asked(3), 60, "several failures")
        environment.answer = 200
        wait_until(lambda: len(log) == 2, 60, "the end of the outage to be logged")
        (level, message, fields), (_, again, _) = log

    assert (level, fields["what"], fields["error"]) == (logging.WARNING, "metrics", "HTTP 401")
    assert "a collector does not accept telemetry" in message
    assert "OTEL_EXPORTER_OTLP_HEADERS" in str(fields["hint"])
    assert again == "a collector accepts telemetry again"
    assert caplog.records == []


def test_a_collector_that_never_answers_delays_neither_spans_nor_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Lines()
    with silent_server() as address, ExitStack() as stack:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
        of = resource("s", "1")
        with traces_sent(of, log) as tracer, metrics_sent(of, log, families):
            assert tracer is not None
            for _ in range(3_000):
                tracer.start_span("batch").end()
            stack.enter_context(within(2 * CLOSE_S, "the end"))
    wait_until(lambda: len(log) == 2, 60, "both to be logged")

    assert {fields["what"] for _, _, fields in log} == {"traces", "metrics"}
    assert {fields["error"] for _, _, fields in log} <= {"ConnectionError", "the program has ended"}
    assert SECRET not in str(log) and caplog.records == []


def test_the_environment_turns_each_off(
    environment: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Lines()
    for name, value in (
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ):
        monkeypatch.setenv(name, value)
    of = resource("s", "1")
    with traces_sent(of, log) as tracer, metrics_sent(of, log, families):
        assert tracer is None
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with traces_sent(of, log) as tracer:
        assert tracer is None

    assert (environment.bodies, log) == ({}, [])


def test_another_protocol_than_there_is_is_mentioned(
    environment: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    log = Lines()
    with metrics_sent(resource("s", "1"), log, families):
        wait_until(environment.metrics, 60, "the metrics")
        ((level, _, fields),) = log

    assert (level, fields["variable"]) == (logging.WARNING, "OTEL_EXPORTER_OTLP_PROTOCOL")
    assert environment.metrics()
