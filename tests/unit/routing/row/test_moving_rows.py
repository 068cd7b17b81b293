"""Rows whose filters read another table: records by what a subscriber has, and by the sets."""

from __future__ import annotations

from gateway.copy import Snapshot
from gateway.core.lsn import Lsn
from gateway.definitions.model import TableCopy
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.pgoutput.messages import UNCHANGED, Delete, Insert, Relation, Truncate, Update
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.row.inner_changes import InnerChanges, InnerRelation
from gateway.routing.row.moved_rows import MovedRows
from gateway.routing.row.transaction_state import TransactionState
from gateway.subselects.following import Following, OuterTable
from gateway.subselects.formula import Plain, SetTest, SetTestKind, Subselect
from gateway.subselects.moves.reads import MoveChunk
from gateway.subselects.views import TableViews
from tests.support.gateway.routing_scene import (
    T1,
    Gateway,
    Seen,
    column,
    data,
    full_tuple,
    key_tuple,
    publish,
    relation_of,
    table,
    update,
)

CUSTOMERS = 16390
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
NAMES = ("id", "customer", "doc")


def tenant(number: int) -> SetTest:
    inner = Subselect(CUSTOMERS, ("id",), Plain(f"tenant = {number}"))
    return SetTest(SetTestKind.IN, ("customer",), inner)


class Scene:
    """Two tenants' subscriptions, and a third one without a filter."""

    def __init__(self) -> None:
        formulas = {"one": tenant(1), "two": tenant(2)}
        orders = TableViews(ORDERS_TABLE, NAMES, formulas.values())
        tests = list(formulas.values())
        self.customers = TableViews(
            CUSTOMERS_TABLE,
            ("id", "tenant"),
            [test.subselect.filter for test in tests],
            [("id",)],
        )
        outer = OuterTable(T1, (0,), formulas, orders.of)
        self.following = Following([outer], lambda *_: None, {})
        for _ in self.following.place_table(CUSTOMERS, Snapshot(1, 1, frozenset()), []):
            pass
        self.moves = self.following.moves[T1]
        for name in formulas:
            self.moves.begin_copy(name)
        self.gateway = Gateway(
            [ORDERS_TABLE],
            [publish(name, relation=T1) for name in ("one", "two", "all")],
            copies=[TableCopy(name, T1, (), NAMES) for name in formulas],
            moving=MovingTables(self.following, {T1: NAMES}),
            inner=InnerChanges(self.following, self.inner),
        )
        self.gateway.commit(relation_of(ORDERS_TABLE), relation_of(CUSTOMERS_TABLE))

    def inner(self, relation: Relation) -> InnerRelation | None:
        return (CUSTOMERS, self.customers) if relation.name == "customers" else None

    def commit(self, *messages: object) -> list[tuple[str, str | None, str | None]]:
        """One transaction; its records: subscription, operation, key's first column."""
        found = data(self.gateway.commit(*messages))  # type: ignore[arg-type]
        return [(seen.topic.split(".")[0], seen.op, first(seen)) for seen in found]


def first(seen: Seen) -> str | None:
    assert seen.key is not None
    return f"{seen.key['id']} {seen.key['customer']}"


def order(number: int, customer: int) -> Insert:
    return Insert(T1, (b"%d" % number, b"%d" % customer, b"doc"))


def customer(number: int, of: int) -> Insert:
    return Insert(CUSTOMERS, (b"%d" % number, b"%d" % of))


def moved(number: int, before: int, after: int) -> object:
    old = key_tuple(b"%d" % number, b"%d" % before)
    return update(old, b"%d" % number, b"%d" % after, oid=CUSTOMERS)


