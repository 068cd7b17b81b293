"""Memory and time of a gateway whose filter reads a table of many members: ``bench.large_set``.

``python -m bench.large_set [MEMBERS]``: a table with that many rows (10 million by default), all of
which are members of one set, and a filtered table that is copied. Printed are the time until
everything is copied, the gateway's memory at most and afterwards, one move, and the same for a
start that reads the set back from Kafka.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.configuration import configure
from bench.processes import BenchError
from bench.stream import stop_on_sigterm
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry

MEMBERS: Final = 10_000_000
_ORDERS: Final = 10_000
_TIMEOUT_S: Final = 3600.0
_TABLES: Final = """
CREATE TABLE customers (id int PRIMARY KEY, region text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, note text);
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, 'EU' FROM generate_series(1, {members}) AS n;
INSERT INTO orders SELECT n, n, 'some text' FROM generate_series(1, {orders}) AS n;
"""
_DEFINITIONS: Final = (
    "CREATE PUBLICATION eu FOR TABLE orders"
    " WHERE (customer IN (SELECT id FROM customers WHERE region = 'EU'));\n"
    "CREATE SUBSCRIPTION eu CONNECTION '' PUBLICATION eu;\n"
)


def main(members: int) -> int:
    """Measure and print."""
    stop_on_sigterm()
    server, kafka, registry = EmbeddedPostgres(18), EmbeddedKafka(), EmbeddedRegistry()
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; {members:,} members")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for part in (server, kafka, registry):
            stack.callback(part.stop)
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(part.start) for part in (server, kafka, registry)]:
                started.result()
        with server.connect() as connection:
            connection.execute(_TABLES.format(members=members, orders=_ORDERS).encode())
            spool = {"gateway": {"name": "large", "spool_directory": str(folder)}}
            config = configure(folder, "large", _DEFINITIONS, server, kafka, registry, spool)
            with _gateway(folder, config, "first start", "all tables are copied") as pid:
                began = time.monotonic()
                connection.execute("UPDATE customers SET region = 'US' WHERE id = 1")
                _await(folder / "log", "rows that moved are settled", pid)
                print(f"one move: {time.monotonic() - began:.2f} s")
                print(f"later: {_memory(pid)}", flush=True)
            with _gateway(folder, config, "next start", "all tables are copied") as pid:
                time.sleep(5)  # what it gives back after the start counts
                print(f"later: {_memory(pid)}", flush=True)
    return 0


@contextmanager
def _gateway(folder: Path, config: Path, title: str, last: str) -> Iterator[int]:
    with (folder / "log").open("wb") as log:
        began = time.monotonic()
        gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", "--config", config], stderr=log
        )
        try:
            _await(folder / "log", last, gateway.pid, gateway)
            print(f"{title}: {time.monotonic() - began:.0f} s, {_memory(gateway.pid)}", flush=True)
            yield gateway.pid
        finally:
            gateway.terminate()
            gateway.wait()


def _await(log: Path, text: str, pid: int, gateway: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while text not in (said := log.read_text()):
        is_gone = gateway is not None and gateway.poll() is not None
        if is_gone or time.monotonic() > deadline or not Path(f"/proc/{pid}").exists():
            raise BenchError(f"the gateway has not said {text!r}; it said:\n{said[-2000:]}")
        time.sleep(0.1)


def _memory(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    rss, most = (int(found[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))
    return f"{rss} MB of memory, {most} at most"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else MEMBERS))
