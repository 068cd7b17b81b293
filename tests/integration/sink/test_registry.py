"""Schemas in a real registry."""

from __future__ import annotations

import json
import uuid

import pytest

from gateway.core.errors import ConfigError, FatalError, SchemaRefusedError, TransientError
from gateway.core.records import Batch
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.progress import KafkaProgress, read_progress
from gateway.sink.registry.registry import Registry
from tests.support.gateway.sink_scene import Topics, finish

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def a_schema(*fields: tuple[str, str]) -> dict[str, object]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": type_} for name, type_ in fields],
    }


def test_schema_keeps_its_id_and_the_order_of_its_text(registry: str) -> None:
    subject = f"test-{uuid.uuid4().hex[:8]}-value"
    schema = a_schema(("z", "int"), ("a", "string"))

    first = Registry({"url": registry}).register(subject, schema)
    second = Registry({"url": registry}).register(subject, json.loads(json.dumps(schema)))
    elsewhere = Registry({"url": registry}).register(f"other-{subject}", schema)

    assert first == second == elsewhere


def test_incompatible_schema_is_refused_with_the_registrys_reason(registry: str) -> None:
    subject = f"test-{uuid.uuid4().hex[:8]}-value"
    client = Registry({"url": registry})
    client.register(subject, a_schema(("a", "int")))

    with pytest.raises(SchemaRefusedError, match=subject) as caught:
        client.register(subject, a_schema(("a", "int"), ("without_default", "string")))

    assert caught.value.hint


def test_schemas_requested_together_need_no_request_of_their_own(registry: str) -> None:
    run = uuid.uuid4().hex[:8]
    schemas = [(f"test-{run}.{n}-value", a_schema((f"c{n}", "int"))) for n in range(30)]
    refused = (schemas[3][0], a_schema(("c3", "string")))
    client, other = Registry({"url": registry}), Registry({"url": registry})
    client.register(*schemas[3])

    client.request([refused, *schemas])
    with pytest.raises(SchemaRefusedError, match=refused[0]):
        client.register(*refused)
    client.close()  # it can ask for nothing from now on

    ids = [client.register(*schema) for schema in schemas]
    assert ids == [other.register(*schema) for schema in schemas]
    assert len(set(ids)) == 30


def test_schemas_requested_of_a_registry_that_is_down_fail_when_registered() -> None:
    client = Registry({"url": "http://127.0.0.1:1", "max.retries": 0})
    schemas = [(f"s{n}", a_schema(("a", "int"))) for n in range(1_000)]

    client.request(schemas)

    with pytest.raises(TransientError, match=r"registry\.url"):
        client.register(*schemas[0])


def test_registry_that_is_down_is_transient_and_its_password_unseen() -> None:
    client = Registry({"url": "http://user:s3cret-pw@127.0.0.1:1", "max.retries": 0})

    with pytest.raises(TransientError, match=r"registry\.url \(http://127\.0\.0\.1:1\)") as caught:
        client.register("s", a_schema(("a", "int")))

    assert "s3cret-pw" not in str(caught.value)


def test_address_without_the_api_is_fatal(registry: str) -> None:
    with pytest.raises(FatalError, match="Confluent's API"):
        Registry({"url": registry.rstrip("/") + "/nothing/here"}).check()


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({}, r"registry\.url"),
        ({"url": "ftp://x"}, "registry"),
        ({"url": "http://x", "no.such": "1"}, "registry"),
        ({"url": "http://x", "timeout": "soon"}, r"registry\.timeout"),
    ],
)
def test_registry_property_at_fault_is_named(properties: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Registry(properties)


def test_progress_written_with_real_ids_is_read_without_the_registry(
    topics: Topics, registry: str
) -> None:
    progress = KafkaProgress(
        topics.kafka,
        topics.identity,
        Registry({"url": registry}),
        topic=topics.progress,
    )
    with TransactionalSink(topics.kafka, topics.identity, progress) as sink:
        sink.open()
        finish(sink, Batch(topics.records(1), topics.watermark(9), topics.cut(9)))

    assert read_progress(topics.kafka, topics.progress, topics.identity, 30) == CommittedState(
        topics.watermark(9), {topics.rows: (1, 0)}
    )
