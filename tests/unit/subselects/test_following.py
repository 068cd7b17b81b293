"""What a gateway begins with: sets that are built, moves that are read back, and faults."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from types import FrameType

import pytest

from gateway.copy import Snapshot
from gateway.core.errors import ValueFormatError
from gateway.core.watermark import StatePart, StatePartKind
from gateway.pgoutput.messages import UNCHANGED
from gateway.subselects.following import Following, OuterTable
from gateway.subselects.formula import (
    AnyOf,
    Formula,
    Plain,
    RowView,
    SetTest,
    SetTestKind,
    Subselect,
)
from gateway.subselects.sets import building
from gateway.subselects.views import TableViews
from tests.unit.subselects.tables import CUSTOMERS, ORDERS

NAMES = tuple(column.name for column in ORDERS.columns)
TENANT = Subselect(CUSTOMERS.oid, ("id",), Plain("tenant = 1"))
FORMULA = SetTest(SetTestKind.IN, ("customer",), TENANT)
ORDER_VIEWS = TableViews(ORDERS, NAMES, [FORMULA])
CUSTOMER_NAMES = tuple(column.name for column in CUSTOMERS.columns)
CUSTOMER_VIEWS = TableViews(CUSTOMERS, CUSTOMER_NAMES, [TENANT.filter], [TENANT.columns])
SEES_ALL = Snapshot(100, 100, frozenset())


def following(parts: dict[StatePartKind, dict[str, bytes]]) -> Following:
    table = OuterTable(ORDERS.oid, (0,), {"s": FORMULA}, ORDER_VIEWS.of)
    return Following([table], lambda *_: None, parts)


def customer(number: bytes, tenant: bytes | None = b"1") -> tuple[bytes | None, ...]:
    return (number, b"7", tenant, b"name", None)


def build(found: Following, rows: Iterable[RowView], oid: int = TENANT.table_oid) -> None:
    assert not list(found.place_table(oid, SEES_ALL, rows))
    found.finish_table(oid)


def built() -> tuple[Following, dict[StatePartKind, dict[str, bytes]]]:
    found = following({})
    rows = [CUSTOMER_VIEWS.of(customer(b"%d" % number)) for number in range(5)]
    build(found, rows)
    found.moves[ORDERS.oid].begin_copy("s")
    parts: dict[StatePartKind, dict[str, bytes]] = {"set": {}, "moves": {}}
    for kind, name, value in found.pop_parts():
        if value is not None:
            parts[kind][name] = value
    return found, parts


def test_a_set_without_records_is_built_and_its_tables_are_copied() -> None:
    found = following({})

    assert found.unbuilt == [TENANT]
    assert found.moves[ORDERS.oid].whole == {"s"}
    whole, progress = found.pop_parts()
    assert whole == StatePart("moves", f"{ORDERS.oid}/w", b"\1\3\2s")
    assert progress.name.startswith(f"{ORDERS.oid}/p")
    build(found, [CUSTOMER_VIEWS.of(customer(b"3"))])
    assert found.is_built(FORMULA)
    assert (b"3",) in found.sets[TENANT]


def test_what_was_committed_is_there_again() -> None:
    first, parts = built()
    transaction = first.begin(7)
    transaction.inner(
        CUSTOMERS.oid,
        CUSTOMER_VIEWS.of(customer(b"3")),
        CUSTOMER_VIEWS.of(customer(b"3", b"2")),
    )
    transaction.apply()
    transaction.end()
    for kind, name, value in first.pop_parts():
        assert value is not None
        parts[kind][name] = value

    again = following(parts)

    assert again.faults == []
    assert (b"3",) not in again.sets[TENANT]
    assert (b"4",) in again.sets[TENANT]
    request = again.moves[ORDERS.oid].request()
    assert request is not None
    assert request.values == ((b"3",),)
    assert again.pop_parts() == (), "nothing has changed since"


def test_what_does_not_read_is_named_removed_and_made_again() -> None:
    _, parts = built()
    leaf = next(name for name in parts["set"] if "/" in name)
    broken: dict[StatePartKind, dict[str, bytes]] = {
        "set": {**parts["set"], leaf: b"\xff", "other": b"x", "other/0.0": b""},
        "moves": {f"{ORDERS.oid}/sx": b"\xff", "99/w": b"\1"},
    }

    found = following(broken)

    assert [fault.split(":")[0] for fault in found.faults] == [
        f"set {TENANT.name}",
        f"moves of the table with OID {ORDERS.oid}",
    ]
    assert found.unbuilt == [TENANT]
    assert found.moves[ORDERS.oid].whole == {"s"}
    removed = {part[:2] for part in found.pop_parts() if part.value is None}
    assert removed == {
        *(("set", name) for name in broken["set"]),
        *(("moves", name) for name in broken["moves"]),
    }


def test_rows_are_seen_in_canonical_form() -> None:
    view = ORDER_VIEWS.of((b"1", b"5", None, b"x", b"2", b"{}"))

    assert view.value(("customer",)) == (b"5",)
    assert view.text("code") == b"x"
    assert CUSTOMER_VIEWS.of(customer(b"1")).plain(Plain("tenant = 1"))
    assert not CUSTOMER_VIEWS.of(customer(b"1", None)).plain(Plain("tenant = 1"))
    with pytest.raises(ValueFormatError, match="was not sent"):
        ORDER_VIEWS.of((b"1", UNCHANGED, None, None, None, None)).value(("customer",))


def test_a_standbys_snapshot_that_leaves_a_change_open_places_nothing() -> None:
    found = following({})
    transaction = found.begin(50)
    transaction.inner(TENANT.table_oid, None, CUSTOMER_VIEWS.of(customer(b"5")))
    transaction.apply()

    assert not found.may_place(TENANT.table_oid, Snapshot(45, 60, None)), "it may have been read"
    assert found.may_place(TENANT.table_oid, Snapshot(45, 50, None)), "it was not"
    assert found.may_place(TENANT.table_oid, Snapshot(51, 60, None)), "it was"
    assert found.may_place(TENANT.table_oid, Snapshot(45, 60, frozenset({50})))


def test_a_long_value_is_a_member_by_its_digest_and_no_slice() -> None:
    formula = SetTest(SetTestKind.IN, ("code",), Subselect(CUSTOMERS.oid, ("name",), None))
    long, other = b"x" * 2_000_000, b"x" * 2_000_001
    orders = TableViews(ORDERS, NAMES, [formula])
    customers = TableViews(CUSTOMERS, CUSTOMER_NAMES, [None], [("name",)])
    table = OuterTable(ORDERS.oid, (0,), {"s": formula}, orders.of)
    found = Following([table], lambda *_: None, {})
    build(found, [], CUSTOMERS.oid)
    moves = found.moves[ORDERS.oid]
    moves.begin_copy("s")

    transaction = found.begin(7)
    transaction.inner(CUSTOMERS.oid, None, customers.of((b"1", b"7", b"1", long, None)))
    transaction.apply()
    transaction.end()

    order = [None] * len(NAMES)
    place = NAMES.index("code")
    assert moves.wants("s", orders.of([*order[:place], long, *order[place + 1 :]]))
    assert not moves.wants("s", orders.of([*order[:place], other, *order[place + 1 :]]))
    assert moves.whole == {"s"}, "no row can be asked for by a digest"
    assert all(len(part.value or b"") < 1000 for part in found.pop_parts())


def kept(
    found: Following, parts: dict[StatePartKind, dict[str, bytes]]
) -> dict[StatePartKind, dict[str, bytes]]:
    """Commit: what a later process finds."""
    for kind, name, value in found.pop_parts():
        if value is None:
            parts[kind].pop(name, None)
        else:
            parts[kind][name] = value
    return parts


def test_a_stale_set_stays_until_its_table_is_read_and_the_difference_moves() -> None:
    first, parts = built()
    transaction = first.begin(7)
    transaction.inner(CUSTOMERS.oid, None, CUSTOMER_VIEWS.of(customer(b"8")))
    transaction.inner_stale(CUSTOMERS.oid)
    transaction.apply()
    assert (b"8",) not in first.sets[TENANT], "the read will have it"
    kept(first, parts)

    for found in (first, following(parts)):  # and after a kill
        moves = found.moves[ORDERS.oid]
        assert list(moves.unsettled_subscriptions()) == ["s"]
        assert not found.unbuilt
        assert found.is_built(FORMULA), "rows are judged by the set as it was"
        assert moves.request() is None
        found.unread.begin_reads()
        later = found.begin(120)
        later.inner(CUSTOMERS.oid, CUSTOMER_VIEWS.of(customer(b"9")), None)
        later.apply()  # of a row that the set never had
        assert found.may_place(CUSTOMERS.oid, SEES_ALL)
        build(found, [CUSTOMER_VIEWS.of(customer(b"%d" % number)) for number in range(3, 10)])

        request = moves.request()
        assert request is not None
        assert {*request.values} == {(b"%d" % number,) for number in (0, 1, 2, 5, 6, 7, 8)}
        assert moves.whole == set()
        again = following(kept(found, {kind: {**of} for kind, of in parts.items()}))
        assert not again.unread.tables
        values = {value for (value,) in again.sets[TENANT].values()}
        assert values == {b"%d" % number for number in range(3, 9)}


def test_a_read_that_began_before_a_set_was_stale_is_not_placed() -> None:
    found, _ = built()
    found.note_stale(CUSTOMERS.oid)
    found.unread.begin_reads()
    assert found.may_place(CUSTOMERS.oid, SEES_ALL)
    found.note_stale(CUSTOMERS.oid)
    assert not found.may_place(CUSTOMERS.oid, SEES_ALL)


def test_a_first_read_that_is_void_is_what_a_set_begins_with() -> None:
    found = following({})
    found.unread.begin_reads()
    removed(found, b"4", xid=120)
    found.note_stale(CUSTOMERS.oid)  # partitions may come and go while each read goes on
    assert found.may_place(CUSTOMERS.oid, SEES_ALL)
    build(found, [CUSTOMER_VIEWS.of(customer(number)) for number in (b"3", b"4")])

    assert found.is_built(FORMULA), "copies begin"
    found.moves[ORDERS.oid].begin_copy("s")
    parts: dict[StatePartKind, dict[str, bytes]] = {"set": {}, "moves": {}}
    kept(found, parts)
    for one in (found, following(parts)):  # and after a kill
        assert one.is_built(FORMULA)
        assert list(one.moves[ORDERS.oid].unsettled_subscriptions()) == ["s"]
        assert one.unread.begin_reads() == {CUSTOMERS.oid}
        one.note_stale(CUSTOMERS.oid)
        assert not one.may_place(CUSTOMERS.oid, SEES_ALL), "another read is not needed to begin"
        one.unread.begin_reads()
    build(found, [CUSTOMER_VIEWS.of(customer(number)) for number in (b"2", b"4")])

    assert [*found.sets[TENANT].values()] == [(b"2",)], "what no read has seen counts once"
    request = found.moves[ORDERS.oid].request()
    assert request is not None
    assert {*request.values} == {(b"2",), (b"3",)}


@pytest.mark.parametrize("emptied", [False, True])
def test_a_set_that_begins_with_a_void_read_has_the_changes_that_it_has_not_seen(
    emptied: bool,
) -> None:
    found = following({})
    found.unread.begin_reads()
    change = found.begin(120)  # by one transaction, such as a load every night
    if emptied:
        change.inner_truncate(CUSTOMERS.oid)
    else:
        change.inner(CUSTOMERS.oid, CUSTOMER_VIEWS.of(customer(b"5")), None)  # the read lacks it
    change.inner(CUSTOMERS.oid, None, CUSTOMER_VIEWS.of(customer(b"7")))
    change.apply()
    change.end()
    found.note_stale(CUSTOMERS.oid)
    build(found, [CUSTOMER_VIEWS.of(customer(b"3"))])

    assert found.is_built(FORMULA)
    expected = {(b"7",)} if emptied else {(b"3",), (b"7",)}
    assert {*found.sets[TENANT].values()} == expected


def test_too_many_differences_replace_the_set_and_copy_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "MOST_TOGGLED", 3)
    found, parts = built()
    found.note_stale(CUSTOMERS.oid)
    found.unread.begin_reads()
    build(found, [CUSTOMER_VIEWS.of(customer(b"%d" % number)) for number in range(4, 9)])

    assert found.moves[ORDERS.oid].whole == {"s"}
    again = following(kept(found, parts))
    assert {value for (value,) in again.sets[TENANT].values()} == {b"4", b"5", b"6", b"7", b"8"}


def removed(found: Following, number: bytes, *, xid: int) -> None:
    """Let a transaction remove a row."""
    transaction = found.begin(xid)
    transaction.inner(CUSTOMERS.oid, CUSTOMER_VIEWS.of(customer(number)), None)
    transaction.apply()
    transaction.end()


def test_a_set_that_lacks_what_a_transaction_removes_is_stale() -> None:
    found, parts = built()
    removed(found, b"9", xid=120)  # of a row that came while its partition was UNLOGGED

    moves = found.moves[ORDERS.oid]
    assert found.unread.awaits(CUSTOMERS.oid)
    assert found.pop_disagreed() == {CUSTOMERS.oid}
    assert found.pop_disagreed() == set(), "said once"
    assert list(moves.unsettled_subscriptions()) == ["s"]
    assert moves.whole == set(), "no table is copied again"
    assert following(kept(found, parts)).unread.tables == {CUSTOMERS.oid}, "also after a kill"
    found.unread.begin_reads()
    seeing = Snapshot(121, 121, frozenset())
    assert not list(found.place_table(CUSTOMERS.oid, seeing, [CUSTOMER_VIEWS.of(customer(b"1"))]))
    found.finish_table(CUSTOMERS.oid)
    request = moves.request()
    assert request is not None
    assert {*request.values} == {(b"%d" % number,) for number in (0, 2, 3, 4)}


@pytest.mark.parametrize("stale", [True, False], ids=["stale", "not_built"])
def test_a_read_that_lacks_what_a_later_transaction_removes_is_made_again(stale: bool) -> None:
    found = built()[0] if stale else following({})
    if stale:
        found.note_stale(CUSTOMERS.oid)
    found.unread.begin_reads()
    removed(found, b"9", xid=120)
    read = [CUSTOMER_VIEWS.of(customer(b"3"))]

    assert not list(found.place_table(CUSTOMERS.oid, SEES_ALL, read))
    found.finish_table(CUSTOMERS.oid)
    assert found.pop_disagreed() == {CUSTOMERS.oid}
    assert found.unread.awaits(CUSTOMERS.oid)
    assert found.unread.begin_reads() == {CUSTOMERS.oid}
    assert found.is_built(FORMULA), "rows are judged by the set as it was, or as it was read"
    values = {value for (value,) in found.sets[TENANT].values()}
    assert values == ({b"0", b"1", b"2", b"3", b"4"} if stale else {b"3"})
    assert "s" in found.moves[ORDERS.oid].unsettled_subscriptions()
    seeing = Snapshot(121, 121, frozenset())
    assert not list(found.place_table(CUSTOMERS.oid, seeing, read))
    assert not found.unread.awaits(CUSTOMERS.oid)
    found.finish_table(CUSTOMERS.oid)
    assert [*found.sets[TENANT].values()] == [(b"3",)]


@pytest.mark.parametrize("stale", [True, False], ids=["stale", "not_built"])
def test_a_read_before_a_truncate_and_such_a_removal_is_made_again(stale: bool) -> None:
    found = built()[0] if stale else following({})
    if stale:
        found.note_stale(CUSTOMERS.oid)
    found.unread.begin_reads()
    transaction = found.begin(120)
    transaction.inner_truncate(CUSTOMERS.oid)
    transaction.apply()
    transaction.end()
    removed(found, b"9", xid=121)

    assert not list(found.place_table(CUSTOMERS.oid, SEES_ALL, []))
    assert found.unread.awaits(CUSTOMERS.oid)


def test_changes_that_cannot_be_read_have_to_be_seen_by_the_read() -> None:
    found = following({})
    transaction = found.begin(120)
    transaction.inner_unknown(CUSTOMERS.oid, "column tenant is gone")
    transaction.apply()
    found.unread.begin_reads()
    assert not found.may_place(CUSTOMERS.oid, SEES_ALL)
    assert found.may_place(CUSTOMERS.oid, Snapshot(121, 121, frozenset()))
    assert not found.unread.pop_lost()

    found, _ = built()
    transaction = found.begin(120)
    transaction.inner_unknown(CUSTOMERS.oid, "column tenant is gone")
    transaction.apply()
    found.unread.begin_reads()
    assert not found.may_place(CUSTOMERS.oid, Snapshot(121, 121, frozenset()))
    assert found.unread.pop_lost() == {CUSTOMERS.oid: "column tenant is gone"}
    assert not found.unread.pop_lost(), "said once"


def test_markers_have_said_of_a_stale_set_that_rows_move_whatever_becomes_of_it() -> None:
    first, parts = built()
    first.note_stale(CUSTOMERS.oid)
    kept(first, parts)
    leaf = next(name for name in parts["set"] if "/" in name)
    parts["set"][leaf] = b"\xff"

    found = following(parts)

    assert found.unbuilt == [TENANT]
    assert found.moves[ORDERS.oid].was_unsettled("s")


def followed_by(other: int) -> Following:
    """One filter over customers, and others over a table of their own each."""
    formulas: dict[str, Formula] = {
        f"s{n}": replace(FORMULA, subselect=replace(TENANT, table_oid=90_000 + n))
        for n in range(other)
    }
    formulas["s"] = FORMULA
    views = TableViews(ORDERS, NAMES, formulas.values())
    return Following([OuterTable(ORDERS.oid, (0,), formulas, views.of)], lambda *_: None, {})


def calls_of_note_stale(found: Following) -> int:
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    build(found, [])
    sys.setprofile(note)
    try:
        found.note_stale(CUSTOMERS.oid)
    finally:
        sys.setprofile(None)
    assert "s" in found.moves[ORDERS.oid].unsettled_subscriptions()
    return count


def test_a_stale_set_costs_the_filters_over_its_table_and_no_others() -> None:
    assert calls_of_note_stale(followed_by(300)) == calls_of_note_stale(followed_by(1))


def test_a_subscription_waits_for_all_stale_sets_of_its_filter() -> None:
    other = replace(TENANT, table_oid=90_000)
    nested = replace(TENANT, table_oid=90_001, filter=SetTest(SetTestKind.IN, ("id",), other))
    formulas: dict[str, Formula] = {
        "s": AnyOf((FORMULA, replace(FORMULA, subselect=nested))),
        "t": FORMULA,
    }
    views = TableViews(ORDERS, NAMES, formulas.values())
    found = Following([OuterTable(ORDERS.oid, (0,), formulas, views.of)], lambda *_: None, {})
    moves = found.moves[ORDERS.oid]
    for oid in (CUSTOMERS.oid, 90_000, 90_001):
        build(found, [], oid)
    for name in formulas:
        moves.begin_copy(name)

    found.note_stale(CUSTOMERS.oid)
    found.note_stale(90_000)
    assert sorted(moves.unsettled_subscriptions()) == ["s", "t"]
    found.unread.begin_reads()
    build(found, [], CUSTOMERS.oid)
    assert list(moves.unsettled_subscriptions()) == ["s"]
    build(found, [], 90_000)
    assert moves.is_settled
