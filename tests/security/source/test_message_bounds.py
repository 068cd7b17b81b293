"""Memory of a gateway while one message of the stream is large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene, scene
from tests.support.run.waiting import wait_until

__all__ = ["scene"]

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MIB = 1 << 20
LARGE = 64
"""MiB of a message."""

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""


def memory(pid: int, name: str) -> float:
    """Return a line of /proc/<pid>/status, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)


@dataclass
class Cost:
    """Of a message, in multiples of its size.

    Attributes:
        peak: While it passed.
        kept: Afterwards.
    """

    peak: float = 0.0
    kept: float = 0.0


@contextmanager
def cost(process: GatewayProcess, base: float) -> Iterator[Cost]:
    """Measure what passes in the block."""
    found = Cost()
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins again
    yield found
    found.peak = (memory(process.pid, "VmHWM") - base) / LARGE
    found.kept = (memory(process.pid, "VmRSS") - base) / LARGE


def test_a_large_message_costs_a_multiple_of_its_size_and_gives_it_back(
    scene: Callable[..., Scene], database: Database
) -> None:
    large = f"repeat('x', {LARGE * MIB})"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("INSERT INTO t VALUES (6, '')")
        s = scene(DEFINITIONS, messages={"prefixes": ["app"]}, on_error={"size": "quarantine"})
        process = s.project.start()

        def published(a: int) -> None:
            connection.execute(f"INSERT INTO t VALUES ({a}, 'small')".encode())
            wait_until(lambda: (a, "small") in s.rebuilt("t"), 60, f"row {a} in Kafka")

        published(7)
        base = memory(process.pid, "VmRSS")
        costs = {}
        for number, (name, statement) in enumerate(
            {
                "dropped message": f"SELECT pg_logical_emit_message(true, 'other', {large})",
                "filtered row": f"INSERT INTO t VALUES (1, {large})",
                "wanted message": f"SELECT pg_logical_emit_message(true, 'app', {large})",
                "wanted row": f"INSERT INTO t VALUES (9, {large})",
            }.items()
        ):
            with cost(process, base) as costs[name]:
                connection.execute(statement.encode())
                published(10 + number)
        refused = [record.value for record in s.reader.read(f"{s.slot}.error") if record.value]
        assert process.terminate() == 0, process.log()
    for name, found in costs.items():
        # libpq's buffer, what it hands out, and the frame; a message for nobody has no frame.
        assert found.peak < (2.5 if name == "dropped message" else 3.5), (name, found)
        # libpq keeps its buffer for the next message; all else is given back.
        assert found.kept < 1.5, (name, found)
    assert [(e["kind"], e["effect"]) for e in refused] == [("size", "missing")] * 2
