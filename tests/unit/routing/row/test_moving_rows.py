"""Rows whose filters read another table: records by what a subscriber has, and by the sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.copy import Snapshot
from gateway.core.errors import SchemaRefusedError
from gateway.core.lsn import Lsn
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.pgoutput.messages import UNCHANGED, Delete, Truncate, Update
from gateway.routing.row.moved_rows import MovedRows
from gateway.routing.row.transaction_state import TransactionState
from gateway.subselects.moves.reads import MoveChunk
from schemas.settings.masks import Mask
from tests.support.gateway.moving_scene import (
    MovingScene,
    customer,
    first,
    moved,
    order,
    shown,
    tenant,
)
from tests.support.gateway.routing_scene import (
    T1,
    Schemas,
    data,
    full_tuple,
    key_tuple,
    publish,
    update,
)


class Scene(MovingScene):
    """Two tenants' subscriptions, and a third one without a filter."""

    def __init__(self) -> None:
        everybody = [publish(name, relation=T1) for name in ("one", "two", "all")]
        super().__init__({"one": tenant(1), "two": tenant(2)}, everybody)


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
    route = MovedRows(scene.gateway.routes.copy_route(copies, ["id"]), full=True)
    tx = TransactionState(
        TransactionContext("gw", "db", "1", None, Lsn(5), 0, None, "true", 1),
        HeaderMaker(Lsn(5), None, None, None),
    )

    (records,) = route.publish(scene.moves.place(chunk), 5, tx)

    found = [scene.gateway.see(record) for record in records]
    assert shown(found) == [
        ("one", "d", "1 7"),
        ("one", None, "1 7"),
        ("two", "r", "1 7"),
        ("one", "d", "2 7"),
        ("one", None, "2 7"),
        ("two", "r", "2 7"),
    ]
    assert {seen.headers["commit_lsn"] for seen in found} == {"00000000/00000005"}
    removed = [seen.value["before"] for seen in found if seen.value and seen.op == "d"]
    assert [row["doc"] for row in removed] == [None, None], "not for who has the row no more"
    assert scene.moves.is_settled

    seen = scene.gateway.commit(order(3, 7))
    ends = {each.topic: each.value["topics"] for each in seen if each.op == "END" and each.value}
    counts = [topic["records"] for topic in ends["two.transaction"]]
    assert counts == [1], "rows that moved belong to no transaction"


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


def test_rows_are_looked_up_again_once_their_slice_is_settled() -> None:
    scene = Scene()
    scene.commit(customer(7, 1), order(1, 7))

    scene.commit(order(2, 7))  # not calm
    scene.settle()
    assert scene.commit(order(3, 7)) == [("all", "c", "3 7"), ("one", "c", "3 7")]

    route = scene.gateway.routes.by_oid[T1]
    (moving,) = route.moving
    assert moving.looked_up is not None
    lookups = [i.lookup for targets in moving.looked_up.values() for i in targets.indexes]
    assert [*lookups] == ([{b"7": (0,)}] if route.compiled is not None else [{}])


class Refusing(Schemas):
    """A registry that refuses the values of one topic."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        if subject == "one.public.orders-value":
            raise SchemaRefusedError(f"refuses {subject}", reason="not compatible")
        return super().register(subject, schema)


def test_a_row_of_a_refused_schema_is_not_sent() -> None:
    publishes = [publish(name, relation=T1) for name in ("one", "two")]
    scene = MovingScene({"one": tenant(1), "two": tenant(2)}, publishes, schemas=Refusing())
    scene.commit(customer(7, 1), customer(8, 2))
    scene.settle()

    seen = data(scene.gateway.commit(order(1, 7), order(2, 8)))

    assert [each.topic for each in seen] == ["gw.error", "two.public.orders"]
    assert list(scene.gateway.routes.addresses.refused) == [("one", T1)]


def test_a_masked_column_is_masked_however_its_row_moves() -> None:
    masks = (("doc", Mask("null")),)
    publishes = [publish("one", relation=T1, masks=masks), publish("two", relation=T1)]
    scene = MovingScene({"one": tenant(1), "two": tenant(2)}, publishes)
    scene.commit(customer(7, 1), customer(8, 2))
    scene.settle()

    changed = update(key_tuple(b"2", b"8", None), b"2", b"7", b"new")
    seen = data(scene.gateway.commit(order(1, 7), order(2, 8), changed))

    found = [(each.topic, each.op, each.value["after"]) for each in seen if each.value]
    assert [(topic[:3], op, after and after["doc"]) for topic, op, after in found] == [
        ("one", "c", None),
        ("two", "c", "doc"),
        ("one", "c", None),
        ("two", "d", None),
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