def test_moved_rows_are_sent_as_they_are_where_they_are_placed() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), order(1, 7), order(2, 7))
    scene.moves.begin_copy("one")
    scene.commit(moved(7, 1, 2))
    request = scene.moves.request()
    assert request is not None
    rows = [b"1\t7\tdoc\n", b"2\t7\t\\N\n"]
    chunk = MoveChunk(request, rows, Snapshot(99, 99, frozenset()), Lsn(5), True)
    copies = scene.gateway.plan.copies
    route = MovedRows(scene.gateway.routes.copy_route(copies, ["id"]), full=False)
    tx = TransactionState(
        TransactionContext("gw", "db", "1", None, Lsn(5), 0, None, "true", 1),
        HeaderMaker(Lsn(5), None, None, None),
    )

    (records,) = route.publish(scene.moves.place(chunk), 5, tx)

    found = [scene.gateway.see(record) for record in records]
    assert [(seen.topic.split(".")[0], seen.op, first(seen)) for seen in found] == [
        ("one", "d", "1 7"),
        ("one", None, "1 7"),
        ("two", "r", "1 7"),
        ("one", "d", "2 7"),
        ("one", None, "2 7"),
        ("two", "r", "2 7"),
    ]
    assert {seen.headers["commit_lsn"] for seen in found} == {"00000000/00000005"}
    assert scene.moves.is_settled


def test_copied_rows_pass_by_the_sets_where_they_are_placed() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), customer(8, 2))
    route = scene.gateway.routes.copy_route(scene.gateway.plan.copies, ["id"])
    tx = TransactionState(
        TransactionContext("gw", "db", "1", None, Lsn(5), 0, None, "true", 1),
        HeaderMaker(Lsn(5), None, None, None),
    )

    (records,) = route.publish([b"1\t7\tdoc\n", b"2\t8\tdoc\n", b"3\t9\tdoc\n"], 5, tx)

    found = [scene.gateway.see(record) for record in records]
    assert [(seen.topic.split(".")[0], first(seen)) for seen in found] == [
        ("one", "1 7"),
        ("two", "2 8"),
    ]


def test_a_row_reaches_the_tenant_of_its_customer() -> None:
    scene = Scene()

    assert scene.commit(customer(7, 1), order(1, 7), order(2, 9)) == [
        ("all", "c", "1 7"),
        ("one", "c", "1 7"),
        ("all", "c", "2 9"),
    ]
    scene.moves.begin_copy("one")  # nothing was there before: what became unsettled is settled
    assert scene.commit(Update(T1, None, (b"1", b"7", UNCHANGED))) == [
        ("all", "u", "1 7"),
        ("one", "u", "1 7"),
    ]


def test_sets_count_as_of_the_end_for_the_new_row_and_of_the_beginning_for_the_old_one() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), order(1, 7))
    scene.moves.begin_copy("one")

    found = scene.commit(update(None, b"1", b"7", b"doc"), moved(7, 1, 2))

    assert found == [
        ("all", "u", "1 7"),
        ("one", "d", "1 7"),
        ("one", None, "1 7"),
        ("two", "c", "1 7"),
    ]


def test_a_row_of_an_unsettled_slice_is_replaced_and_is_no_half_of_a_key_change() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), customer(8, 1), order(1, 7))

    old = key_tuple(b"1", b"7", None)
    seen = data(scene.gateway.commit(update(old, b"1", b"8", b"doc")))

    of_one = [each for each in seen if each.topic.startswith("one")]
    assert [(each.op, first(each)) for each in of_one] == [
        ("d", "1 7"),
        (None, "1 7"),
        ("c", "1 8"),
    ]
    assert not any("rekey" in each.headers or each.other_key for each in of_one)
    of_all = [each for each in seen if each.topic.startswith("all")]
    assert [each.headers.get("rekey") for each in of_all] == ["old", "old", "new"]


def test_a_row_without_its_values_is_not_sent_as_new() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), order(1, 9))
    scene.moves.begin_copy("one")

    old = key_tuple(b"1", b"9", None)
    assert scene.commit(Update(T1, old, (b"1", b"7", UNCHANGED))) == [
        ("all", "d", "1 9"),
        ("all", None, "1 9"),
        ("all", "c", "1 7"),
    ]
    assert scene.moves.state.keys == {(b"1",): {"one"}}


def test_a_deleted_row_and_a_truncate_reach_who_may_have_it() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), order(1, 7), order(2, 7))
    deleted = scene.commit(Delete(T1, full_tuple(b"1", b"7", b"doc")))

    assert deleted == [
        ("all", "d", "1 7"),
        ("all", None, "1 7"),
        ("one", "d", "1 7"),
        ("one", None, "1 7"),
    ]
    truncated = data(scene.gateway.commit(Truncate(False, False, (T1,))))
    assert sorted(seen.topic.split(".")[0] for seen in truncated) == ["all", "one", "two"]
    assert scene.moves.is_settled
