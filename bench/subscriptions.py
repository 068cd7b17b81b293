"""What a row that nobody takes costs, for 1 to 1,000 subscriptions with ``region = '...'``.

In this process, from frame to decision: assembling, splitting the tuple, finding the takers. No
server is needed; the frames are the bytes that one would send. CPU time, best of several rounds,
printed as ratios to one subscription.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

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
from gateway.pgtypes.binary import TypeInfo
from gateway.routing import Router, RoutingSettings
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.transactions import Assembler, Transaction

__all__ = ["measure", "run"]

SUBSCRIPTIONS = (1, 10, 100, 1000)
ROWS = 20_000
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


class _Ids:
    """A registry that gives every schema the same id."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        return 1


class _Catalog:
    """The catalog of a table that does not change."""

    def table(self, oid: int) -> Table | None:
        return _TABLE

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column:
        raise KeyError(name)

    def type_info(self, oid: int) -> TypeInfo:
        raise KeyError(oid)


def run() -> None:
    """Measure and print."""
    print("CPU per row that nobody takes, by number of subscriptions on the table:")
    first = None
    for count in SUBSCRIPTIONS:
        micros = measure(count)
        first = first or micros
        print(f"  {count:5} subscriptions: {micros:6.2f} us, {micros / first:5.2f} x")


def measure(subscriptions: int) -> float:
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
    totals = Totals({})
    routes = RelationRoutes(plan, settings, totals, _Catalog(), _Ids())
    router = Router(routes, totals, settings)
    best = float("inf")
    for number in range(ROUNDS):
        frames = _frames(number)
        started = time.process_time()
        (transaction,) = Assembler().push(frames)
        assert isinstance(transaction, Transaction)
        records = sum(len(piece) for piece in router.route(transaction))
        best = min(best, time.process_time() - started)
        assert records == 0
    return best / ROWS * 1e6


def _publish(subscription: str, number: int) -> Publish:
    clause = FilterClause("p", _OID, f"(region = 'region {number}'::text)")
    filters: dict[Operation, tuple[FilterClause, ...]] = {
        o: (clause,) for o in ALL_OPERATIONS if o is not Operation.TRUNCATE
    }
    return Publish(subscription, _OID, _OID, ALL_OPERATIONS, filters, None)


def _frames(number: int) -> list[bytes]:
    lsn = 1000 + number * 1000
    header = b"w" + struct.pack(">QQq", lsn, lsn, 0)
    relation = b"R" + struct.pack(">I", _OID) + b"public\0orders\0d" + struct.pack(">H", 3)
    for flag, name, oid in ((1, b"id", 20), (1, b"region", 25), (0, b"note", 25)):
        relation += struct.pack(">B", flag) + name + b"\0" + struct.pack(">Ii", oid, -1)
    row = b"I" + struct.pack(">I", _OID) + b"N" + struct.pack(">H", 3)
    for value in (b"123456", b"nowhere", b"some text that nobody reads"):
        row += b"t" + struct.pack(">I", len(value)) + value
    begin = b"B" + struct.pack(">QqI", lsn, 0, 7)
    commit = b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0)
    return [
        header + begin,
        header + relation,
        *[header + row] * ROWS,
        header + commit,
    ]


if __name__ == "__main__":
    run()
