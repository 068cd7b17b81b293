"""Rows that leave a filter, and a filter on a column outside the replica identity.

Debezium's filter is that of its publication, which PostgreSQL applies.
"""

from __future__ import annotations

from typing import Final

import psycopg

from bench.compare.pgsluice import Pgsluice
from bench.compare.records import Topics, fold
from bench.compare.scenarios.drain import await_stream, await_visible, running
from bench.compare.stage import Source, Stage
from bench.compare.tool import MakeTool

__all__ = ["filters"]

_SCHEMA: Final = """
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL, name text);
ALTER TABLE customer REPLICA IDENTITY FULL;
CREATE TABLE account (id int PRIMARY KEY, region text NOT NULL);
CREATE TABLE finish (id int PRIMARY KEY);
INSERT INTO account SELECT i, 'EU' FROM generate_series(1, 100) i;
"""
_CHANGES: Final = """
INSERT INTO customer SELECT i, CASE WHEN i % 2 = 0 THEN 'EU' ELSE 'US' END, 'customer ' || i
    FROM generate_series(1, 1000) i;
UPDATE customer SET region = 'US' WHERE id % 10 = 0;
UPDATE customer SET region = 'EU' WHERE id % 10 = 5;
DELETE FROM customer WHERE id % 10 = 2;
UPDATE customer SET name = 'x' WHERE id % 10 = 4;
"""
_WHERE: Final = "region = 'EU'"


def filters(stage: Stage, name: str, make: MakeTool) -> dict[str, str]:
    """Move rows over the edge of a filter, and see what the topic says."""
    source = stage.source(name, _SCHEMA)
    tool = make(stage, source, {"customer": _WHERE, "finish": None})
    topics = Topics(stage)
    with running(tool):
        await_stream(source, tool)
        source.execute(_CHANGES)
        source.execute("INSERT INTO finish VALUES (1)")
        await_visible(topics, tool, "finish", 1)
    there = fold(topics.changes(tool.topic("customer")), ["id", "name"])
    with source.connect() as connection:
        query = f"SELECT id, name FROM customer WHERE {_WHERE}"
        wanted = {row[0]: tuple(row) for row in connection.execute(query.encode())}
    have = {key[0]: row for key, row in there.items()}
    return {
        "rows that should not be there": f"{len(have.keys() - wanted.keys()):,}",
        "rows that are missing or wrong": f"{sum(have.get(k) != v for k, v in wanted.items()):,}",
        "filter on a column outside the replica identity": _outside(stage, f"{name}2", make),
    }


def _outside(stage: Stage, name: str, make: MakeTool) -> str:
    source = stage.source(name, _SCHEMA)
    tool = make(stage, source, {"account": _WHERE, "finish": None})
    if isinstance(tool, Pgsluice) and (said := _checked(tool)) is not None:
        return f"{said}; {_updated(source)}"
    return f"is taken; {_updated(source)}"


def _checked(tool: Pgsluice) -> str | None:
    """Return that ``pgsluice check`` refuses the definitions, if it does."""
    return "`check` refuses it" if tool.run("check").returncode else None


def _updated(source: Source) -> str:
    try:
        source.execute("UPDATE account SET region = 'US' WHERE id = 1")
    except psycopg.Error:
        return "the application's UPDATE fails"
    return "the application's UPDATE succeeds"
