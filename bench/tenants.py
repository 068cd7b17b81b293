"""Rate of a gateway with filters over another table, beside one with a plain filter for each.

A thousand subscriptions take the orders of one tenant each: by ``tenant = n``, and by ``customer IN
(SELECT id FROM customers WHERE tenant = n)``. Two gateways, one after the other, bring the same WAL
into Kafka; each has copied its empty tables and built its sets before, so that the time is that of
rows alone. `bench.subselects` measures the same in one process, without servers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from bench.configuration import configure
from bench.load import Load
from bench.processes import BenchError, Run, timed
from bench.stream import Bench

__all__ = ["run"]

_CUSTOMERS: Final = 10_000
_PER_TRANSACTION: Final = 100
_TIMEOUT_S: Final = 900.0
_TABLES: Final = """
CREATE TABLE customers (id int PRIMARY KEY, tenant int NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, tenant int, note text);
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
"""
_FILTERS: Final = {
    "plain": "tenant = {n}",
    "selected": "customer IN (SELECT id FROM customers WHERE tenant = {n})",
}


def run(subscriptions: int, changes: int) -> None:
    """Measure and print.

    Raises:
        BenchError: a gateway failed, or Kafka lacks rows.
        ServerError: a server did not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
    bench = Bench(folder, Load(_PER_TRANSACTION))
    results = {}
    try:
        with bench.servers() as connection:
            connection.execute(_TABLES.encode())
            connection.execute(
                "INSERT INTO customers SELECT n, n %% %s FROM generate_series(1, %s) AS n",
                [subscriptions, _CUSTOMERS],
            )
            configs = {name: _configure(bench, name, subscriptions) for name in _FILTERS}
            for config in configs.values():
                _gateway(config, "0/1")
                _gateway(config, _end(connection))
            for first in range(0, changes, _PER_TRANSACTION):
                connection.execute(
                    "INSERT INTO orders SELECT n, c.id, c.tenant, 'some text'"
                    " FROM generate_series(%s::bigint, %s) AS n"
                    " JOIN customers AS c ON c.id = n * 7919 %% %s + 1",
                    [first, first + _PER_TRANSACTION - 1, _CUSTOMERS],
                )
            end = _end(connection)
            for name, config in configs.items():
                results[name] = _gateway(config, end)
                _check(bench.kafka.bootstrap_servers, name, subscriptions, changes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print(results, subscriptions, changes)


def _print(results: dict[str, Run], subscriptions: int, changes: int) -> None:
    print(
        f"\n{subscriptions:,} subscriptions, {changes:,} rows in transactions of"
        f" {_PER_TRANSACTION}; {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}\n"
        f"{'':12}{'rows/s':>10}{'CPU us/row':>12}"
    )
    for name, one in results.items():
        print(f"{name:12}{changes / one.wall_s:10,.0f}{one.cpu_s / changes * 1e6:12.1f}")
    plain, selected = results["plain"], results["selected"]
    print(f"{'ratio':12}{plain.wall_s / selected.wall_s:10.2f}{plain.cpu_s / selected.cpu_s:12.2f}")


def _configure(bench: Bench, name: str, subscriptions: int) -> Path:
    folder = bench.folder / name
    folder.mkdir()
    definitions = "".join(
        f"CREATE PUBLICATION p{n} FOR TABLE orders WHERE ({_FILTERS[name].format(n=n)});\n"
        f"CREATE SUBSCRIPTION {name}{n} CONNECTION '' PUBLICATION p{n};\n"
        for n in range(subscriptions)
    )
    servers = (bench.postgres, bench.kafka, bench.registry)
    return configure(folder, name, definitions, *servers)


def _gateway(config: Path, endpos: str) -> Run:
    return timed(
        [sys.executable, "-m", "gateway", "run", "--config", config, "--endpos", endpos],
        first=": streaming ",
        last=": reached endpos ",
        timeout_s=_TIMEOUT_S,
    )


def _end(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def _check(bootstrap: str, name: str, subscriptions: int, changes: int) -> None:
    """Check that the topics have as many records as there are rows, or more."""
    latest: dict[TopicPartition, OffsetSpec] = {
        TopicPartition(f"{name}{n}.public.orders", 0): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for n in range(subscriptions)
    }
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    found = sum(int(end.result().offset) for end in admin.list_offsets(latest).values())
    if found < changes:
        raise BenchError(f"the topics of {name} have {found} records, of {changes} rows")
