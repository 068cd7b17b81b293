"""Cost of a row with filters over another table, beside one plain filter for each subscription.

A thousand subscriptions take the rows of one tenant each: by `tenant = n`, and by `customer IN
(SELECT id FROM customers WHERE tenant = n)`. Measured in this process, from frames to records, as
in `bench.subscriptions`; all of a gateway's work on a row is that and what `bench --only stream`
measures. Times are the best of several rounds.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Sequence

from bench.fixed import FixedCatalog, OneId
from gateway.copy import Snapshot
from gateway.definitions.model import (
    ALL_OPERATIONS,
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
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.inner_changes import InnerChanges
from gateway.rowfilter import Selection, compile_filter, selection_of
from gateway.runtime.loop.memory import rare_collections
from gateway.subselects.following import Following, OuterTable
from gateway.subselects.formula import Plain, SetTest, SetTestKind, Subselect
from gateway.subselects.views import TableViews
from gateway.transactions import Assembler, Event, Series, Transaction

__all__ = ["run"]

SUBSCRIPTIONS = 1_000
CUSTOMERS = 10_000
CHANGES = 20_000
SIZES = (1, 10, 1_000)
ROUNDS = 5
_AT_ONCE = 2_000  # frames, as the gateway takes them
_ORDERS_OID, _CUSTOMERS_OID = 16384, 16390


def _column(name: str, number: int, oid: int, kind: str) -> Column:
    return Column(name, number, oid, -1, kind, oid, -1, "b", False, "", None)


_ORDERS = Table(
    _ORDERS_OID,
    "public",
    "orders",
    "r",
    (
        _column("id", 1, 20, "bigint"),
        _column("customer", 2, 23, "integer"),
        _column("tenant", 3, 23, "integer"),
        _column("note", 4, 25, "text"),
    ),
    ReplicaIdentity.DEFAULT,
    ("id", "customer", "tenant"),
    ("id",),
)
_NAMES = tuple(column.name for column in _ORDERS.columns)
_INNER = Table(
    _CUSTOMERS_OID,
    "public",
    "customers",
    "r",
    (_column("id", 1, 23, "integer"), _column("tenant", 2, 23, "integer")),
    ReplicaIdentity.DEFAULT,
    ("id", "tenant"),
    ("id",),
)


def run() -> None:
    """Measure and print."""
    print(
        f"\n{SUBSCRIPTIONS:,} subscriptions, CPU us a change, frames to records;"
        f" load average {os.getloadavg()[0]:.1f}\n\n"
        f"{'':28}{'tenant = n':>12}{'IN (SELECT ...)':>17}{'rate':>8}"
    )
    for size in SIZES:
        with rare_collections():
            plain, selected = _measure(_plain(), size), _measure(_subselects(), size)
        title = f"transactions of {size:,}"
        print(f"{title:28}{plain:12.2f}{selected:17.2f}{plain / selected:8.2f}", flush=True)


def _measure(router: Router, size: int) -> float:
    frames = _frames(size)
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        assembler, records = Assembler(series=True), 0
        for first in range(0, len(frames), _AT_ONCE):
            for event in assembler.push(frames[first : first + _AT_ONCE]):
                records += _route(router, event)
        best = min(best, time.process_time() - started)
        assert records >= CHANGES
    return best / CHANGES * 1e6


def _route(router: Router, event: Event) -> int:
    records = 0
    while isinstance(event, Series) and event:
        routed = router.route_series(event, 5_000)
        records += _route(router, event.pop()) if routed is None else len(routed.records)
    if isinstance(event, Transaction):
        records += sum(len(piece) for piece in router.route(event))
    return records


def _plain() -> Router:
    routes, settings = _routes(lambda n: f"(tenant = {n})", None)
    return Router(routes, settings)


def _subselects() -> Router:
    tests = {f"s{n}": _test(n) for n in range(SUBSCRIPTIONS)}
    orders = TableViews(_ORDERS, _NAMES, tests.values())
    inner = [test.subselect.filter for test in tests.values()]
    customers = TableViews(_INNER, ("id", "tenant"), inner, [("id",)])
    following = Following([OuterTable(_ORDERS_OID, (0,), tests, orders.of)], _selection, {})
    rows = (customers.of([b"%d" % n, b"%d" % (n % SUBSCRIPTIONS)]) for n in range(CUSTOMERS))
    for _ in following.place_table(_CUSTOMERS_OID, Snapshot(1, 1, frozenset()), rows):
        pass
    for name in tests:
        following.moves[_ORDERS_OID].begin_copy(name)
    routes, settings = _routes(lambda _: None, MovingTables(following, {_ORDERS_OID: _NAMES}))
    return Router(routes, settings, inner=InnerChanges(following, lambda *_: ()))


def _selection(oid: int, plain: Plain) -> Selection | None:
    return selection_of([compile_filter(plain.text, _INNER.columns)])


def _test(number: int) -> SetTest:
    inner = Subselect(_CUSTOMERS_OID, ("id",), Plain(f"(tenant = {number})"))
    return SetTest(SetTestKind.IN, ("customer",), inner)


def _routes(
    where: Callable[[int], str | None], moving: MovingTables | None
) -> tuple[RelationRoutes, RoutingSettings]:
    names = [f"s{n}" for n in range(SUBSCRIPTIONS)]
    publishes = tuple(_publish(name, where(n)) for n, name in enumerate(names))
    plan = Plan(
        {_ORDERS_OID: _ORDERS},
        tuple(SubscriptionDefinition(name, ("p",)) for name in names),
        publishes,
        (),
        (),
    )
    settings = RoutingSettings("bench", "bench", "1", {f"{n}.public.orders": 1 for n in names})
    routes = RelationRoutes(plan, settings, FixedCatalog(_ORDERS), OneId(), moving=moving)
    return routes, settings


def _publish(subscription: str, where: str | None) -> Publish:
    clauses = () if where is None else (FilterClause("p", _ORDERS_OID, where),)
    filters: dict[Operation, tuple[FilterClause, ...]] = {
        o: clauses for o in ALL_OPERATIONS if o is not Operation.TRUNCATE
    }
    return Publish(subscription, _ORDERS_OID, _ORDERS_OID, ALL_OPERATIONS, filters, None)


def _frames(size: int) -> list[bytes]:
    relation = b"R" + struct.pack(">I", _ORDERS_OID) + b"public\0orders\0d"
    relation += struct.pack(">H", len(_ORDERS.columns))
    for column in _ORDERS.columns:
        relation += struct.pack(">B", column.name in _ORDERS.identity) + column.name.encode()
        relation += b"\0" + struct.pack(">Ii", column.type_oid, -1)
    frames: list[bytes] = []
    for first in range(0, CHANGES, size):
        lsn = 1_000_000 + first * 100
        header = b"w" + struct.pack(">QQq", lsn, lsn, 0)
        frames.append(header + b"B" + struct.pack(">QqI", lsn, 0, 7 + first))
        if first == 0:
            frames.append(header + relation)
        frames += [header + _change(number) for number in range(first, first + size)]
        frames.append(header + b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0))
    return frames


def _change(number: int) -> bytes:
    """Return one of 83 inserts, 12 updates and 5 deletes in a hundred, as in `bench.load`."""
    customer = number * 7919 % CUSTOMERS
    row = (b"%d" % number, b"%d" % customer, b"%d" % (customer % SUBSCRIPTIONS))
    oid = struct.pack(">I", _ORDERS_OID)
    match number % 100:
        case n if n < 83:
            return b"I" + oid + b"N" + _tuple((*row, b"some text that nobody reads"))
        case n if n < 95:
            return b"U" + oid + b"N" + _tuple((*row, b"some text that nobody reads"))
        case _:
            return b"D" + oid + b"K" + _tuple((*row, None))


def _tuple(row: Sequence[bytes | None]) -> bytes:
    data = struct.pack(">H", len(row))
    for value in row:
        data += b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value
    return data


if __name__ == "__main__":
    run()
