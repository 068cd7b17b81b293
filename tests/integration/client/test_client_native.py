"""The client's rows beside those of a native subscription, however often it starts again.

Each time, everything since the last stored position is forgotten, in the middle of copies, key
changes over partitions and Kafka transactions of many source transactions.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pgsluice_client import AsyncReader, Position, Reader, TableRows, Transaction
from tests.support.backends.flink import EXAMPLES, printed
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.workloads import keys
from tests.support.workloads.dml import FIRST, PUBLICATIONS, TABLES, Workload
from tests.support.workloads.keys import KEYS, NATIVE, PARTITION_BY, chosen

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

NAMES = ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")
COPIES = (
    ("keyed", "--where", "a % 2 = 0"),
    ("whole", "--where", "a > 7"),
    ("toasted",),
    ("bag",),
)


@dataclass
class Kept:
    """Rows of all tables and the position, as a consumer stores them together."""

    stores: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    position: str | None = None
    commits: list[str] = field(default_factory=list)

    def apply(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            TableRows(self.stores.setdefault(change.table, {})).apply(change)
        self.position = transaction.position.to_json()
        if transaction.xid is not None:
            assert transaction.commit_lsn is not None
            self.commits.append(transaction.commit_lsn)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return in_order(TableRows(self.stores.get(table, {})))


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


class Consumer:
    """A consumer that is killed at random, and goes on with what it has stored."""

    def __init__(self, subscription: str, kafka: str, registry: str, seed: int) -> None:
        self._arguments = subscription, {"bootstrap.servers": kafka}, {"url": registry}
        self._random = random.Random(seed)
        self._stored = pickle.dumps(Kept())
        self.restarts = 0

    def read(self, *, to_end: bool) -> Kept:
        """Read a while, or all there is; what it has stored then."""
        while True:
            kept: Kept = pickle.loads(self._stored)
            start = None if kept.position is None else Position.from_json(kept.position)
            killed = self._random.randint(1, 60 if to_end else 8)
            with Reader(*self._arguments, start=start) as reader:
                for number, transaction in enumerate(reader.transactions(to_end=True)):
                    kept.apply(transaction)
                    if self._random.random() < 0.5:
                        self._stored = pickle.dumps(kept)
                    if number == killed:
                        break
                else:
                    self._stored = pickle.dumps(kept)
                    return kept
            self.restarts += 1
            if not to_end:
                return kept


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("other_keys", [False, True])
def test_rows_are_a_native_subscription_s_through_restarts_and_copies(
    partitions: int,
    other_keys: bool,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    seed: int,
) -> None:
    publications = NATIVE if other_keys else FIRST
    tables = keys.TABLES if other_keys else TABLES
    others = {"topics.keys": chosen(KEYS), "topics.partition_by": chosen(PARTITION_BY)}
    with database.connect() as connection:
        connection.execute(f"{tables} {PUBLICATIONS}".encode())
        workload = Workload(connection, seed)
        workload.run(60)
        native = NativeSubscription(database, make_database, tables, publications)
        s = scene(
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {', '.join(publications)};",
            topics={"partitions": partitions},
            copy={"chunk_rows": 3},
            **(others if other_keys else {}),
        )
        consumer = Consumer(s.slot, kafka, registry, seed)
        gateway = s.project.start()
        gateway.wait_until_copied()
        for copied in COPIES:
            workload.run(30)
            asked = s.cli("copy", copied[0], "--subscription", s.slot, *copied[1:], "--no-wait")
            assert asked.code == 0, asked.err
            workload.run(30)
            consumer.read(to_end=False)
        assert gateway.terminate() == 0, gateway.log()
        workload.run(60)
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    kept = consumer.read(to_end=True)

    assert consumer.restarts > 0
    for table in NAMES:
        assert kept.rows(table) == native.rows(table), table
    assert kept.commits == sorted(set(kept.commits))
    assert len(kept.commits) == sum(m["kind"] == "END" for m in s.markers())
    assert [m["copy"]["state"] for m in s.markers() if m["kind"] == "COPY"].count("ready") >= 8
    assert asyncio.run(rows_with_asyncio(s.slot, kafka, registry)) == {
        table: native.rows(table) for table in NAMES
    }
    if partitions == 1:
        for table in NAMES:
            assert rows_of_example(s, s.topic(table)) == native.rows(table), table


async def rows_with_asyncio(
    subscription: str, kafka: str, registry: str
) -> Mapping[str, list[tuple[Any, ...]]]:
    """All tables, read from the beginning, by a task that is cancelled again and again."""
    tables = {table: TableRows() for table in NAMES}
    options = {"bootstrap.servers": kafka}, {"url": registry}
    async with AsyncReader(subscription, *options) as reader:
        cancelled = 0
        while cancelled < 20:
            try:
                found = await asyncio.wait_for(reader.poll(30), 0.001)
            except TimeoutError:
                cancelled += 1
                continue
            assert found is not None
            for change in found.changes:
                tables[change.table].apply(change)
        async for transaction in reader.transactions(to_end=True):
            for change in transaction.changes:
                tables[change.table].apply(change)
    return {table: in_order(rows) for table, rows in tables.items()}


def rows_of_example(s: Scene, topic: str) -> list[tuple[Any, ...]]:
    program = EXAMPLES / "topic_rows.py"
    lines = printed([sys.executable, program, "--config", s.project.write(), topic])
    rows = [json.loads(line) for line in lines]
    columns = ("a", "b", "c")
    return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
