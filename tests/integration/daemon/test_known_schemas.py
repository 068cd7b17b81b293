"""A start with schemas that the registry had before, which it does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from gateway.runtime.planning import setup
from gateway.sink.registry.registry import Registry
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t, u;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""


def test_a_start_waits_for_no_schema_that_was_registered_and_another_registry_gets_them_again(
    scene: Callable[..., Scene],
    database: Database,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(setup, "_MANY_TABLES", 1)
    waited: list[int] = []
    request = Registry.request

    def counted(self: Registry, schemas: Iterable[tuple[str, Any]]) -> None:
        of_start = list(schemas)
        waited.append(len(of_start))
        request(self, of_start)

    monkeypatch.setattr(Registry, "request", counted)
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)")
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))
        assert waited[0] == 4, "keys and values of both tables"
        del waited[:]

        client = SchemaRegistryClient({"url": registry})
        subject = f"{s.topic('t')}-value"
        client.delete_subject(subject)
        connection.execute("INSERT INTO t VALUES (7)")
        s.run_to(current_lsn(connection))
        assert waited == []
        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
        # Not by the list of subjects: Apicurio's ends after a thousand.
        assert client.get_versions(subject), "it was registered again"

        connection.execute("ALTER TABLE u ADD COLUMN b text; INSERT INTO u VALUES (1, 'x')")
        s.run_to(current_lsn(connection))
        assert waited[0] == 4, "one has changed: all are registered before the stream begins"
        assert s.rebuilt("u") == s.source_rows("SELECT * FROM u")
