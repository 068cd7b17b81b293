"""Avro names of PostgreSQL's identifiers, and names of topics.

The escape is invertible, so that two identifiers never become one name. That of topic names
(`schemas.topic_names`) differs because the alphabets do: Avro allows ``[A-Za-z0-9_]``, Kafka also
``-`` and ``.``, and the dot is the separator.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.core.errors import SchemaError
from schemas.topic_names import topic_part

__all__ = [
    "MAX_TOPIC_LENGTH",
    "avro_name",
    "error_topic",
    "find_collisions",
    "message_topic",
    "topic_name",
    "topic_of",
    "transaction_topic",
]

MAX_TOPIC_LENGTH: Final = 249
"""Kafka's limit on topic names, in characters."""

# An underscore is escaped if it would look like the start of an escape. Escapes begin with an
# underscore themselves, so the hex digits after a literal "_x" can only be literal ones.
_NOT_AVRO = re.compile(r"\A[0-9]|[^A-Za-z0-9_]|_(?=x[0-9A-F]{4})")


def avro_name(identifier: str) -> str:
    """Return an identifier as an Avro name.

    A character outside ``[A-Za-z0-9_]`` and a leading digit become ``_xHHHH_``, the code point in
    upper-case hexadecimal, at least four digits. An underscore before ``x`` and four such digits is
    escaped as well, because it would look like an escape.
    """
    return _NOT_AVRO.sub(lambda match: f"_x{ord(match[0]):04X}_", identifier)


def topic_name(subscription: str, schema: str, table: str) -> str:
    """Return the default topic of a subscription's table: ``<subscription>.<schema>.<table>``.

    Raises:
        SchemaError: the name is longer than Kafka allows.
    """
    return _checked(f"{topic_part(subscription)}.{topic_part(schema)}.{topic_part(table)}")


def topic_of(subscription: str, schema: str, table: str, names: Mapping[str, str]) -> str:
    """Return the topic of a subscription's table: its entry in `names`, or the default.

    Args:
        subscription: Name of the subscription.
        schema: Schema of the table.
        table: Name of the table.
        names: ``[topics] names``, by ``<subscription>.<schema>.<table>`` as written.

    Raises:
        SchemaError: the name is longer than Kafka allows.
    """
    return names.get(f"{subscription}.{schema}.{table}") or topic_name(subscription, schema, table)


def transaction_topic(subscription: str) -> str:
    """Return the topic of a subscription's markers: ``<subscription>.transaction``.

    Raises:
        SchemaError: the name is longer than Kafka allows.
    """
    return _checked(f"{topic_part(subscription)}.transaction")


def message_topic(gateway: str) -> str:
    """Return the topic of logical messages: ``<gateway>.message``.

    Raises:
        SchemaError: the name is longer than Kafka allows.
    """
    return _checked(f"{topic_part(gateway)}.message")


def error_topic(gateway: str) -> str:
    """Return the topic of changes that cannot be published: ``<gateway>.error``.

    Raises:
        SchemaError: the name is longer than Kafka allows.
    """
    return _checked(f"{topic_part(gateway)}.error")


def _checked(topic: str) -> str:
    if len(topic) > MAX_TOPIC_LENGTH:
        raise SchemaError(
            f"the topic name {topic!r} has {len(topic)} characters;"
            f" Kafka allows {MAX_TOPIC_LENGTH}",
            hint="give the topic a shorter name in [topics] names",
        )
    return topic


def find_collisions(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of topic names that collide in Kafka: they differ only in ``.`` and ``_``.

    Returns:
        Groups of two or more names, both sorted. A name that occurs twice does not collide with
        itself.

    Source: org.apache.kafka.common.internals.Topic.hasCollision (metric names use ``_`` for both).
    """
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        groups[name.replace(".", "_")].add(name)
    return sorted(tuple(sorted(group)) for group in groups.values() if len(group) > 1)
