"""The copy of a large table, beside ``COPY ... TO STDOUT`` of the same table into ``/dev/null``.

Meanwhile a writer of its own inserts into another table, with the clock in the key, and a consumer
looks how long the rows take; and somebody asks the server for the age of the oldest transaction.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.latency import Reader
from bench.load import make_rows
from bench.processes import BenchError, cpu_s
from gateway.embedded.kafka import EmbeddedKafka
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.embedded.registry import EmbeddedRegistry

__all__ = ["run"]

_TIMEOUT_S: Final = 3600.0
_WRITES_PER_S: Final = 200
_QUIET_S: Final = 10.0
_DEFINITIONS: Final = (
    "CREATE PUBLICATION p FOR TABLE beside;\nCREATE SUBSCRIPTION one CONNECTION '' PUBLICATION p;\n"
)
_WITH_TABLE: Final = _DEFINITIONS.replace("beside", "beside, orders")
_OLDEST: Final = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
    FROM pg_stat_activity WHERE backend_type = 'client backend' AND state LIKE '%in transaction%'
        OR application_name = 'pgsluice copy' AND state = 'active'"""


def run(rows: int) -> None:
    """Measure and print.

    Args:
        rows: Of the table.
    """
    with tempfile.TemporaryDirectory(prefix="pgsluice-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        server, kafka, registry = EmbeddedPostgres(18), EmbeddedKafka(), EmbeddedRegistry()
        for part in (server, kafka, registry):
            stack.callback(part.stop)
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(part.start) for part in (server, kafka, registry)]:
                started.result()
        connection = stack.enter_context(server.connect())
        make_rows(connection, rows)
        connection.execute("CREATE TABLE beside (a bigint PRIMARY KEY)")
        connection.execute("VACUUM ANALYZE orders")
        gateway = stack.enter_context(_gateway(folder, server, kafka, registry))
        print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; {rows:,} rows")
        quiet = _latencies(server, kafka, lambda: time.sleep(_QUIET_S))
        before = _unload(server)
        _add_table(folder, gateway)
        copied: list[_Copied] = []
        busy = _latencies(
            server, kafka, lambda: copied.append(_copy(folder, gateway, connection, rows))
        )
        alone = min(before, _unload(server))
        _print_latencies("another table's changes, nothing copied", quiet)
        _print_latencies("another table's changes, during the copy", busy)
        (copy,) = copied
        print(f"COPY ... TO STDOUT by psql, /dev/null {rows / alone:14,.0f} rows/s")
        print(f"pgsluice, into Kafka                  {rows / copy.seconds:14,.0f} rows/s")
        print(f"of COPY                               {alone / copy.seconds:14.3f}")
        print(f"CPU of the gateway                    {copy.cpu_s / rows * 1e6:14.1f} us/row")
        print(f"oldest transaction on the server      {copy.oldest_s * 1000:14.0f} ms")
        print(f"load average at the end               {os.getloadavg()[0]:14.1f}", flush=True)


@dataclass(frozen=True, slots=True)
class _Copied:
    seconds: float
    cpu_s: float
    oldest_s: float


def _copy(
    folder: Path,
    gateway: subprocess.Popen[bytes],
    connection: psycopg.Connection[Any],
    rows: int,
) -> _Copied:
    """Wait for the end of the copy, which has just begun."""
    began, used = time.monotonic(), cpu_s(gateway.pid)
    oldest = 0.0

    def look() -> None:
        nonlocal oldest
        row = connection.execute(_OLDEST).fetchone()
        oldest = max(oldest, 0.0 if row is None else row[0])

    _wait_for(folder, gateway, f"relation=public.orders rows={rows} lsn", 1, look)
    return _Copied(time.monotonic() - began, cpu_s(gateway.pid) - used, oldest)


def _add_table(folder: Path, gateway: subprocess.Popen[bytes]) -> None:
    """Let the gateway take the table in; return when its stream goes on."""
    (folder / "replication.sql").write_text(_WITH_TABLE)
    gateway.send_signal(signal.SIGHUP)
    _wait_for(folder, gateway, "definitions in force", 1)
    _wait_for(folder, gateway, ": streaming ", 2)


def _latencies(
    server: EmbeddedPostgres, kafka: EmbeddedKafka, work: Callable[[], None]
) -> list[float]:
    """Write into the other table while `work` goes on; how long the rows took, in seconds."""
    ended = threading.Event()
    times: list[float] = []

    def write() -> int:
        written = 0
        with server.connect() as connection:
            while not ended.wait(1 / _WRITES_PER_S):
                connection.execute("INSERT INTO beside VALUES (%s)", [time.monotonic_ns()])
                written += 1
        return written

    with closing(Reader(kafka, "one.public.beside")) as reader, ThreadPoolExecutor(2) as pool:
        try:
            writer, working = pool.submit(write), pool.submit(work)
            while not (writer.done() and len(times) >= writer.result()):
                if (found := reader.poll(0.1)) is not None:
                    times.append(found[1])
                if working.done():
                    ended.set()
        finally:
            ended.set()
        working.result()
    return times


def _print_latencies(title: str, times: Sequence[float]) -> None:
    ordered = [seconds * 1000 for seconds in sorted(times)]
    median, high = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    print(f"{title:42} median {median:7.1f} ms, 99 % {high:7.1f}, most {ordered[-1]:7.1f}")


def _unload(server: EmbeddedPostgres) -> float:
    """Seconds that psql takes to read the table and write it into the void."""
    began = time.monotonic()
    with Path(os.devnull).open("wb") as nowhere:
        subprocess.run(
            [server.bin / "psql", server.dsn(), "-c", "COPY orders TO STDOUT"],
            stdout=nowhere,
            check=True,
        )
    return time.monotonic() - began


def _wait_for(
    folder: Path,
    gateway: subprocess.Popen[bytes],
    text: str,
    times: int,
    look: Callable[[], None] = lambda: None,
) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while (said := (folder / "log").read_text()).count(text) < times:
        if gateway.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"the gateway does not get to {text!r}; it said:\n{said[-2000:]}")
        look()
        time.sleep(0.02)


@contextmanager
def _gateway(
    folder: Path, server: EmbeddedPostgres, kafka: EmbeddedKafka, registry: EmbeddedRegistry
) -> Iterator[subprocess.Popen[bytes]]:
    """A gateway that has the empty table."""
    (folder / "replication.sql").write_text(_DEFINITIONS)
    tables = {
        "source": {"dsn": server.dsn(), "slot": "copy"},
        "definitions": {"file": "replication.sql"},
        "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
        "registry": {"url": registry.url},
        "gateway": {"name": "copy"},
    }
    (folder / "pgsluice.toml").write_text(
        "\n".join(
            f"[{table}]\n" + "\n".join(f'"{k}" = {json.dumps(v)}' for k, v in values.items())
            for table, values in tables.items()
        )
    )
    with (folder / "log").open("wb") as log:
        gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", "--config", folder / "pgsluice.toml"],
            stderr=log,
        )
        try:
            _wait_for(folder, gateway, "all tables are copied", 1)
            yield gateway
        finally:
            gateway.terminate()
            gateway.wait()
