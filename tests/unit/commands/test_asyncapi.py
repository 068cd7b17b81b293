"""``pgsluice schemas --asyncapi``: every topic, with what other teams need to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from jsonschema import Draft7Validator

from gateway.commands.asyncapi import document
from gateway.commands.schemas import CollectedSchemas
from gateway.routing import RoutingSettings
from gateway.routing.build.relation_routes import RelationRoutes
from schemas.settings.tables import EnvelopeTable, TopicsTable
from tests.support.gateway.routing_scene import T1_TABLE, Gateway, NoCatalog, publish

ROOT = Path(__file__).resolve().parents[3]
# What AsyncAPI publishes: see tests/vendor/README.md.
PUBLISHED = json.loads((ROOT / "tests" / "vendor" / "asyncapi" / "3.0.0.json").read_text())
PLAIN = EnvelopeTable()
TABLE_TOPIC, MARKERS = "nsw.public.t1", "nsw.transaction"


def resolved(found: dict[str, Any], path: str) -> Any:
    node: Any = found
    for part in path.removeprefix("#/").split("/"):
        node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


def described(
    envelope: EnvelopeTable = PLAIN, topics: TopicsTable | None = None, /, **kafka: str
) -> dict[str, Any]:
    gateway = Gateway([T1_TABLE], [publish("nsw")], topics=topics)
    plan = replace(gateway.plan, envelope=envelope)
    schemas = CollectedSchemas()
    settings = RoutingSettings("gw", "db", "1", {TABLE_TOPIC: 3}, envelope=envelope)
    RelationRoutes(plan, settings, NoCatalog(), schemas).register_all()
    found = document(
        plan,
        schemas.schemas,
        name="gw",
        kafka={"bootstrap.servers": "k1:9092, k2:9092", **kafka},
        registry_url="https://user:pass@registry:8081/apis",
        topic_names={},
        partitions={TABLE_TOPIC: 3},
    )
    assert json.loads(json.dumps(found)) == found
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def complaints(found: dict[str, Any]) -> list[str]:
    errors = Draft7Validator(PUBLISHED).iter_errors(found)
    return [f"{error.json_path}: {error.message}"[:500] for error in errors]


@pytest.mark.parametrize(("key", "follows"), [(("b",), False), (("b", "a"), True)])
def test_a_tombstone_follows_where_the_key_identifies_a_row(
    key: tuple[str, ...], follows: bool
) -> None:
    found = described(PLAIN, TopicsTable(keys={"public.t1": key}))

    assert ("tombstone" in found["channels"][TABLE_TOPIC]["messages"]) is follows


@pytest.mark.parametrize("protocol", ["plaintext", "sasl_ssl"])
def test_the_document_is_valid_by_the_published_schema(protocol: str) -> None:
    Draft7Validator.check_schema(PUBLISHED)

    assert complaints(described(**{"security.protocol": protocol})) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (["asyncapi"], "2.6.0"),
        (["operations", f"send-{TABLE_TOPIC}", "action"], "sends"),
        (["channels", TABLE_TOPIC, "bindings", "kafka", "partitions"], 0),
        (["channels", TABLE_TOPIC, "messages", "change", "payload", "schema"], {"type": "recrod"}),
        (["servers", "kafka-1", "host"], None),
    ],
    ids=["version", "action", "partitions", "schema", "host"],
)
def test_the_published_schema_finds_what_is_wrong(path: list[str], wrong: object) -> None:
    found = described()
    part: Any = found
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = wrong

    assert complaints(found)


def test_the_headers_of_debezium_s_key_changes_are_those_of_its_format() -> None:
    debezium = described(EnvelopeTable(format="debezium"))

    def headers(found: dict[str, Any], message: str) -> set[str]:
        messages = found["channels"][TABLE_TOPIC]["messages"]
        return set(messages[message]["headers"]["properties"])

    assert complaints(debezium) == []
    for message in ("change", "tombstone"):
        more = headers(debezium, message) - headers(described(), message)
        assert more == {"__debezium.newkey", "__debezium.oldkey"}
    assert headers(debezium, "truncate") == headers(described(), "truncate")


def test_every_reference_leads_somewhere() -> None:
    found = described()

    paths = list(references(found))
    assert paths
    assert all(resolved(found, path) for path in paths)


def test_topics_have_their_schemas_keys_and_partitions() -> None:
    found = described()
    channels = found["channels"]

    assert set(channels) == {TABLE_TOPIC, MARKERS}
    table = channels[TABLE_TOPIC]
    assert table["bindings"]["kafka"]["partitions"] == 3
    assert set(table["messages"]) == {"change", "tombstone", "truncate"}
    change = table["messages"]["change"]
    key = change["bindings"]["kafka"]["key"]
    assert fastavro.parse_schema(change["payload"]["schema"])
    assert fastavro.parse_schema(key)
    assert "key" not in table["messages"]["truncate"]["bindings"]["kafka"]
    assert set(channels[MARKERS]["messages"]) == {"change"}


def test_servers_are_named_without_secrets() -> None:
    plain, secured = described(), described(**{"security.protocol": "sasl_ssl"})

    assert [s["host"] for s in plain["servers"].values()] == ["k1:9092", "k2:9092"]
    assert {s["protocol"] for s in plain["servers"].values()} == {"kafka"}
    assert {s["protocol"] for s in secured["servers"].values()} == {"kafka-secure"}
    assert "pass@" not in json.dumps(plain) and "https://registry:8081/apis" in json.dumps(plain)


def test_the_headers_are_those_of_the_contract() -> None:
    section = (ROOT / "docs" / "envelope.md").read_text().split("## Headers")[1].split("\n## ")[0]
    documented = {
        name
        for names in re.findall(r"^\| (`[a-z_`, ]+`) \|", section, re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", names)
    }
    change = described()["channels"][TABLE_TOPIC]["messages"]["change"]

    assert set(change["headers"]["properties"]) == documented
