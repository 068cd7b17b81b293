"""AsyncAPI 3 document of a gateway's topics. Pure.

Source: https://www.asyncapi.com/docs/reference/specification/v3.0.0, and its Kafka bindings 0.4.0,
the last of which the published schema lets a key be Avro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.core.names import topic_of, transaction_topic
from gateway.definitions.model import Operation, Plan
from gateway.envelope.envelope import package_version
from schemas.headers import DEBEZIUM_HEADERS, HEADERS

__all__ = ["document"]

_AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
_BINDING: Final = "0.4.0"
_SECURE: Final = ("SSL", "SASL_SSL")


def document(
    plan: Plan,
    schemas: Mapping[str, Mapping[str, Any]],
    *,
    name: str,
    kafka: Mapping[str, str],
    registry_url: str,
    topic_names: Mapping[str, str],
    partitions: Mapping[str, int],
) -> dict[str, Any]:
    """Return the document.

    Args:
        plan: Plan of what is published.
        schemas: Schemas, by subject.
        name: Name of the gateway.
        kafka: librdkafka properties; only servers and protocol are shown.
        registry_url: Shown without user and password.
        topic_names: Overrides, see ``[topics] names``.
        partitions: Number of partitions of each table's topic.
    """
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for publish in plan.publishes:
        table = plan.tables[publish.target_oid]
        topic = topic_of(publish.subscription, table.schema, table.name, topic_names)
        if topic in channels:
            continue
        envelope = plan.envelope.of(publish.subscription)
        names = sorted(operation.value for operation in publish.operations)
        channels[topic] = _channel(
            topic,
            f"Changes of table {table} for subscription {publish.subscription}: "
            f"{', '.join(names)}; after its row filters.",
            schemas,
            partitions.get(topic, 1),
            truncates=Operation.TRUNCATE in publish.operations and envelope.truncates,
            headers=DEBEZIUM_HEADERS if envelope.format == "debezium" else {},
        )
    for subscription in plan.subscriptions:
        topic = transaction_topic(subscription.name)
        channels[topic] = _channel(
            topic,
            f"Markers of subscription {subscription.name}: ends of transactions, progress, copies.",
            schemas,
            1,
        )
    for topic in channels:
        operations[f"send-{topic}"] = {
            "action": "send",
            "channel": _reference("channels", topic),
            "messages": [
                _reference("channels", topic, "messages", message)
                for message in channels[topic]["messages"]
            ],
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"pgsluice gateway {name}",
            "version": package_version(),
            "description": "PostgreSQL tables, filtered by row. Read with isolation.level "
            "read_committed; docs/envelope.md has the full contract.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/vnd.apache.avro",
        "servers": _servers(kafka, registry_url),
        "channels": channels,
        "operations": operations,
    }


def _servers(kafka: Mapping[str, str], registry_url: str) -> dict[str, Any]:
    secure = kafka.get("security.protocol", "PLAINTEXT").upper() in _SECURE
    url = urlsplit(registry_url.split(",")[0].strip())
    shown = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    return {
        f"kafka-{number}": {
            "host": host.strip(),
            "protocol": "kafka-secure" if secure else "kafka",
            "bindings": {
                "kafka": {
                    "schemaRegistryUrl": shown,
                    "schemaRegistryVendor": "confluent",
                    "bindingVersion": _BINDING,
                }
            },
        }
        for number, host in enumerate(kafka["bootstrap.servers"].split(","), 1)
    }


def _channel(
    topic: str,
    text: str,
    schemas: Mapping[str, Mapping[str, Any]],
    partitions: int,
    *,
    truncates: bool = False,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    key, value = schemas.get(f"{topic}-key"), schemas[f"{topic}-value"]
    messages = {"change": _message("change", value, key, headers)}
    if key is not None and _identifies(key, value):
        messages["tombstone"] = _message("tombstone", None, key, headers)
    if truncates:
        messages["truncate"] = _message("truncate", value, None)
    return {
        "address": topic,
        "description": text,
        "messages": messages,
        "bindings": {
            "kafka": {"topic": topic, "partitions": partitions, "bindingVersion": _BINDING}
        },
    }


def _identifies(key: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Whether no two rows have one key, which `pg_identity` says where the key was chosen."""
    if "pg_identity" not in value:
        return True
    names = {field["name"] for field in key["fields"]}
    return bool(value["pg_identity"]) and names.issuperset(value["pg_identity"])


_SUMMARIES: Final = {
    "change": "A change, or a row of a copy.",
    "tombstone": "Follows the record of a DELETE; it has no value.",
    "truncate": "A TRUNCATE, without a key, in every partition.",
}


def _message(
    name: str,
    value: Mapping[str, Any] | None,
    key: Mapping[str, Any] | None,
    more_headers: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    binding: dict[str, Any] = {
        "schemaIdLocation": "payload",
        "schemaIdPayloadEncoding": "confluent",
        "schemaLookupStrategy": "TopicNameStrategy",
        "bindingVersion": _BINDING,
    }
    if key is not None:
        binding["key"] = key
    payload: dict[str, Any] = {"type": "null"}
    if value is not None:
        payload = {"schemaFormat": _AVRO, "schema": value}
    return {
        "name": name,
        "summary": _SUMMARIES[name],
        "headers": {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": header.meaning}
                for name, header in HEADERS.items()
            }
            | {
                name: {"type": "string", "format": "binary", "description": meaning}
                for name, meaning in more_headers.items()
            },
            "required": [name for name, header in HEADERS.items() if not header.optional],
        },
        "payload": payload,
        "bindings": {"kafka": binding},
    }


def _reference(*path: str) -> dict[str, str]:
    escaped: Sequence[str] = [p.replace("~", "~0").replace("/", "~1") for p in path]
    return {"$ref": f"#/{'/'.join(escaped)}"}
