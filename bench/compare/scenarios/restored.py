"""A primary that is restored from a backup: it takes back what a tool has read already."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any, Final

from bench.compare.records import Topics, fold
from bench.compare.scenarios.drain import await_stream, await_visible, running
from bench.compare.stage import Source, Stage
from bench.compare.tool import MakeTool, Tool
from devkit.embedded.postgres import EmbeddedPostgres

__all__ = ["restored"]

_SCHEMA: Final = "CREATE TABLE entry (id int PRIMARY KEY, note text)"
_INSERT: Final = "INSERT INTO entry SELECT i, '{} ' || i FROM generate_series({}, {}) i"
_WAIT_S: Final = 60.0
_POLL_S: Final = 0.2


def restored(stage: Stage, name: str, make: MakeTool) -> dict[str, str]:
    """Restore a server from a cold copy, write other rows with the same keys, and go on."""
    topics = Topics(stage)
    with EmbeddedPostgres(18) as server:
        source = stage.source(name, _SCHEMA, server)
        tool = make(stage, source, {"entry": None}, snapshot=True)
        with running(tool):
            await_stream(source, tool)
            source.execute(_INSERT.format("before", 1, 100))
            await_visible(topics, tool, "entry", 100)
        server.shut_down()
        data, backup = server.folder / "data", server.folder / "backup"
        _copy(data, backup)
        server.restart()
        with running(tool):
            await_stream(source, tool)
            source.execute(_INSERT.format("first life", 101, 200))
            await_visible(topics, tool, "entry", 200)
        server.shut_down()
        shutil.rmtree(data)
        backup.rename(data)
        server.restart()
        source.execute(_INSERT.format("second life", 101, 150))
        tool.start()
        try:
            said = _go_on(topics, tool)
            source.execute(_INSERT.format("later", 1001, 1100))
            said = said or _go_on(topics, tool)
            wrong = _wrong(source, topics, tool)
            advised = _wrong_after_advice(source, topics, tool)
        finally:
            tool.stop()
    return {
        "what it says": "nothing, and goes on" if said is None else f"stops: {said[:240]}",
        "rows that are wrong in the topic meanwhile": f"{wrong:,}",
        "rows that are wrong after what it advises": advised,
    }


def _wrong(source: Source, topics: Topics, tool: Tool) -> int:
    have: dict[Any, Any] = fold(topics.changes(tool.topic("entry")), ["id", "note"])
    with source.connect() as connection:
        found = connection.execute("SELECT id, note FROM entry").fetchall()
    rows = {int(row[0]): tuple(row) for row in found}
    wrong: int = sum(have.get((key,)) != row for key, row in rows.items())
    return wrong + len({key for (key,) in have} - rows.keys())


def _wrong_after_advice(source: Source, topics: Topics, tool: Tool) -> str:
    if not tool.follow_advice():
        return "it advises nothing"
    await_stream(source, tool)
    deadline = time.monotonic() + _WAIT_S
    while (wrong := _wrong(source, topics, tool)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return f"{wrong:,}"


def _copy(data: Path, backup: Path) -> None:
    """Copy the folder of a server that does not run, with its owners."""
    shutil.copytree(data, backup)
    for there in (data, *data.rglob("*")):
        kept = there.lstat()
        os.chown(backup / there.relative_to(data), kept.st_uid, kept.st_gid)


def _go_on(topics: Topics, tool: Tool) -> str | None:
    """Return what the tool says if it gives up; None once nothing has come for a minute."""
    last, seen = time.monotonic(), topics.visible([tool.topic("entry")])
    while time.monotonic() < last + _WAIT_S:
        if (fault := tool.fault()) is not None:
            return fault
        if (found := topics.visible([tool.topic("entry")])) != seen:
            last, seen = time.monotonic(), found
        time.sleep(_POLL_S)
    return None
