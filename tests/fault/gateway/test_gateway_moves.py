"""Filters over other tables: what topics make is what the filter selects, at each settled position.

Random transactions over three tables, two levels of sub-selects, kills, and a gateway that lags.
PostgreSQL itself evaluates each filter on the tables as they were at the LSN. The seeds take turns
on two majors, or with ``make test-all`` on four: a gateway for each major, a schema for each seed.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from gateway.core.lsn import parse_lsn
from gateway.source.provisioning.event_trigger import INSTALL
from pgsluice_client import Reader, TableRows
from tests.support.backends.servers import Database
from tests.support.gateway.scene import TIMEOUT_S, Scene, current_lsn, running
from tests.support.models.cuts import cuts
from tests.support.run.seeds import in_turn
from tests.support.run.waiting import wait_until
from tests.support.workloads.moves import FILTERS, MoveLoad, Past

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow, pytest.mark.seeded]

MakeScene = Callable[..., Scene]
SEEDS = int(os.environ.get("PGSLUICE_MOVE_SEEDS", "10"))
TRANSACTIONS = int(os.environ.get("PGSLUICE_MOVE_TRANSACTIONS", "80"))
KILLS = int(os.environ.get("PGSLUICE_MOVE_KILLS", "1"))
MAJORS = [major for pair in in_turn(__name__, [(15, 17), (16, 18)]) for major in pair]
WORKERS = 2
COLUMNS = ("id", "customer", "n", "document")


def filters_of(number: int) -> list[str]:
    """Two of `FILTERS`, in turn."""
    names = [*FILTERS]
    return [names[(number + more) % len(names)] for more in range(2)]


def definitions(number: int) -> str:
    """The publications and subscriptions of one load; the slot's name begins the latter's."""
    return "".join(
        f"CREATE PUBLICATION p_{number}_{name} FOR TABLE s{number}.orders"
        f" WHERE ({FILTERS[name].format(schema=f's{number}')});"
        f"CREATE SUBSCRIPTION {{s}}_{number}_{name} CONNECTION '' PUBLICATION p_{number}_{name};"
        for name in filters_of(number)
    )


def is_settled(s: Scene, subscription: str, end: int) -> bool:
    """Whether the markers say that a subscription is complete at or after an LSN."""
    found = list(cuts(s.markers(subscription), [], "", "orders"))
    return bool(found) and found[-1].complete and found[-1].end_lsn >= end


def by_client(subscription: str, kafka: str, registry: str) -> list[tuple[Any, ...]]:
    """The rows of orders as the Python client keeps them."""
    rows = TableRows()
    with Reader(subscription, {"bootstrap.servers": kafka}, {"url": registry}) as reader:
        for transaction in reader.transactions(to_end=True):
            for change in transaction.changes:
                rows.apply(change)
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=repr)


def run(
    loads: Sequence[MoveLoad], share: int, between: tuple[int, Callable[[], None]] | None = None
) -> None:
    """Run some transactions of each worker of each load.

    Args:
        loads: The loads, all at once.
        share: Number of transactions of a worker.
        between: Called once, after that many transactions of the first load.
    """
    first = loads[0].tried
    until = {load: load.tried + share * WORKERS for load in loads}
    with ExitStack() as stack:
        for load in loads:
            for worker in range(WORKERS):
                stack.enter_context(running(partial(load.change, worker, share)))
        if between is not None:
            number, call = between
            wait_until(lambda: loads[0].tried >= first + number, TIMEOUT_S, "some transactions")
            call()
        wait_until(lambda: all(load.tried >= n for load, n in until.items()), TIMEOUT_S, "the rest")


@pytest.mark.parametrize("postgres_major", MAJORS, indirect=True)
def test_tables_are_what_the_filters_select_at_every_settled_position(
    scene: MakeScene,
    database: Database,
    postgres_major: int,
    kafka: str,
    registry: str,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = range(MAJORS.index(postgres_major), SEEDS, len(MAJORS))
    loads = {number: MoveLoad(database, f"s{number}", seed + number) for number in numbers}
    pick = random.Random(seed * 100 + postgres_major)
    s = scene(
        "".join(map(definitions, numbers)), copy={"chunk_rows": 20}, limits={"max_batch_ms": 20}
    )
    with database.connect() as connection:
        connection.execute(INSTALL.encode())
        for load in loads.values():
            load.create(connection)
        gateway = s.project.start()
        gateway.wait_until_doing("streaming")
        share = TRANSACTIONS // (KILLS + 2) // WORKERS
        run([*loads.values()], share)  # while tables are copied
        gateway.wait_until_copied(300)
        for _ in range(KILLS):
            run([*loads.values()], share, (pick.randrange(1, share * WORKERS), gateway.kill))
            gateway = s.project.start()
            gateway.wait_until_doing("streaming")
        # Rows are read for what the gateway has had until then, and placed long after that.
        gateway.send(signal.SIGSTOP)
        run([*loads.values()], share, (min(share, 100), partial(gateway.send, signal.SIGCONT)))
        end = parse_lsn(current_lsn(connection))
    names = [(number, name) for number in numbers for name in filters_of(number)]
    for number, name in names:
        settled = partial(is_settled, s, f"{s.slot}_{number}_{name}", end)
        wait_until(settled, 5 * TIMEOUT_S, "all moves to be settled", poll_s=0.5)
    assert gateway.terminate() == 0, gateway.log()

    compared = moves = 0
    for number, load in loads.items():
        with database.connect() as connection:
            past = Past(connection, load)
            for name in filters_of(number):
                subscription = f"{s.slot}_{number}_{name}"
                topic = f"{subscription}.{load.schema}.orders"
                markers, records = s.markers(subscription), s.reader.read(topic)
                moves += sum(marker["kind"] == "MOVE" for marker in markers) // 2
                for cut in cuts(markers, records, topic, "orders"):
                    if not cut.complete:
                        continue
                    expected = past.rows(cut.end_lsn, FILTERS[name], COLUMNS)
                    assert cut.table.rows(COLUMNS) == expected, (subscription, f"{cut.end_lsn:X}")
                    compared += 1
        if number < len(FILTERS):  # each filter once
            assert by_client(subscription, kafka, registry) == expected, subscription
    assert compared >= len(names), "the last position of each, at least"
    with capsys.disabled():
        print(
            f"\nmoves: PostgreSQL {postgres_major}, {len(loads)} seeds from {seed + numbers[0]},"
            f" {sum(load.transactions for load in loads.values())} transactions, {KILLS} kills,"
            f" {moves} moves with markers, {compared} positions compared"
        )
