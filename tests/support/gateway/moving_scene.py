"""Orders whose subscriptions are chosen by their customers, through a router."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gateway.copy import Snapshot
from gateway.core.errors import UnfitKind
from gateway.definitions.model import Publish, Table, TableCopy
from gateway.pgoutput.messages import Insert, Message, Relation
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.row.inner_changes import InnerChanges, InnerRelation
from gateway.subselects.following import Following, OuterTable
from gateway.subselects.formula import (
    Formula,
    Plain,
    SetTest,
    SetTestKind,
    Subselect,
    subselects_of,
)
from gateway.subselects.views import TableViews
from tests.support.gateway.routing_scene import (
    T1,
    Gateway,
    Schemas,
    Seen,
    column,
    data,
    key_tuple,
    relation_of,
    table,
    update,
)

CUSTOMERS = 16390
QUARANTINED: tuple[UnfitKind, ...] = ("schema",)
ORDERS_TABLE = table(
    T1,
    "orders",
    (column("id", 1), column("customer", 2), column("doc", 3, 25, "text")),
    identity=("id", "customer"),
    primary_key=("id",),
)
CUSTOMERS_TABLE = table(
    CUSTOMERS,
    "customers",
    (column("id", 1), column("tenant", 2)),
    identity=("id", "tenant"),
    primary_key=("id",),
)


def tenant(
    number: int, kind: SetTestKind = SetTestKind.IN, columns: tuple[str, ...] = ("customer",)
) -> SetTest:
    values = ("id",) if len(columns) == 1 else ("id", "tenant")
    return SetTest(kind, columns, Subselect(CUSTOMERS, values, Plain(f"tenant = {number}")))


class MovingScene:
    """Subscriptions with `formulas`, and others, of `orders`; all sets are empty at first."""

    def __init__(
        self,
        formulas: Mapping[str, Formula],
        publishes: Collection[Publish],
        orders: Table = ORDERS_TABLE,
        schemas: Schemas | None = None,
    ) -> None:
        names = tuple(each.name for each in orders.columns)
        self.orders = TableViews(orders, names, formulas.values())
        subselects = {s for formula in formulas.values() for s in subselects_of(formula)}
        self.customers = TableViews(
            CUSTOMERS_TABLE,
            ("id", "tenant"),
            [each.filter for each in subselects],
            [each.columns for each in subselects],
        )
        outer = OuterTable(T1, (0,), formulas, self.orders.of)
        self.following = Following([outer], lambda *_: None, {})
        list(self.following.place_table(CUSTOMERS, Snapshot(1, 1, frozenset()), []))
        self.following.finish_table(CUSTOMERS)
        self.moves = self.following.moves[T1]
        self.settle()
        self.gateway = Gateway(
            [orders],
            list(publishes),
            copies=[TableCopy(name, T1, (), names) for name in formulas],
            moving=MovingTables(self.following, {T1: names}),
            inner=InnerChanges(self.following, self.inner),
            quarantined=QUARANTINED,
            schemas=schemas,
        )
        self.gateway.commit(relation_of(orders), relation_of(CUSTOMERS_TABLE))

    def settle(self) -> None:
        """Settle everything, as by a copy of each subscription."""
        for name in self.moves.formulas:
            self.moves.begin_copy(name)

    def inner(self, relation: Relation, _: bool) -> list[InnerRelation]:
        return [(CUSTOMERS, self.customers)] if relation.name == "customers" else []

    def commit(self, *messages: Message) -> list[tuple[str, str | None, str | None]]:
        """One transaction; its records: subscription, operation, key's first column."""
        return shown(data(self.gateway.commit(*messages)))


def shown(found: Sequence[Seen]) -> list[tuple[str, str | None, str | None]]:
    return [(seen.topic.split(".")[0], seen.op, first(seen)) for seen in found]


def first(seen: Seen) -> str | None:
    assert seen.key is not None
    return f"{seen.key['id']} {seen.key['customer']}"


def order(number: int, customer: int) -> Insert:
    return Insert(T1, (b"%d" % number, b"%d" % customer, b"doc"))


def customer(number: int, of: int) -> Insert:
    return Insert(CUSTOMERS, (b"%d" % number, b"%d" % of))


def moved(number: int, before: int, after: int) -> Message:
    old = key_tuple(b"%d" % number, b"%d" % before)
    return update(old, b"%d" % number, b"%d" % after, oid=CUSTOMERS)
