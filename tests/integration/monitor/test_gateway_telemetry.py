"""What a gateway sends to collectors, decoded by a collector."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from gateway.monitor.metrics import PREFIX
from tests.support.backends.collector import Collector, values
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

SECRET = "do-not-show-me"
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
DROPPED = "a collector does not accept telemetry"


def test_a_run_is_traced_and_measured_and_an_outage_of_the_collector_changes_nothing(
    scene: Callable[..., Scene], database: Database
) -> None:
    s = scene(DEFINITIONS, monitor={"opentelemetry": True})
    with database.connect() as connection, Collector() as collector:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, c text)")
        connection.execute(
            f"INSERT INTO t SELECT n, '{SECRET}' FROM generate_series(1, 9) n".encode()
        )
        s.run_to(current_lsn(connection))
        connection.execute(f"INSERT INTO t VALUES (20, '{SECRET}')".encode())
        end = current_lsn(connection)
        ended = s.cli("run", "--endpos", end, environment=collector.environment())
        assert (ended.code, DROPPED in ended.err) == (0, False), ended.err
        connection.execute("INSERT INTO t VALUES (21, 'x')")
        with socket.create_server(("127.0.0.1", 0)) as server:
            nobody = f"http://me:{SECRET}@127.0.0.1:{server.getsockname()[1]}"
        away = collector.environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=nobody, OTEL_EXPORTER_OTLP_TIMEOUT="0.1"
        )
        alone = s.cli("run", "--endpos", current_lsn(connection), environment=away)

    metrics, spans = collector.metrics(), collector.spans()
    rows = {
        values(point.attributes)["operation"]: point.as_double
        for point in metrics[f"{PREFIX}rows"].sum.data_points
    }
    assert rows == {"insert": 1, "update": 0, "delete": 0, "truncate": 0, "copy": 0}
    commits = metrics[f"{PREFIX}commit_seconds"].histogram.data_points[0]
    assert (commits.count, metrics[f"{PREFIX}commit_seconds"].unit) == (1, "s")
    assert metrics[f"{PREFIX}frames"].description.startswith("Number of replication messages")
    assert collector.resource()["service.name"] == "pgsluice-gateway"

    (root,) = (span for span in spans if span.name == "batch")
    attributes = values(root.attributes)
    assert attributes.pop("pgsluice.end_lsn") <= end
    assert attributes == {"pgsluice.slot": s.slot, "pgsluice.records": 2, "pgsluice.pieces": 1}
    children = {span.name: span for span in spans if span.parent_span_id == root.span_id}
    assert {span.trace_id for span in spans} == {root.trace_id}
    queue, route, commit = (children.pop(name) for name in ("queue", "route", "commit"))
    assert children == {}
    assert root.start_time_unix_nano == queue.start_time_unix_nano
    assert queue.end_time_unix_nano == route.start_time_unix_nano
    assert route.start_time_unix_nano <= commit.start_time_unix_nano
    assert commit.end_time_unix_nano == root.end_time_unix_nano > root.start_time_unix_nano
    assert commit.end_time_unix_nano - commit.start_time_unix_nano <= 1e9 * commits.sum + 1e6

    assert alone.code == 0, alone.err
    assert (alone.err.count("what=metrics"), alone.err.count(DROPPED)) in ((1, 1), (1, 2))
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in alone.err
    assert [row[0] for row in s.rebuilt("t")] == [20, 21, 6, 7, 8, 9]
    sent = b"".join(body for bodies in collector.bodies.values() for body in bodies)
    assert SECRET.encode() not in sent and s.dsn.encode() not in sent
    assert SECRET not in ended.err + alone.err
