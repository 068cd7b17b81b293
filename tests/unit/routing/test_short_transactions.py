"""Short transactions that are routed together give what each of them gives alone."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest

from gateway._speedups.loader import INTERPRETED
from gateway.core.records import Record
from gateway.core.watermark import LastCommit
from gateway.pgoutput.messages import Delete, Insert, Message
from gateway.routing.row.native import why_not_built
from gateway.routing.row.record_buffer import PIECE_RECORDS
from gateway.transactions import Assembler, Series, Transaction
from tests.support.gateway.routing_scene import (
    CHILD,
    OTHER_CHILD,
    PARENT,
    T1,
    T1_TABLE,
    TWO_COLUMNS,
    Gateway,
    key_tuple,
    publish,
    relation_of,
    table,
    update,
)

T2 = T1 + 1
ODD = b" 1"  # PostgreSQL does not print it so: it is left to the interpreted path
TABLES = (
    T1_TABLE,
    table(T2, "t2", TWO_COLUMNS),
    table(PARENT, "parent", TWO_COLUMNS, kind="p", leaves=(CHILD, OTHER_CHILD)),
    table(CHILD, "child", TWO_COLUMNS, ancestors=(PARENT,)),
    table(OTHER_CHILD, "other", TWO_COLUMNS, ancestors=(PARENT,)),
)
PUBLISHED = (T1, T2, CHILD, OTHER_CHILD)
PUBLISHES = (
    publish("all"),
    publish("all", relation=T2),
    publish("all", relation=CHILD, target=PARENT),
    publish("all", relation=OTHER_CHILD, target=PARENT),
    publish("some", "(b < 3)"),
    publish("one", "(b = 2)"),
    publish("another", "(b = 3)"),
    publish("leaf", relation=CHILD),
)


def gateway(*, one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """Make one that knows all relations."""
    monkeypatch.setenv(INTERPRETED, "1" if one_by_one else "0")
    made = Gateway(TABLES, PUBLISHES, partitions=3)
    shown = [relation_of(each) for each in TABLES if each.oid in PUBLISHED]
    rows = [Insert(oid, (b"0", b"0")) for oid in PUBLISHED]
    made.commit(*shown, *rows)
    return made


def change(pick: random.Random, oid: int) -> Message:
    key = ODD if pick.random() < 0.03 else b"%d" % pick.randrange(100)
    row = (key, b"%d" % pick.randrange(5))
    match pick.randrange(5):
        case 0:
            return Delete(oid, key_tuple(key, None))
        case 1:
            return update(None, *row, oid=oid)
        case 2:
            return update(key_tuple(b"7", None), *row, oid=oid)
        case _:
            return Insert(oid, row)


def changes(pick: random.Random) -> list[Message]:
    oids = pick.choice((PUBLISHED, (T1,), (T1, T2), (CHILD, OTHER_CHILD), (CHILD, T1)))
    return [change(pick, pick.choice(oids)) for _ in range(pick.choice((1, 1, 1, 2, 3, 16, 20)))]


def test_any_mixture_of_tables_gives_the_same_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(seed)
    transactions = [changes(pick) for _ in range(2_000)]

    found: list[tuple[Sequence[Record], object, object]] = []
    for one_by_one in (True, False):
        routing = gateway(one_by_one=one_by_one, monkeypatch=monkeypatch)
        frames = [frame for each in transactions for frame in routing.frames(*each)]
        records = routing.route(frames)
        found.append((records, routing.router.tally(), routing.router.ended))
        at_least = 0 if one_by_one or why_not_built() is not None else 1_000
        assert (routing.in_series > at_least) is bool(at_least)

    assert found[0] == found[1]


def test_rows_of_one_tree_in_several_leaves_are_numbered_together(row_path: str) -> None:
    routing = Gateway(TABLES, PUBLISHES)
    shown = [relation_of(each) for each in TABLES if each.oid in PUBLISHED]
    routing.commit(*shown, *[Insert(oid, (b"0", b"0")) for oid in PUBLISHED])

    seen = routing.commit(Insert(CHILD, (b"1", b"0")), Insert(OTHER_CHILD, (b"2", b"0")))

    tree = [s.value for s in seen if s.topic == "all.public.parent"]
    assert [v["transaction"]["data_collection_order"] for v in tree if v] == [1, 2]
    (end,) = [s.value for s in seen if s.topic == "all.transaction"]
    assert end is not None
    assert end["topics"] == [{"topic": "all.public.parent", "records": 2}]


def test_a_transaction_that_is_left_out_of_a_series_leaves_no_trace_there(row_path: str) -> None:
    routing = Gateway(TABLES, PUBLISHES)
    routing.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"0")))
    before = routing.in_series

    records = routing.route(
        [
            *routing.frames(Insert(T1, (b"1", b"0"))),
            *routing.frames(Insert(T1, (b"2", b"0")), Insert(T1, (ODD, b"0"))),
            *routing.frames(Insert(T1, (b"3", b"0"))),
        ]
    )

    seen = [routing.see(record) for record in records]
    assert [s.key for s in seen if s.topic == "all.public.t1"] == [
        {"a": 1}, {"a": 2}, {"a": 1}, {"a": 3}
    ]  # fmt: skip
    assert [s.headers["seq"] for s in seen if s.topic == "all.public.t1"] == ["1", "1", "2", "1"]
    ends = [s.value["topics"] for s in seen if s.topic == "all.transaction" and s.value]
    assert [topics[0]["records"] for topics in ends] == [1, 2, 1]
    assert routing.in_series - before == (2 if row_path == "compiled" else 0)


def test_a_piece_ends_behind_the_transaction_that_fills_it(row_path: str) -> None:
    routing = Gateway([T1_TABLE], [publish(f"s{n}") for n in range(300)])
    routing.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"0")))
    frames = [f for n in range(9) for f in routing.frames(Insert(T1, (b"%d" % n, b"0")))]
    if row_path == "interpreted":
        assert not routing.router.routes_series
        return
    (series,) = Assembler(series=True).push(frames)
    assert isinstance(series, Series)

    routed = routing.router.route_series(series, 5_000)

    assert routed is not None
    assert routed.transactions == 2
    assert len(routed.records) == 1200 > PIECE_RECORDS
    assert len(series) == 7

    filled = routing.router.route_series(series, 1)

    assert filled is not None
    assert filled.transactions == 1


def test_the_end_of_what_was_routed_is_that_of_its_last_transaction(row_path: str) -> None:
    routing = Gateway([T1_TABLE], [publish()])
    routing.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"0")))
    frames: list[bytes] = []
    for xid in (9, 4_000_000_000, 11, 12):
        for frame in routing.frames(Insert(T1, (b"%d" % (xid % 100), b"0"))):
            tag = frame[25:26]
            if tag == b"B":
                frame = frame[:34] + struct.pack(">qI", xid * 1_000, xid)
            elif tag == b"C":
                frame = frame[:43] + struct.pack(">q", xid * 1_000)
            frames.append(frame)
    ends = Assembler().push(frames)
    pushed = Assembler(series=True).push(frames)
    if row_path == "interpreted":
        assert [type(event) for event in pushed] == [Transaction] * 4
        return
    (series,) = pushed
    assert isinstance(series, Series)

    for room, place in ((3, 1), (100, 3)):
        routed = routing.router.route_series(series, room)
        end = ends[place]
        assert isinstance(end, Transaction)
        assert routed is not None
        assert routed.end_lsn == end.end_lsn == routing.router.ended["s"]
        assert routed.last == LastCommit(end.commit_lsn, end.xid, end.commit_time)
        markers = [routing.see(r) for r in routed.records if r[0] == "s.transaction"]
        assert markers[-1].value is not None
        assert markers[-1].value["xid"] == end.xid
    assert not series
