"""Filters over other tables: what topics make is what the filter selects, at each settled position.

Random transactions over three tables, two levels of sub-selects, kills, and a gateway that lags.
PostgreSQL itself evaluates each filter on the tables as they were at the LSN.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from gateway.core.lsn import parse_lsn
from pgsluice_client import Reader, TableRows
from tests.support.backends.majors import alternating
from tests.support.backends.servers import Database
from tests.support.gateway.scene import TIMEOUT_S, Scene, current_lsn, running
from tests.support.models.cuts import CutState, cuts
from tests.support.run.waiting import wait_until
from tests.support.workloads.moves import FILTERS, MoveLoad, Past

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow, pytest.mark.seeded]

MakeScene = Callable[..., Scene]
SEEDS = int(os.environ.get("PGSLUICE_MOVE_SEEDS", "2"))
TRANSACTIONS = int(os.environ.get("PGSLUICE_MOVE_TRANSACTIONS", "400"))
KILLS = int(os.environ.get("PGSLUICE_MOVE_KILLS", "2"))
WORKERS = 2
COLUMNS = ("id", "customer", "n", "document")
DEFINITIONS = "".join(
    f"CREATE PUBLICATION p_{name} FOR TABLE orders WHERE ({where});"
    f"CREATE SUBSCRIPTION {{s}}_{name} CONNECTION '' PUBLICATION p_{name};"
    for name, where in FILTERS.items()
)


def states(s: Scene, name: str) -> list[CutState]:
    """The subscription's markers and records, cut by cut; only the last state is as it was."""
    subscription = f"{s.slot}_{name}"
    topic = s.topic("orders", subscription)
    records = s.reader.read(topic)  # before the markers, which name more
    return list(cuts(s.markers(subscription), records, topic, "orders"))


def wait_until_tried(load: MoveLoad, transactions: int) -> None:
    """Wait until a number of transactions were run."""
    wait_until(lambda: load.tried >= transactions, TIMEOUT_S, f"{transactions} transactions")


def is_settled(s: Scene, end: int) -> bool:
    """Whether all subscriptions are complete at or after an LSN."""
    found = [states(s, name) for name in FILTERS]
    return all(each and each[-1].complete and each[-1].end_lsn >= end for each in found)


def by_client(subscription: str, kafka: str, registry: str) -> list[tuple[Any, ...]]:
    """The rows of orders as the Python client keeps them."""
    rows = TableRows()
    with Reader(subscription, {"bootstrap.servers": kafka}, {"url": registry}) as reader:
        for transaction in reader.transactions(to_end=True):
            for change in transaction.changes:
                rows.apply(change)
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=repr)


@alternating(__name__, 16, 18)
@pytest.mark.parametrize("number", range(SEEDS))
def test_tables_are_what_the_filters_select_at_every_settled_position(
    scene: MakeScene,
    database: Database,
    kafka: str,
    registry: str,
    seed: int,
    number: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pick = random.Random(seed * 1000 + number)
    load = MoveLoad(database, seed + number)
    with database.connect() as connection:
        s = scene(DEFINITIONS, copy={"chunk_rows": 20}, limits={"max_batch_ms": 20})
        past_slot = f"past_{database.name}"
        load.create(connection, past_slot)
        gateway = s.project.start()  # the first transactions are run while tables are copied
        for phase in range(KILLS + 1):
            gateway.wait_until_doing("streaming")
            share = TRANSACTIONS // (KILLS + 1) // WORKERS
            until = load.tried + share * WORKERS
            kill_at = load.tried + pick.randrange(share * WORKERS)
            with ExitStack() as stack:
                for worker in range(WORKERS):
                    stack.enter_context(running(partial(load.change, worker, share)))
                if phase < KILLS:
                    wait_until_tried(load, kill_at)
                    gateway.kill()
                wait_until_tried(load, until)
            if phase < KILLS:
                gateway = s.project.start()
        end = parse_lsn(current_lsn(connection))
        gateway.wait_until_copied(300)
        wait_until(lambda: is_settled(s, end), 5 * TIMEOUT_S, "all moves to be settled", poll_s=0.5)
        assert gateway.terminate() == 0, gateway.log()

        past = Past(connection, past_slot)
        compared = moves = 0
        for name, where in FILTERS.items():
            subscription = f"{s.slot}_{name}"
            topic = s.topic("orders", subscription)
            markers, records = s.markers(subscription), s.reader.read(topic)
            moves += sum(marker["kind"] == "MOVE" for marker in markers) // 2
            for cut in cuts(markers, records, topic, "orders"):
                if not cut.complete:
                    continue
                expected = past.rows(cut.end_lsn, where, COLUMNS)
                assert cut.table.rows(COLUMNS) == expected, (name, number, f"{cut.end_lsn:X}")
                compared += 1
            assert by_client(subscription, kafka, registry) == expected, (name, number)
    assert compared >= len(FILTERS), "the last position of each, at least"
    with capsys.disabled():
        print(
            f"\nmoves: seed {seed + number}, {load.transactions} transactions, {KILLS} kills,"
            f" {moves} moves with markers, {compared} positions compared"
        )
