"""A takeover that breaks off, wherever that is, ends in the table of the source."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import schemas
from gateway.core.records import Record, Writer
from gateway.envelope.envelope import wire_prefix
from gateway.envelope.markers import encode_progress, encode_writer
from gateway.sink.own_topics.requests import send
from gateway.sink.registry.registry import Registry
from tests.security.topics.test_topic_owner import both, run_to_now
from tests.support.backends.broker import producer_in_transaction
from tests.support.gateway.fault_stage import TAKEOVER_POINTS
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene

__all__ = ["both"]

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


@pytest.fixture
def taken(both: tuple[Scene, Scene]) -> Iterator[tuple[Scene, Scene]]:
    """Production, whose topics have rows of a staging that has taken them over."""
    production, staging = both
    run_to_now(production)
    assert staging.cli("takeover", production.slot).code == 0
    run_to_now(staging)
    with staging.connect() as connection:
        connection.execute("INSERT INTO t VALUES (77, 77)")
    run_to_now(staging)
    with production.connect() as connection:
        connection.execute("UPDATE t SET b = 7 WHERE a = 1; INSERT INTO t VALUES (3, 7)")
    yield production, staging


def test_a_takeover_whose_claim_could_not_be_read_back_can_be_repeated(
    taken: tuple[Scene, Scene], kafka: str
) -> None:
    production, _ = taken
    name = production.slot
    producer = producer_in_transaction(kafka)
    producer.produce(f"{name}.transaction", b"?")
    producer.flush()

    first = production.cli("takeover", name)
    producer.abort_transaction()
    second = production.cli("takeover", name)
    run_to_now(production)

    assert first.code == 75
    assert f"{name}.transaction" in first.err
    assert "an open Kafka transaction is before them" in first.err
    assert (second.code, "taken over from" in second.out) == (0, True)
    assert production.rebuilt("t") == [(1, 7), (2, 0), (3, 7)]


def test_a_takeover_that_is_killed_anywhere_ends_in_the_table_of_the_source(
    taken: tuple[Scene, Scene],
) -> None:
    production, _ = taken
    name = production.slot
    died = []

    for point in TAKEOVER_POINTS:
        environment = {"PGSLUICE_FAILPOINT": point}
        if point.startswith("takeover."):
            arguments = ["takeover", name, "--config", str(production.project.write())]
            production.project.processes.append(GatewayProcess(arguments, environment))
        else:
            production.project.start(environment=environment)
        died.append(production.project.processes[-1].wait())
    run_to_now(production)

    assert died == [-signal.SIGKILL] * len(TAKEOVER_POINTS)
    assert production.rebuilt("t") == [(1, 7), (2, 0), (3, 7)]
    markers = [(m["kind"], m["copy"] and m["copy"]["state"]) for m in production.markers()]
    after = markers[[kind for kind, _ in markers].index("CLAIM", 2) :]
    assert ("COPY", "pending") in after[: after.index(("COPY", "copying"))], (
        "readers take the table for complete while it has the rows of another source"
    )


def test_a_takeover_from_a_writer_that_is_not_named_ends_in_the_table_of_the_source(
    taken: tuple[Scene, Scene], kafka: str, registry: str
) -> None:
    production, _ = taken
    name = production.slot
    topic = f"{name}.transaction"
    with Registry({"url": registry}) as ids:
        number = ids.register(f"{topic}-value", schemas.load("transaction"))
    unnamed = wire_prefix(number) + b"\0\0" + encode_progress(0, timeline=1)
    send({"bootstrap.servers": kafka}, [(topic, 0, None, unnamed, [])], "writing a marker")

    arguments = ["takeover", name, "--config", str(production.project.write())]
    killed = GatewayProcess(arguments, {"PGSLUICE_FAILPOINT": "takeover.claimed"})
    production.project.processes.append(killed)
    assert killed.wait() == -signal.SIGKILL
    run_to_now(production)

    assert production.rebuilt("t") == [(1, 7), (2, 0), (3, 7)]


def test_a_takeover_takes_back_what_may_be_of_a_gateway_whose_markers_cannot_be_read(
    both: tuple[Scene, Scene], kafka: str
) -> None:
    production, _ = both
    name = production.slot
    run_to_now(production)
    writer = production.markers()[-1]["writer"]
    own = wire_prefix(1_999_998) + encode_writer(Writer(**writer)) + encode_progress(9, timeline=1)
    newer_version = wire_prefix(1_999_999) + b"\xff" * 20
    topic = f"{name}.transaction"
    lost: list[Record] = [(topic, 0, None, value, []) for value in (own, newer_version)]
    send({"bootstrap.servers": kafka}, lost, "writing markers")
    with production.connect() as connection:
        connection.execute("INSERT INTO t VALUES (3, 7)")

    taken = production.cli("takeover", name)
    run_to_now(production)

    assert (taken.code, "from a gateway whose markers cannot be read" in taken.out) == (0, True)
    assert production.rebuilt("t") == [(1, 0), (2, 0), (3, 7)]
