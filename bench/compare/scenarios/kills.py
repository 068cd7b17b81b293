"""``kill -9``, ten times, under a load of orders: what is lost, what comes twice."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Final

from bench.compare import orders
from bench.compare.records import Topics
from bench.compare.scenarios.drain import await_stream, await_visible
from bench.compare.stage import Source, Stage
from bench.compare.tool import MakeTool, Tool
from bench.processes import BenchError

__all__ = ["kills"]

_KILLS: Final = 10
_MORE: Final = 500
"""Offsets that have to become visible between two kills: it works again, and is in the midst."""
_TIMEOUT_S: Final = 300.0
_PAUSE_S: Final = 0.01
_POLL_S: Final = 0.02


def kills(stage: Stage, name: str, make: MakeTool) -> dict[str, str]:
    """Kill the tool while orders are placed, then hold its topics against the server's account."""
    source = stage.source(name, orders.SCHEMA)
    tool = make(stage, source, {**dict.fromkeys(orders.KEYS), "finish": None})
    topics = Topics(stage)
    names, finish = [tool.topic(table) for table in orders.KEYS], [tool.topic("finish")]
    tool.start()
    try:
        await_stream(source, tool)
        writer = _Writer(source)
        writer.start()
        try:
            _await_more(topics, tool, names, topics.visible(names) + _MORE)
            away = []
            for number in range(_KILLS):
                tool.kill()
                killed, before = time.monotonic(), topics.visible(finish)
                source.execute(f"INSERT INTO finish VALUES ({number})")
                tool.start()
                # Not the first offset of any topic that can be read: that is the end of the killed
                # process's transaction.
                _await_more(topics, tool, finish, before + 1)
                away.append(time.monotonic() - killed)
                _await_more(topics, tool, names, topics.visible(names) + _MORE)
        finally:
            writer.stopping.set()
            writer.join()
        source.execute(f"INSERT INTO finish VALUES ({_KILLS})")
        await_visible(topics, tool, "finish", _KILLS + 1)
    finally:
        tool.stop()
    expected = orders.audited(source)
    found = sum(
        (orders.events_of(t, topics.changes(tool.topic(t))) for t in orders.KEYS),
        start=type(expected)(),
    )
    lost, doubled = expected - found, found - expected
    return {
        "changes": f"{expected.total():,}",
        "lost": f"{lost.total():,}",
        "doubled": f"{doubled.total():,}",
        "seconds until a row written after the kill can be read, median": f"{median(away):.1f}",
    }


class _Writer(threading.Thread):
    def __init__(self, source: Source) -> None:
        super().__init__(daemon=True)
        self._source = source
        self.stopping = threading.Event()

    def run(self) -> None:
        with self._source.connect() as connection:
            while not self.stopping.wait(_PAUSE_S):
                connection.execute("CALL play(1)")


def _await_more(topics: Topics, tool: Tool, names: list[str], enough: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while topics.visible(names) < enough:
        if (fault := tool.fault()) is not None or time.monotonic() > deadline:
            raise BenchError(f"nothing comes any more: {fault}")
        time.sleep(_POLL_S)
