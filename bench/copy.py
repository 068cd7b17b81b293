"""The copy of a large table, beside ``COPY ... TO STDOUT`` of the same table into ``/dev/null``.

With rows interpreted, compiled, and compiled while a writer of its own inserts into another table,
with the clock in the key; a consumer looks how long those rows take, and somebody asks the server
for the age of the oldest transaction. Then with a filter on a column, by which one row in a hundred
passes, read by one connection and by two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from bench.configuration import configure
from bench.latency import Reader
from bench.load import make_rows
from bench.processes import BenchError, cpu_s
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry
from gateway._speedups.loader import INTERPRETED
from gateway.routing.row.native import why_not_built

__all__ = ["run"]

_TIMEOUT_S: Final = 3600.0
_WRITES_PER_S: Final = 1_000
_QUIET_S: Final = 10.0
_DEFINITIONS: Final = (
    "CREATE PUBLICATION p FOR TABLE {tables};\n"
    "CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION p;\n"
)
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
        print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; {rows:,} rows")
        print(f"{'':44}{'rows/s':>12}{'of COPY':>9}{'CPU us/row':>12}{'oldest ms':>11}")
        alone = _unload(server)
        print(f"{'COPY ... TO STDOUT by psql, /dev/null':44}{rows / alone:12,.0f}", flush=True)

        def copy(
            name: str,
            title: str,
            *,
            interpreted: bool = False,
            writing: bool = False,
            passing: str = "",
            readers: int = 2,
        ) -> None:
            where = folder / name
            where.mkdir()
            env = {INTERPRETED: str(int(interpreted)), "PGSLUICE_COPY__PARALLEL": str(readers)}
            with _gateway(where, name, env, server, kafka, registry) as gateway:
                copied: list[_Copied] = []

                def work() -> None:
                    copied.append(_copy(where, gateway, connection, rows))

                topic = f"{name}.public.beside"
                quiet: list[float] = []
                times: list[float] = []
                if writing:
                    quiet = _latencies(server, kafka, topic, lambda: time.sleep(_QUIET_S))
                _add_table(where, name, gateway, passing)
                if writing:
                    times = _latencies(server, kafka, topic, work)
                else:
                    work()
                (found,) = copied
                print(
                    f"{title:44}{rows / found.seconds:12,.0f}{alone / found.seconds:9.3f}"
                    f"{found.cpu_s / rows * 1e6:12.1f}{found.oldest_s * 1000:11.0f}",
                    flush=True,
                )
                if writing:
                    _print_latencies("another table's changes, nothing copied", quiet)
                    _print_latencies("another table's changes, during the copy", times)

        copy("interpreted", "pgsluice, interpreted", interpreted=True)
        if why_not_built() is None:
            copy("compiled", "pgsluice, compiled")
        title = f"pgsluice, {_WRITES_PER_S:,} transactions a second beside"
        copy("beside", title, writing=True)
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        passing = " WHERE (quantity % 100 = 0)"
        for readers in (1, 2, 1, 2):
            title = f"pgsluice, 1 row in 100 passes, readers: {readers}"
            copy(f"few{time.monotonic_ns()}", title, passing=passing, readers=readers)
        print(f"load average at the end {os.getloadavg()[0]:.1f}", flush=True)


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


def _add_table(folder: Path, name: str, gateway: subprocess.Popen[bytes], passing: str) -> None:
    """Let the gateway take the table in; return when its stream goes on."""
    definitions = _DEFINITIONS.format(name=name, tables=f"beside, orders{passing}")
    (folder / "replication.sql").write_text(definitions)
    gateway.send_signal(signal.SIGHUP)
    _wait_for(folder, gateway, "definitions in force", 1)
    _wait_for(folder, gateway, ": streaming ", 2)


def _latencies(
    server: EmbeddedPostgres, kafka: EmbeddedKafka, topic: str, work: Callable[[], None]
) -> list[float]:
    """Write into the other table while `work` goes on; how long the rows took, in seconds."""
    times: list[float] = []
    with closing(Reader(kafka, topic)) as reader, ThreadPoolExecutor(2) as pool:
        writer = subprocess.Popen(
            [sys.executable, "-m", "bench.copy", server.dsn()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

        def write() -> int:
            try:
                work()
            finally:
                said, _ = writer.communicate()  # it ends with its input
            return int(said)

        try:
            working = pool.submit(write)
            while not (working.done() and len(times) >= working.result()):
                if (found := reader.poll(0.1)) is not None:
                    times.append(found[1])
        finally:
            writer.kill()
            writer.wait()
    return times


def write(dsn: str) -> int:
    """Insert until the input ends; who falls behind does not hurry afterwards. Prints how many."""
    ended, written = threading.Event(), 0

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            connection.execute("INSERT INTO beside VALUES (%s)", [time.monotonic_ns()])
            written += 1
            due = max(due + 1 / _WRITES_PER_S, time.monotonic() - 0.01)
    print(written)
    return 0


def _print_latencies(title: str, times: Sequence[float]) -> None:
    ordered = [seconds * 1000 for seconds in sorted(times)]
    median, high = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    shown = f"median {median:.1f} ms, 99 % {high:.1f}, most {ordered[-1]:.1f}"
    print(f"  {title:42}{shown}; {len(times):,} rows", flush=True)


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
    folder: Path,
    name: str,
    env: Mapping[str, str],
    server: EmbeddedPostgres,
    kafka: EmbeddedKafka,
    registry: EmbeddedRegistry,
) -> Iterator[subprocess.Popen[bytes]]:
    """A gateway that has the empty table."""
    definitions = _DEFINITIONS.format(name=name, tables="beside")
    config = configure(folder, name, definitions, server, kafka, registry)
    with (folder / "log").open("wb") as log:
        gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", "--config", config],
            stderr=log,
            env={**os.environ, **env},
        )
        try:
            _wait_for(folder, gateway, "all tables are copied", 1)
            yield gateway
        finally:
            gateway.terminate()
            gateway.wait()


if __name__ == "__main__":
    sys.exit(write(sys.argv[1]))
