"""Names: of topics, of tables' folders, of columns inside SQL text."""

from __future__ import annotations

import re
from typing import Final

from spark_consumer.config import ConsumerSettings

__all__ = ["part", "quoted", "table_path", "topic_pattern", "transaction_topic"]

_NOT_PLAIN: Final = re.compile(r"-x|[^A-Za-z0-9_-]")


def part(identifier: str) -> str:
    """Write an identifier as the topic contract does: invertible, of ``[A-Za-z0-9_-]`` alone.

    Folders use the same form, so that any identifier is safe in a path and between backticks.
    """
    return _NOT_PLAIN.sub(
        lambda match: "-x002Dx" if match[0] == "-x" else f"-x{ord(match[0]):04X}-", identifier
    )


def transaction_topic(subscription: str) -> str:
    """The topic of a subscription's markers."""
    return f"{part(subscription)}.transaction"


def topic_pattern(settings: ConsumerSettings, subscription: str) -> str:
    """A regular expression, in Java and in Python, that matches a subscription's topics whole."""
    prefix = re.escape(part(subscription))
    named = [re.escape(name) for name in settings.topic_names.get(subscription, ())]
    return "|".join(
        [rf"{prefix}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", rf"{prefix}\.transaction", *named]
    )


def table_path(warehouse: str, subscription: str, schema: str, table: str) -> str:
    """The folder of a subscriber table."""
    return "/".join([warehouse.rstrip("/"), part(subscription), part(schema), part(table)])


def quoted(column: str) -> str:
    """Write a column name as an identifier in Spark SQL."""
    return "`" + column.replace("`", "``") + "`"
