"""SQL of views in the engines that read tables without the job's code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from schemas.settings.consumer import ViewEngine
from spark_consumer.errors import SettingsError

__all__ = ["ViewPlace", "check_name", "engine_path", "identifier", "text_literal"]

_LOCAL: Final = re.compile(r"file:(//)?(?=/)")
_HIDDEN: Final = re.compile(r"[\x00-\x1f\x7f]")
_HADOOP_ONLY: Final = ("hdfs:", "viewfs:")
_OF_DUCKDB: Final = frozenset({"main", "system", "temp"})
"""Databases of its own, in lower case, beside which there can be none of the name."""


@dataclass(frozen=True, slots=True)
class ViewPlace:
    """A table's folder for an engine.

    Attributes:
        engine: Engine that reads the table.
        path: Folder as the engine names it.
    """

    engine: ViewEngine
    path: str


def engine_path(path: str, engine: ViewEngine) -> str:
    """Return a path as an engine names it.

    Args:
        path: Path with its scheme, as Hadoop has it.
        engine: Engine that is to read there.

    Raises:
        SettingsError: the engine cannot read there, or its SQL cannot name the path.
    """
    # A reader may send the file line by line, and Spark replaces variables in each statement.
    if _HIDDEN.search(path) or "${" in path:
        raise SettingsError(
            "views cannot name a warehouse with ${ or a control character in its path",
            hint="use another folder, or leave consumer.views empty",
        )
    if engine == "spark":
        return path
    if path.startswith(_HADOOP_ONLY):
        raise SettingsError(
            "DuckDB does not read HDFS, so it has no views of a warehouse there",
            hint="leave duckdb out of consumer.views",
        )
    return _LOCAL.sub("", path, count=1).replace("s3a://", "s3://", 1)


def check_name(subscription: str, engine: ViewEngine) -> None:
    """Check that an engine can have views of a subscription's name.

    Raises:
        SettingsError: it has something else of this name.
    """
    if engine == "duckdb" and subscription.lower() in _OF_DUCKDB:
        raise SettingsError(
            f"DuckDB cannot have views of the subscription {subscription}, as it has a database of"
            " this name of its own",
            hint="leave duckdb out of consumer.views, or give the subscription another name",
        )


def identifier(name: str, engine: ViewEngine) -> str:
    """Write a name as an identifier of an engine."""
    quote = "`" if engine == "spark" else '"'
    return quote + name.replace(quote, 2 * quote) + quote


def text_literal(text: str, engine: ViewEngine) -> str:
    """Write a text as a literal of an engine."""
    if engine == "spark":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "''") + "'"
