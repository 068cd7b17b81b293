"""Canonical forms of key columns, as SQL: equal under PostgreSQL's rules, equal in Spark.

schemas/types.toml says which type has which form. -0 and 0, and NaN and NaN, are equal to Spark as
they are to PostgreSQL where it compares, joins and groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from schemas.types import of_spark
from spark_consumer.errors import TableError
from spark_consumer.values.variants import variant_text_sql

__all__ = ["KEY_FORMS", "canonical"]

_INTERVAL: Final = (
    "^([-+]?[0-9]+ (years?|mons?|days?) ?)*([-+]?[0-9]+:[0-9][0-9]:[0-9][0-9]([.][0-9]+)?)?$"
)
_ENDLESS: Final = f"CAST('{'9' * 32}' AS DECIMAL(38, 6))"
"""Seconds, with microseconds as fractions, that exceed those of any finite interval."""


def canonical(sql: str, spark_type: str, pg_type: str, *, key: bool) -> str:
    """Wrap a SQL expression so that values that are equal under their PostgreSQL type are equal.

    Args:
        sql: SQL of the value; appears several times in the result.
        spark_type: Spark type of the value, as ``simpleString`` writes it.
        pg_type: PostgreSQL type of the value, as ``format_type`` writes it.
        key: Whether the value identifies a row: then a type whose equality is not known here is
            refused. In a multiset both sides are printed from the same row, so text suffices.

    Raises:
        TableError: see `key`.
    """
    if spark_type.startswith("map<"):
        return _pairs(sql)
    if spark_type.startswith("array<map<"):
        return f"transform({sql}, one -> {_pairs('one')})"
    if spark_type == "variant" and not key:
        return variant_text_sql(sql)
    if spark_type not in ("string", "variant"):
        return sql
    key_kind = of_spark(spark_type, pg_type).key
    if spark_type == "string" and key_kind in KEY_FORMS:
        return KEY_FORMS[key_kind](sql)
    if key:
        raise TableError(
            f"a key column of type {pg_type}: when two such values are equal is not known here",
            hint="choose a replica identity without it (ALTER TABLE ... REPLICA IDENTITY)",
        )
    return sql


def _pairs(sql: str) -> str:
    """Return SQL of a map's pairs: Spark compares them, and no maps."""
    return f"array_sort(map_entries({sql}))"


def _text(sql: str) -> str:
    return sql


def _numeric(sql: str) -> str:
    return (
        f"CASE WHEN contains({sql}, '.') THEN"
        f" regexp_replace(regexp_replace({sql}, '0+$', ''), '[.]$', '') ELSE {sql} END"
    )


def _numbers(sql: str) -> str:
    """Return SQL of a text with several numbers, each of which is numeric or a float."""
    whole = f"regexp_replace({sql}, '[.]0+(?![0-9])', '')"
    short = f"regexp_replace({whole}, '([.][0-9]*[1-9])0+(?![0-9])', '$1')"
    return f"regexp_replace({short}, '(?<!e)-0(?![0-9.])', '0')"


def _bpchar(sql: str) -> str:
    return f"rtrim({sql})"


def _interval(sql: str) -> str:
    """Return SQL of the number by which PostgreSQL compares intervals (30 days, 24 hours).

    Source: interval_cmp_value in PostgreSQL's timestamp.c.
    """

    def number(pattern: str, group: int = 1) -> str:
        found = f"regexp_extract({sql}, '{pattern}', {group})"
        return f"coalesce(try_cast(nullif({found}, '') AS DECIMAL(20, 6)), 0)"

    days = (
        f"(({number('([-+]?[0-9]+) year')} * 12 + {number('([-+]?[0-9]+) mon')}) * 30"
        f" + {number('([-+]?[0-9]+) day')})"
    )
    clock = "([-+]?)([0-9]+):([0-9]+):([0-9.]+)"
    seconds = (
        f"({number(clock, 2)} * 3600 + {number(clock, 3)} * 60 + {number(clock, 4)})"
        f" * IF(regexp_extract({sql}, '{clock}', 1) = '-', -1, 1)"
    )
    return (
        f"CASE WHEN {sql} IS NULL THEN NULL WHEN {sql} = 'infinity' THEN {_ENDLESS}"
        f" WHEN {sql} = '-infinity' THEN -{_ENDLESS} WHEN {sql} RLIKE '{_INTERVAL}'"
        f" THEN CAST({days} * 86400 + {seconds} AS DECIMAL(38, 6)) ELSE CAST(raise_error("
        "'an interval in a key is not in the IntervalStyle postgres') AS DECIMAL(38, 6)) END"
    )


KEY_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "text": _text,
    "timestamptz": _text,  # the gateway's sessions are in UTC
    "numeric": _numeric,
    "numbers": _numbers,
    "bpchar": _bpchar,
    "interval": _interval,
}
"""Forms of columns of text, by their names in schemas/types.toml. Spark compares all others."""
