"""Tables that change while the tool is behind: it reads old rows beside a new catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from bench.compare.records import Topics, fold
from bench.compare.scenarios.drain import await_stream, await_visible, running
from bench.compare.stage import Stage
from bench.compare.tool import MakeTool

__all__ = ["ddl", "wrong_rows"]

_SCHEMA: Final = """
CREATE TABLE item (id int PRIMARY KEY, price int, name text, note text);
CREATE TABLE finish (id int PRIMARY KEY);
"""
_CHANGES: Final = (
    "INSERT INTO item SELECT i, i, 'name ' || i, 'note ' || i FROM generate_series(1, 100) i",
    "ALTER TABLE item ADD COLUMN stock int DEFAULT 7",
    "INSERT INTO item SELECT i, i, 'name ' || i, 'note ' || i FROM generate_series(101, 200) i",
    "ALTER TABLE item RENAME COLUMN name TO title",
    "UPDATE item SET price = price + 1 WHERE id % 3 = 0",
    "ALTER TABLE item ALTER COLUMN price TYPE bigint",
    "INSERT INTO item SELECT i, 10000000000 + i, 'title ' || i, 'note ' || i"
    " FROM generate_series(201, 300) i",
    "ALTER TABLE item DROP COLUMN note",
    "UPDATE item SET title = 'changed' WHERE id % 7 = 0",
    "DELETE FROM item WHERE id % 11 = 0",
)


def ddl(stage: Stage, name: str, make: MakeTool) -> dict[str, str]:
    """Add, rename, widen and drop columns among changes of rows, then let the tool read it all."""
    source = stage.source(name, _SCHEMA)
    tool = make(stage, source, {"item": None, "finish": None})
    topics = Topics(stage)
    with running(tool):
        await_stream(source, tool)
        source.execute("INSERT INTO finish VALUES (1)")
        await_visible(topics, tool, "finish", 1)
    for statement in _CHANGES:
        source.execute(statement)
    source.execute("INSERT INTO finish VALUES (2)")
    with running(tool):
        await_visible(topics, tool, "finish", 2)
    changes = topics.changes(tool.topic("item"))
    columns = ["id", "price", "title", "stock"]
    have = fold(changes, columns)
    with source.connect() as connection:
        rows = connection.execute("SELECT id, price, title, stock FROM item").fetchall()
    wrong = wrong_rows(have, rows)
    old = [change.after for change in changes[:100] if change.after is not None]
    timely = sum("name" in row and "stock" not in row for row in old)
    return {
        "of 100 rows before the DDL, those with the columns of their time": f"{timely}",
        "rows that are wrong at the end": f"{wrong:,}",
    }


def wrong_rows(have: Mapping[tuple[Any, ...], Any], rows: Collection[tuple[Any, ...]]) -> int:
    """Return how many rows are missing, not in the table any more, or other than in the table.

    Args:
        have: What the records say, by the key.
        rows: Rows of the table, with the key first. A column that is null in a record is not
            compared: the default of ADD COLUMN is not in the stream until the row is written.
    """
    wanted = {row[:1]: row for row in rows}
    return len(have.keys() ^ wanted.keys()) + sum(
        any(
            mine is not None and mine != theirs for mine, theirs in zip(have[key], row, strict=True)
        )
        for key, row in wanted.items()
        if key in have
    )
