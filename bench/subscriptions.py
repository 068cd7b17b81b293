"""What a row costs for 1 to 1,000 subscriptions with ``region = '...'``: here, and natively.

The gateway's part is measured in this process, from frames to records: assembling, splitting the
tuple, finding the takers, encoding. The frames are the bytes that a server would send; best of
several rounds. What it takes beside that, one walsender without a filter and receiving, is measured
in the same run as the native subscriptions are, with one slot and one walsender each
(`bench.native_slots`). Both for rows that nobody takes, and with 1 % of the rows for each.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping

from bench.fixed import FixedCatalog, OneId
from bench.native_slots import REGIONS, Drain, NativeSlots, region_of
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Collation,
    Column,
    FilterClause,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
)
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.routing import Router, RoutingSettings
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.transactions import Assembler, Transaction

__all__ = ["measure", "run"]

SUBSCRIPTIONS = (1, 10, 100, 1000)
NATIVE = (1, 10, 100)
ROWS = 20_000
NATIVE_ROWS = 50_000
ROUNDS = 5

_OID = 16384
_TABLE = Table(
    _OID,
    "public",
    "orders",
    "r",
    (
        Column("id", 1, 20, -1, "bigint", 20, -1, "b", True, "", None),
        Column(
            "region",
            2,
            25,
            -1,
            "text",
            25,
            -1,
            "b",
            True,
            "",
            Collation('pg_catalog."C"', deterministic=True, c_order=True),
        ),
        Column("note", 3, 25, -1, "text", 25, -1, "b", False, "", None),
    ),
    ReplicaIdentity.DEFAULT,
    ("id", "region"),
    ("id", "region"),
)


def run() -> None:
    """Measure and print.

    Raises:
        BenchError: a slot could not be drained.
        ServerError: the server did not start.
    """
    slots = NativeSlots(max(NATIVE), NATIVE_ROWS)
    for title, taken in (
        ("rows that nobody takes", False),
        ("rows of which each subscription takes 1 %", True),
    ):
        routing = {count: measure(count, taken=taken) for count in SUBSCRIPTIONS}
        with slots.loaded(taken=taken):
            feeding = slots.unfiltered()
            native = {count: slots.filtered(count).walsenders for count in NATIVE}
        _report(title, routing, feeding, native)


def _report(
    title: str, routing: Mapping[int, float], feeding: Drain, native: Mapping[int, float]
) -> None:
    print(
        f"\n{title}: CPU us per row of the table\n"
        f"load average {os.getloadavg()[0]:.1f}; the gateway's one walsender "
        f"{feeding.walsenders:.2f}, receiving {feeding.receiving:.2f}; beside them\n\n"
        f"{'':13}{'gateway':>19}{'':>10}{'native':>19}{'native to gateway':>24}\n"
        f"{'subscriptions':>13}{'routing':>10}{'to one':>9}{'in all':>10}"
        f"{'walsenders':>11}{'to one':>8}{'source':>12}{'in all':>12}"
    )
    for count, micros in routing.items():
        total = feeding.walsenders + feeding.receiving + micros
        line = f"{count:13,}{micros:10.2f}{micros / routing[1]:8.2f}x{total:10.2f}"
        if count in native:
            senders = native[count]
            line += f"{senders:11.2f}{senders / native[1]:7.1f}x"
            line += f"{senders / feeding.walsenders:11.2f}x{senders / total:11.2f}x"
        print(line, flush=True)


def measure(subscriptions: int, *, taken: bool) -> float:
    """Return microseconds of CPU per row, the best of `ROUNDS`."""
    names = [f"s{n}" for n in range(subscriptions)]
    publishes = tuple(_publish(name, n) for n, name in enumerate(names))
    plan = Plan(
        {_OID: _TABLE},
        tuple(SubscriptionDefinition(name, ("p",)) for name in names),
        publishes,
        (),
        (),
    )
    topics = {f"{name}.public.orders": 1 for name in names}
    settings = RoutingSettings("bench", "bench", "1", topics)
    routes = RelationRoutes(plan, settings, FixedCatalog(_TABLE), OneId())
    router = Router(routes, settings)
    best = float("inf")
    for number in range(ROUNDS):
        frames = _frames(number, taken=taken)
        started = time.process_time()
        (transaction,) = Assembler().push(frames)
        assert isinstance(transaction, Transaction)
        records = sum(len(piece) for piece in router.route(transaction))
        best = min(best, time.process_time() - started)
        rows = ROWS * subscriptions // REGIONS
        assert records == (rows + min(subscriptions, ROWS) if taken else 0)
    return best / ROWS * 1e6


def _publish(subscription: str, number: int) -> Publish:
    clause = FilterClause("p", _OID, f"(region = '{region_of(number)}'::text)")
    filters: dict[Operation, tuple[FilterClause, ...]] = {
        o: (clause,) for o in ALL_OPERATIONS if o is not Operation.TRUNCATE
    }
    return Publish(subscription, _OID, _OID, ALL_OPERATIONS, filters, None)


def _frames(number: int, *, taken: bool) -> list[bytes]:
    lsn = 1000 + number * 1000
    header = b"w" + struct.pack(">QQq", lsn, lsn, 0)
    relation = b"R" + struct.pack(">I", _OID) + b"public\0orders\0d" + struct.pack(">H", 3)
    for flag, name, oid in ((1, b"id", 20), (1, b"region", 25), (0, b"note", 25)):
        relation += struct.pack(">B", flag) + name + b"\0" + struct.pack(">Ii", oid, -1)
    rows = [_row(region_of(n).encode() if taken else b"nowhere") for n in range(REGIONS)]
    begin = b"B" + struct.pack(">QqI", lsn, 0, 7)
    commit = b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0)
    return [
        header + begin,
        header + relation,
        *[header + row for row in rows] * (ROWS // REGIONS),
        header + commit,
    ]


def _row(region: bytes) -> bytes:
    row = b"I" + struct.pack(">I", _OID) + b"N" + struct.pack(">H", 3)
    for value in (b"123456", region, b"some text that nobody reads"):
        row += b"t" + struct.pack(">I", len(value)) + value
    return row


if __name__ == "__main__":
    run()
