"""Traces, metrics and lineage of a gateway, decoded by a collector."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from psycopg.conninfo import conninfo_to_dict

from gateway.monitor.metrics import PREFIX
from tests.support.backends.collector import Collector, values
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

SECRET = "do-not-show-me"
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
NONE = {
    "OTEL_SDK_DISABLED": "true",
    "OPENLINEAGE_DISABLED": "true",
}
"""Nothing is sent, though it is turned on."""
ROWS, COMMITS = f"{PREFIX}rows", f"{PREFIX}commit_seconds"


def test_a_run_is_traced_measured_and_described_and_an_outage_of_the_collector_changes_nothing(
    scene: Callable[..., Scene], database: Database
) -> None:
    s = scene(DEFINITIONS, monitor={"opentelemetry": True, "openlineage": True})
    with database.connect() as connection, Collector() as collector:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, c text)")
        connection.execute(
            f"INSERT INTO t SELECT n, '{SECRET}' FROM generate_series(1, 9) n".encode()
        )
        s.cli("run", "--endpos", current_lsn(connection), environment=NONE)
        connection.execute(f"INSERT INTO t VALUES (20, '{SECRET}')".encode())
        gateway = s.project.start(environment=collector.environment())
        wait_until(
            lambda: rows(collector.metrics()).get("insert") == 1, 60, "the row to be counted"
        )
        wait_until(collector.events, 60, "the start of the run")
        spans = wait_until(lambda: whole_trace(collector), 60, "the trace of the batch")
        assert gateway.terminate() == 0, gateway.log()
        start, metrics, resource = collector.events()[0], collector.metrics(), collector.resource()

        collector.forget()
        connection.execute("INSERT INTO t VALUES (21, 'x')")
        with socket.create_server(("127.0.0.1", 0)) as server:
            nobody = f"http://me:{SECRET}@127.0.0.1:{server.getsockname()[1]}"
        away = collector.environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=nobody, OTEL_EXPORTER_OTLP_TIMEOUT="0.1"
        )
        before = start["run"]["runId"]
        alone = s.cli("run", "--endpos", current_lsn(connection), environment=away)
        (again, end) = wait_until(lambda: collector.ended_run(but=before), 60, "the end of the run")

    assert rows(metrics) == {"insert": 1, "update": 0, "delete": 0, "truncate": 0, "copy": 0}
    assert (metrics[COMMITS].unit, metrics[COMMITS].histogram.data_points[0].count > 0) == ("s", 1)
    assert metrics[f"{PREFIX}frames"].description.startswith("Number of replication messages")
    assert resource["service.name"] == "pgsluice-gateway"

    root, queue, route, commit = spans
    attributes = values(root.attributes)
    assert attributes.pop("pgsluice.end_lsn") > "0/0"
    assert attributes == {"pgsluice.slot": s.slot, "pgsluice.records": 2, "pgsluice.pieces": 1}
    assert root.start_time_unix_nano == queue.start_time_unix_nano
    assert queue.end_time_unix_nano == route.start_time_unix_nano
    assert route.start_time_unix_nano <= commit.start_time_unix_nano
    assert commit.end_time_unix_nano == root.end_time_unix_nano > root.start_time_unix_nano

    facts = conninfo_to_dict(s.dsn)
    host = "localhost" if str(facts["host"]).startswith("/") else facts["host"]
    for event in (start, again, end):
        assert event["job"]["name"] == f"pgsluice.gateway.{s.slot}"
        (source,), (target,) = event["inputs"], event["outputs"]
        assert source["namespace"] == f"postgres://{host}:{facts['port']}"
        assert source["name"] == f"{database.name}.public.t"
        assert target["namespace"] == f"kafka://{s.project.bootstrap}"
        assert target["name"] == s.topic("t")
    assert [event["eventType"] for event in (start, again, end)] == ["START", "START", "COMPLETE"]
    assert start["run"]["runId"] != again["run"]["runId"] == end["run"]["runId"]
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 1

    assert alone.code == 0, alone.err
    reported = [alone.err.count(f"what={what}") for what in ("metrics", "traces")]
    assert max(reported) == 1, alone.err
    assert [row[0] for row in s.rebuilt("t")] == [20, 21, 6, 7, 8, 9]
    sent = b"".join(collector.received)
    assert s.slot.encode() in sent
    assert SECRET.encode() not in sent and s.dsn.encode() not in sent
    assert SECRET not in gateway.log() + alone.err


def rows(metrics: dict[str, Metric]) -> dict[str, float]:
    """Rows of the one table, by operation."""
    points = metrics[ROWS].sum.data_points if ROWS in metrics else ()
    return {values(point.attributes)["operation"]: point.as_double for point in points}


def whole_trace(collector: Collector) -> list[Span]:
    """The root of the one trace and its three parts, once all are there."""
    spans = collector.spans()
    root = next((span for span in spans if span.name == "batch"), None)
    if root is None:
        return []
    parts = {span.name: span for span in spans if span.parent_span_id == root.span_id}
    if len(parts) < 3:
        return []
    assert {span.trace_id for span in spans} == {root.trace_id}
    return [root, *(parts[name] for name in ("queue", "route", "commit"))]
