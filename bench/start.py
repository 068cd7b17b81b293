"""The start of a gateway with many empty tables: a first one, with their copies, and one after it.

Each ends at the position that the server had before, so that what is timed is the start and nothing
else: from the process's first instruction to its end. Kafka and the registry have the same CPUs and
begin cold: what they took of the CPU stands beside it, since a first start waits for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from operator import sub
from pathlib import Path
from typing import Any, Final

import psycopg

import gateway
import schemas
from bench.configuration import configure
from bench.processes import BenchError, cpu_s
from devkit.embedded.base import Embedded
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry

__all__ = ["run"]

_SCHEMA: Final = "CREATE TABLE {name} (id int PRIMARY KEY, c{number} text)"
_DEFINITIONS: Final = (
    "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION p;"
)


def run(counts: Sequence[int]) -> None:
    """Measure and print.

    Args:
        counts: Numbers of tables; those of one number are all there before the next ones come.
    """
    with tempfile.TemporaryDirectory(prefix="pgsluice-bench-") as place, ExitStack() as stack:
        server, kafka, registry = EmbeddedPostgres(18), EmbeddedKafka(), EmbeddedRegistry()
        for part in (server, kafka, registry):
            stack.callback(part.stop)
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(part.start) for part in (server, kafka, registry)]:
                started.result()
        connection = stack.enter_context(server.connect())
        environment = _installed(Path(place))
        print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}")
        services = f"{'Kafka':>8}{'registry':>10}"
        print(f"{'tables':>8}{'first start s':>16}{'CPU s':>8}{services}", end="")
        print(f"{'next start s':>15}{'CPU s':>8}{services}")
        there = 0
        for count in sorted(counts):
            _make_tables(connection, there, count)
            there = count
            folder = Path(place) / str(count)
            folder.mkdir()
            name = f"start{count}"
            configure(folder, name, _DEFINITIONS.format(name=name), server, kafka, registry)
            print(f"{count:8,}", end="", flush=True)
            for width in (16, 15):
                before = list(map(_cpu_s, (kafka, registry)))
                wall, cpu = _start(folder, _position(connection), environment)
                of_kafka, of_registry = map(sub, map(_cpu_s, (kafka, registry)), before)
                print(f"{wall:{width}.1f}{cpu:8.1f}{of_kafka:8.1f}{of_registry:10.1f}", end="")
            print(flush=True)


def _cpu_s(service: Embedded) -> float:
    """Return the CPU seconds that a service has taken."""
    assert service.pid is not None
    return cpu_s(service.pid)


def _make_tables(connection: psycopg.Connection[Any], first: int, end: int) -> None:
    """Create tables, each with a column of its own: equal schemas would have one id."""
    for number in range(first, end):
        connection.execute(_SCHEMA.format(name=f"t{number}", number=number).encode())


def _position(connection: psycopg.Connection[Any]) -> str:
    """Return the position of a transaction that is committed now."""
    connection.execute("CREATE TABLE IF NOT EXISTS beside (id serial PRIMARY KEY)")
    connection.execute("INSERT INTO beside DEFAULT VALUES")
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def _installed(place: Path) -> dict[str, str]:
    """Compile the gateway's modules, as an installation does; return its environment."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(place / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    folders = [str(Path(module.__path__[0])) for module in (gateway, schemas)]
    command = [sys.executable, "-m", "compileall", "-q", *folders]
    subprocess.run(command, env=environment, check=True)
    return environment


def _start(folder: Path, position: str, environment: dict[str, str]) -> tuple[float, float]:
    """Run a gateway up to a position; return the seconds that it took, and its CPU seconds."""
    began = time.monotonic()
    config = folder / "pgsluice.toml"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", "--endpos", position, "--config", config],
            stderr=log,
            env=environment,
        )
        try:
            # Not Popen.wait: it keeps the resources to itself.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
    if process.returncode:
        raise BenchError((folder / "log").read_text()[-2000:])
    return time.monotonic() - began, used.ru_utime + used.ru_stime
