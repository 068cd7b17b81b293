"""Labels of enums in the schemas, as ALTER TYPE adds some."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from gateway.source.provisioning.event_trigger import INSTALL
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


def labels(registry: str, topic: str) -> list[Any]:
    """The labels in each version of the schema of the values, in order."""
    with SchemaRegistryClient({"url": registry}) as client:
        subject = f"{topic}-value"
        texts = [
            client.get_version(subject, version).schema.schema_str
            for version in client.get_versions(subject)
        ]
    rows = [json.loads(text or "")["fields"][0]["type"][1]["fields"] for text in texts]
    return [field.get("pg_labels") for fields in rows for field in fields if field["name"] == "m"]


@pytest.mark.parametrize("how", ["by message", "watched"])
def test_a_new_label_makes_a_compatible_schema_without_a_copy(
    scene: Callable[..., Scene], database: Database, registry: str, how: str
) -> None:
    interval = 0.0 if how == "by message" else 0.2
    with database.connect() as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        connection.execute("CREATE TABLE t (id int, m mood, PRIMARY KEY (id, m))")
        connection.execute("INSERT INTO t VALUES (1, 'ok')")
        if how == "by message":
            connection.execute(INSTALL.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": interval})
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert labels(registry, s.topic("t")) == [["sad", "ok"]]

        connection.execute("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'sad'")
        connection.execute("INSERT INTO t VALUES (2, 'glad')")
        expected = [["sad", "ok"], ["glad", "sad", "ok"]]
        wait_until(lambda: labels(registry, s.topic("t")) == expected, 60, "the new label")
        assert gateway.terminate() == 0, gateway.log()

        connection.execute("INSERT INTO t VALUES (3, 'sad')")
        s.run_to(current_lsn(connection))
        assert [record.op for record in s.read("t")].count("t") == 1
        assert [row[1] for row in s.rebuilt("t")] == ["ok", "glad", "sad"]
        assert labels(registry, s.topic("t")) == expected
