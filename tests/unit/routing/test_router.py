"""Which operations each subscription is sent for each change, and with which numbers."""

from __future__ import annotations

import pytest

from gateway.core.lsn import Lsn
from gateway.definitions.model import (
    Operation,
)
from gateway.pgoutput.messages import (
    Delete,
    Insert,
    LogicalMessage,
    ReplicaIdentity,
    Truncate,
)
from gateway.rowfilter import FilterEvaluationError
from gateway.transactions import PreparedTransaction, RolledBack
from tests.support.gateway.routing_scene import (
    T1,
    T1_TABLE,
    TWO_COLUMNS,
    Gateway,
    data,
    full_tuple,
    key_tuple,
    ops,
    publish,
    relation_of,
    table,
    update,
)


def test_an_insert_carries_key_value_headers_and_an_end_marker() -> None:
    gateway = Gateway([T1_TABLE], [publish()])

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"2")))

    row, end = seen
    assert (row.topic, row.partition, row.key) == ("s.public.t1", 0, {"a": 1})
    assert row.value is not None
    assert (row.value["before"], row.value["after"]) == (None, {"a": 1, "b": 2})
    assert row.value["source"]["identity"] == "d"
    assert row.value["transaction"] == {
        "id": "7:2000",
        "total_order": 1,
        "data_collection_order": 1,
    }
    assert row.headers == {
        "lsn": "00000000/000005DE",
        "commit_lsn": "00000000/000007D0",
        "xid": "7",
        "seq": "1",
        "op": "c",
    }
    assert end.topic == "s.transaction"
    assert end.value is not None
    assert (end.value["kind"], end.value["end_lsn"]) == ("END", 2008)
    assert end.value["topics"] == [{"topic": "s.public.t1", "records": 1}]


@pytest.mark.parametrize(
    ("old_b", "new_b", "expected"),
    [
        pytest.param(b"1", b"2", [], id="no match, no match: nothing"),
        pytest.param(b"1", b"10", ["c"], id="no match, match: insert"),
        pytest.param(b"10", b"1", ["d", None], id="match, no match: delete"),
        pytest.param(b"10", b"11", ["u"], id="match, match: update"),
    ],
)
def test_an_update_becomes_what_the_manuals_table_says(
    old_b: bytes, new_b: bytes, expected: list[str | None]
) -> None:
    full = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish(where="(b > 5)")])

    seen = gateway.commit(relation_of(full), update(full_tuple(b"1", old_b), b"1", new_b))

    assert ops(seen) == expected


def test_an_update_of_the_key_is_two_halves_that_say_so() -> None:
    gateway = Gateway([T1_TABLE], [publish()])

    seen = data(gateway.commit(relation_of(T1_TABLE), update(key_tuple(b"1", None), b"9", b"2")))

    old, tombstone, new = seen
    assert (old.op, old.key, old.headers["rekey"], old.headers["seq"]) == (
        "d",
        {"a": 1},
        "old",
        "1",
    )
    assert (tombstone.value, tombstone.key, tombstone.headers) == (None, {"a": 1}, old.headers)
    assert (new.op, new.key, new.headers["rekey"], new.headers["seq"]) == (
        "c",
        {"a": 9},
        "new",
        "2",
    )
    assert new.value is not None
    assert new.value["before"] == {"a": 1, "b": None}


def test_an_insert_made_by_the_filter_has_no_rekey_header() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])

    (row,) = data(gateway.commit(relation_of(T1_TABLE), update(key_tuple(b"1", None), b"9", b"2")))

    assert (row.op, row.key, row.headers["seq"]) == ("c", {"a": 9}, "2")
    assert "rekey" not in row.headers


def test_numbers_are_assigned_before_filtering() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])

    seen = data(
        gateway.commit(
            relation_of(T1_TABLE),
            Insert(T1, (b"1", b"0")),
            update(None, b"1", b"1"),
            Insert(T1, (b"6", b"0")),
            Delete(T1, key_tuple(b"6", None)),
        )
    )

    assert [s.headers["seq"] for s in seen] == ["4", "5", "5"]
    assert seen[0].value is not None
    assert seen[0].value["transaction"]["total_order"] == 3


def test_operations_that_are_not_published_are_left_out() -> None:
    only_update = frozenset({Operation.UPDATE})
    full = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish(where="(b > 5)", operations=only_update)])

    seen = gateway.commit(
        relation_of(full),
        Insert(T1, (b"1", b"9")),
        Delete(T1, full_tuple(b"1", b"9")),
        Truncate(False, False, (T1,)),
        update(full_tuple(b"1", b"1"), b"1", b"9"),
        update(full_tuple(b"1", b"9"), b"1", b"1"),
    )

    # publish = 'update' still sends the INSERTs and DELETEs that a filter makes of UPDATEs.
    assert ops(seen) == ["c", "d", None]


