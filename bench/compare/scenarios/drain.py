"""A full slot into Kafka: rate, CPU and memory.

The load is written while the tool does not run. A tenth of the records warms the tool up; from
there to the last one counts: records that a consumer with ``read_committed`` can read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.compare import orders
from bench.compare.records import Topics
from bench.compare.stage import Source, Stage
from bench.compare.tool import MakeTool, Tool
from bench.load import Load
from bench.processes import BenchError, cpu_s

__all__ = [
    "Sample",
    "await_stream",
    "await_visible",
    "drain_orders",
    "drain_simple",
    "figures",
    "running",
]

_TIMEOUT_S: Final = 900.0
_POLL_S: Final = 0.02
_WARM: Final = 0.1
_FINISH: Final = "CREATE TABLE finish (id int PRIMARY KEY)"


class Sample(NamedTuple):
    """Offsets that can be read at a moment, and the CPU that the tool has used by then."""

    at: float
    visible: int
    cpu_s: float


def drain_simple(stage: Stage, name: str, make: MakeTool, changes: int) -> dict[str, str]:
    """One table, transactions of 83 inserts, 12 updates and 5 deletes (`bench.load`)."""
    load = Load(changes)

    def prepare(source: Source) -> None:
        with source.connect() as connection:
            load.prepare(connection)

    def write(source: Source) -> int:
        with source.connect() as connection:
            load.write(connection)
        return load.changes + load.shape.changes  # one transaction more follows its end

    source = stage.source(name, _FINISH)
    prepare(source)
    return _drain(stage, source, make, {"orders": None}, write)


def drain_orders(stage: Stage, name: str, make: MakeTool, transactions: int) -> dict[str, str]:
    """Orders, payments and deliveries (`bench.compare.orders`)."""

    def write(source: Source) -> int:
        orders.play(source, transactions)
        return int(source.value("SELECT count(*) FROM audit"))

    source = stage.source(name, orders.SCHEMA)
    return _drain(stage, source, make, dict.fromkeys(orders.KEYS), write)


def _drain(
    stage: Stage,
    source: Source,
    make: MakeTool,
    tables: Mapping[str, str | None],
    write: Callable[[Source], int],
) -> dict[str, str]:
    tool = make(stage, source, {**tables, "finish": None})
    topics = Topics(stage)
    with running(tool):
        await_stream(source, tool)
        source.execute("INSERT INTO finish VALUES (1)")
        await_visible(topics, tool, "finish", 1)
    written = write(source)
    source.execute("INSERT INTO finish VALUES (2)")
    last = topics.visible([tool.topic("finish")])
    names = [tool.topic(table) for table in tables]
    begun = time.monotonic()
    with running(tool):
        samples = list(_samples(topics, tool, names, last))
        peak = _peak_mib(tool)
    _check(topics, tool, tables, written)
    return figures(samples, written, peak, begun)


def _samples(topics: Topics, tool: Tool, names: list[str], last: int) -> Iterator[Sample]:
    """Look again and again until the row of ``finish``, the last of all, can be read."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        is_done = topics.visible([tool.topic("finish")]) > last
        pid = _alive(tool)
        yield Sample(time.monotonic(), topics.visible(names), cpu_s(pid))
        if is_done:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"the load has not arrived after {_TIMEOUT_S:.0f} s: {tool.fault()}")
        time.sleep(_POLL_S)


def figures(samples: list[Sample], written: int, peak: int, begun: float) -> dict[str, str]:
    """Return rate and cost from the moment at which a tenth of `written` changes could be read.

    `begun` is the moment at which the tool was started.
    """
    before, end = samples[0].visible, samples[-1]
    total = end.visible - before
    first = next(s for s in samples if s.visible - before >= _WARM * total)
    last = next(s for s in samples if s.visible == end.visible)
    share = (last.visible - first.visible) / total
    rows = written * share
    return {
        "rows a second": f"{rows / (last.at - first.at):,.0f}",
        "CPU, us a row": f"{(last.cpu_s - first.cpu_s) / rows * 1e6:.0f}",
        "peak memory, MiB": f"{peak:,}",
        "seconds from its start to the last row": f"{last.at - begun:.1f}",
    }


def _check(topics: Topics, tool: Tool, tables: Mapping[str, str | None], written: int) -> None:
    found = sum(len(topics.changes(tool.topic(table))) for table in tables)
    if found != written:
        raise BenchError(f"{written:,} changes were written, and {found:,} are in the topics")


def _peak_mib(tool: Tool) -> int:
    status = Path(f"/proc/{_alive(tool)}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def _alive(tool: Tool) -> int:
    if (pid := tool.pid) is None:
        raise BenchError(f"the tool has ended: {tool.fault()}")
    return pid


@contextmanager
def running(tool: Tool) -> Iterator[None]:
    """Start a tool, and stop it at the end, if it still runs."""
    tool.start()
    try:
        yield
    finally:
        tool.stop()


def await_stream(source: Source, tool: Tool) -> None:
    """Wait until somebody reads the slot.

    Raises:
        BenchError: nobody does, or the tool says that it failed.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    query = (
        "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()"
    )
    while not source.value(query):
        if (fault := tool.fault()) is not None or time.monotonic() > deadline:
            raise BenchError(f"nobody reads the slot of {source.dbname}: {fault}")
        time.sleep(_POLL_S)


def await_visible(topics: Topics, tool: Tool, table: str, records: int) -> None:
    """Wait until a topic has `records` records of rows.

    Raises:
        BenchError: the tool gave up, or they do not come.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while len(topics.changes(tool.topic(table))) < records:
        if (fault := tool.fault()) is not None or time.monotonic() > deadline:
            raise BenchError(f"{tool.topic(table)} has not {records} records: {fault}")
        time.sleep(_POLL_S)