def test_each_subscription_has_its_own_decision_and_topic() -> None:
    gateway = Gateway([T1_TABLE], [publish("big", "(a > 5)"), publish("all")])

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"0")), Insert(T1, (b"6", b"0")))

    assert [(s.topic, s.key) for s in data(seen)] == [
        ("all.public.t1", {"a": 1}),
        ("big.public.t1", {"a": 6}),
        ("all.public.t1", {"a": 6}),
    ]
    ends = {s.topic: s.value["topics"] for s in seen if s.value and s.headers["op"] == "END"}
    assert ends == {
        "all.transaction": [{"topic": "all.public.t1", "records": 2}],
        "big.transaction": [{"topic": "big.public.t1", "records": 1}],
    }


def test_a_subscription_without_records_gets_no_end_marker() -> None:
    gateway = Gateway([T1_TABLE], [publish("big", "(a > 5)"), publish("all")])

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"0")))

    assert [s.topic for s in seen if s.op == "END"] == ["all.transaction"]
    assert gateway.router.ended == {"all": 2008}


def test_origin_none_leaves_out_what_came_from_elsewhere() -> None:
    publishes = [publish("any"), publish("local"), publish("other")]
    gateway = Gateway([T1_TABLE], publishes, origin_none=frozenset({"local"}))

    seen = data(
        gateway.commit(
            relation_of(T1_TABLE),
            Insert(T1, (b"1", b"0")),
            update(None, b"1", b"2"),
            Delete(T1, key_tuple(b"1", None)),
            origin="elsewhere",
        )
    )

    for op in "cud":
        topics = [s.topic for s in seen if s.op == op]
        assert sorted(topics) == ["any.public.t1", "other.public.t1"]
    assert seen[0].headers["origin"] == "elsewhere"


def test_a_delete_goes_to_all_whose_filters_the_old_row_passes() -> None:
    filters = {"few": "(a > 7)", "more": "(a > 5)", "none": "(a < 0)", "most": "(a < 9)"}
    gateway = Gateway([T1_TABLE], [publish(name, where=where) for name, where in filters.items()])

    seen = data(gateway.commit(relation_of(T1_TABLE), Delete(T1, key_tuple(b"6", None))))

    assert sorted(s.topic for s in seen if s.op == "d") == ["more.public.t1", "most.public.t1"]


def test_truncate_goes_to_every_partition_and_ignores_the_filter() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")], partitions=3)

    seen = data(gateway.commit(relation_of(T1_TABLE), Truncate(False, False, (T1,))))

    assert [(s.op, s.partition, s.key) for s in seen] == [("t", p, None) for p in range(3)]


def test_markers_of_prepared_transactions_begin_with_their_subscription() -> None:
    made = Gateway([T1_TABLE], [publish(), publish(subscription="o")])
    made.routes.two_phase += ["s", "o"]
    made.routes.begins["o", T1] = Lsn(200)

    def marked(event: PreparedTransaction | RolledBack) -> list[str]:
        return [made.see(record).topic for record in made.router.mark(event)]

    assert marked(PreparedTransaction(7, "g", Lsn(90), Lsn(100), 0)) == ["s.transaction"]
    assert marked(RolledBack(7, "g", Lsn(100), Lsn(200), 0, 0)) == ["s.transaction"]
    both = ["s.transaction", "o.transaction"]
    assert marked(PreparedTransaction(8, "h", Lsn(290), Lsn(300), 0)) == both
    assert marked(RolledBack(8, "h", Lsn(300), Lsn(400), 0, 0)) == both


def test_transactional_messages_take_a_number_and_go_to_the_message_topic() -> None:
    gateway = Gateway([T1_TABLE], [publish()], prefixes=frozenset({"audit"}))

    seen = gateway.commit(
        LogicalMessage(True, Lsn(1500), "audit", b"who"),
        LogicalMessage(True, Lsn(1501), "other", b"what"),
        relation_of(T1_TABLE),
        Insert(T1, (b"1", b"2")),
    )

    assert [(s.topic, s.headers["seq"]) for s in data(seen)] == [
        ("gw.message", "1"),
        ("s.public.t1", "3"),
    ]
    assert seen[0].value is not None
    assert seen[0].value["content"] == b"who"


def test_a_filter_that_fails_stops_with_its_name_and_position() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="((10 / a) > 5)")])

    with pytest.raises(FilterEvaluationError, match=r"public\.t1.*division by zero.*LSN 0/"):
        gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"2")))
