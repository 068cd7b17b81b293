"""What becomes of a row on which a filter raises, where such rows are quarantined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.core.records import Record
from gateway.definitions.model import FilterClause, Operation, TableCopy
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.pgoutput.messages import UNCHANGED, Delete, Insert, ReplicaIdentity, Update
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import FilterEvaluationError
from tests.support.gateway.routing_scene import (
    CHILD,
    PARENT,
    T1,
    T1_TABLE,
    TWO_COLUMNS,
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

RAISES_AT_ZERO = "((10 / a) > 1)"
FULL = table(T1, "t1", TWO_COLUMNS, identity=("a", "b"), replica_identity=ReplicaIdentity.FULL)
WITH_NOTE = table(T1, "t1", (*TWO_COLUMNS, column("note", 3, 25, "text")))


def quarantining(*publishes: Any, tables: Sequence[Any] = (T1_TABLE,), **how: Any) -> Gateway:
    return Gateway(tables, publishes, quarantined={"filter"}, **how)


def errors(seen: Sequence[Seen]) -> list[dict[str, Any]]:
    return [s.value for s in seen if s.topic == "gw.error" and s.value is not None]


def taken(seen: Sequence[Seen]) -> list[tuple[str, str | None]]:
    rows = [s for s in data(seen) if s.topic != "gw.error" and s.value is not None]
    return [(s.topic.partition(".")[0], s.op) for s in rows]


def test_the_record_says_what_a_person_needs_to_act() -> None:
    gateway = quarantining(publish(where=RAISES_AT_ZERO))

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"0", None)))

    (record,) = seen
    assert (record.topic, record.partition, record.key) == ("gw.error", 0, None)
    assert record.value == {
        "kind": "filter",
        "subscription": "s",
        "schema": "public",
        "table": "t1",
        "relation": "public.t1",
        "op": "c",
        "effect": "missing",
        "reason": "division by zero",
        "sqlstate": None,
        "filters": [{"publication": "p", "where": RAISES_AT_ZERO}],
        "key": {"a": "0"},
        "before": None,
        "after": {"a": "0", "b": None},
        "unchanged": [],
        "omitted": [],
        "lsn": 1502,
        "commit_lsn": 2000,
        "xid": 7,
        "seq": 1,
        "ts_ms": 1,
    }
    assert record.headers == {
        "lsn": "00000000/000005DE",
        "commit_lsn": "00000000/000007D0",
        "xid": "7",
        "seq": "1",
        "op": "c",
    }


def test_other_rows_and_other_subscriptions_go_on_as_if_nothing_had_been() -> None:
    gateway = quarantining(publish("s", RAISES_AT_ZERO), publish("other", "(a >= 0)"))

    seen = gateway.commit(
        relation_of(T1_TABLE),
        Insert(T1, (b"1", b"2")),
        Insert(T1, (b"0", b"2")),
        Insert(T1, (b"2", b"2")),
    )

    assert taken(seen) == [("s", "c"), ("other", "c"), ("other", "c"), ("s", "c"), ("other", "c")]
    assert [s.headers["seq"] for s in seen if s.topic == "s.public.t1"] == ["1", "3"]
    assert [e["subscription"] for e in errors(seen)] == ["s"]


def test_end_markers_do_not_count_the_error_topic() -> None:
    gateway = quarantining(publish("s", RAISES_AT_ZERO), publish("bad", "((1 / b) = 1)"))

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"0")), Insert(T1, (b"1", b"0")))

    ends = [s for s in seen if s.topic.endswith(".transaction")]
    assert [(s.topic, s.value["topics"]) for s in ends if s.value is not None] == [
        ("s.transaction", [{"topic": "s.public.t1", "records": 1}])
    ]


@pytest.mark.parametrize(
    ("change", "key", "before", "after"),
    [
        pytest.param(
            update(key_tuple(b"0", None), b"1", b"2"),
            {"a": "0"},
            {"a": "0"},
            {"a": "1", "b": "2"},
            id="the old row raises",
        ),
        pytest.param(
            update(key_tuple(b"1", None), b"0", b"2"),
            {"a": "1"},
            {"a": "1"},
            {"a": "0", "b": "2"},
            id="the new row raises: the key is the one that the subscriber has",
        ),
        pytest.param(
            update(None, b"0", b"2"),
            {"a": "0"},
            None,
            {"a": "0", "b": "2"},
            id="without an old row",
        ),
        pytest.param(
            Delete(T1, key_tuple(b"0", None)), {"a": "0"}, {"a": "0"}, None, id="a delete"
        ),
    ],
)
def test_the_whole_change_is_quarantined_with_the_columns_that_were_logged(
    change: Update | Delete,
    key: dict[str, str],
    before: dict[str, str] | None,
    after: dict[str, str] | None,
) -> None:
    gateway = quarantining(publish(where=RAISES_AT_ZERO))

    seen = gateway.commit(relation_of(T1_TABLE), change)

    (error,) = errors(seen)
    assert taken(seen) == []
    assert (error["key"], error["before"], error["after"]) == (key, before, after)
    assert error["op"] == seen[0].headers["op"] == ("u" if isinstance(change, Update) else "d")
    assert str(error["seq"]) == seen[0].headers["seq"]


def test_under_full_the_whole_old_row_is_in_the_record() -> None:
    gateway = quarantining(publish(where=RAISES_AT_ZERO), tables=[FULL])

    seen = gateway.commit(relation_of(FULL), Delete(T1, full_tuple(b"0", None)))

    (error,) = errors(seen)
    assert error["key"] == error["before"] == {"a": "0", "b": None}


def test_unchanged_values_are_named_and_not_shown_as_null() -> None:
    gateway = quarantining(publish(where=RAISES_AT_ZERO), tables=[WITH_NOTE])

    seen = gateway.commit(relation_of(WITH_NOTE), Update(T1, None, (b"0", None, UNCHANGED)))

    (error,) = errors(seen)
    assert (error["after"], error["unchanged"]) == ({"a": "0", "b": None}, ["note"])


def test_columns_that_the_subscription_does_not_publish_are_not_in_the_record() -> None:
    operations = frozenset({Operation.INSERT})
    gateway = quarantining(publish(where="((10 / b) > 1)", columns=("a",), operations=operations))

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"0")))

    assert errors(seen)[0]["after"] == {"a": "1"}


def test_a_leaf_is_named_beside_the_table_that_it_is_published_as() -> None:
    parent = table(PARENT, "parent", TWO_COLUMNS, kind="p", leaves=(CHILD,))
    child = table(CHILD, "child", (column("b", 1), column("a", 2)), ancestors=(PARENT,))
    gateway = quarantining(
        publish(where=RAISES_AT_ZERO, relation=CHILD, target=PARENT), tables=[parent, child]
    )

    seen = gateway.commit(relation_of(child), Insert(CHILD, (b"7", b"0")))

    (error,) = errors(seen)
    assert (error["table"], error["relation"]) == ("parent", "public.child")
    assert error["after"] == {"a": "0", "b": "7"}


def test_a_transaction_from_elsewhere_does_not_reach_the_filter_under_origin_none() -> None:
    row = Insert(T1, (b"0", b"2"))
    quarantine = quarantining(publish(where=RAISES_AT_ZERO), origin_none=frozenset({"s"}))
    stop = Gateway([T1_TABLE], [publish(where=RAISES_AT_ZERO)], origin_none=frozenset({"s"}))

    assert quarantine.commit(relation_of(T1_TABLE), row, origin="elsewhere") == []
    assert stop.commit(relation_of(T1_TABLE), row, origin="elsewhere") == []
    assert len(errors(quarantine.commit(row))) == 1
    with pytest.raises(FilterEvaluationError):
        stop.commit(row)


def test_records_are_counted_by_table_once() -> None:
    gateway = quarantining(publish("s", RAISES_AT_ZERO), publish("t", RAISES_AT_ZERO))

    gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"2")), Insert(T1, (b"0", b"3")))

    assert gateway.router.pop_quarantined() == {("public.t1", "filter"): 4}
    assert gateway.router.pop_quarantined() == {}


def test_without_quarantine_the_message_says_where_and_what_to_do() -> None:
    gateway = Gateway([T1_TABLE], [publish(where=RAISES_AT_ZERO)])

    with pytest.raises(FilterEvaluationError) as caught:
        gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"2")))

    assert "row filter of publication p for public.t1: division by zero" in caught.value.message
    assert "row at LSN 0/5DE, transaction 7" in caught.value.message
    assert '[on_error] filter = "quarantine"' in str(caught.value.hint)


def copied(gateway: Gateway, where: str, columns: tuple[str, ...], *rows: Any) -> list[Record]:
    copy = TableCopy("s", T1, (FilterClause("p", T1, where),), columns)
    route = gateway.routes.copy_route([copy], ("a",))
    assert route.columns == ("a", "b")
    context = TransactionContext("gw", "db", "1", None, 900, 0, None, "true", 1)
    tx = TransactionState(context, HeaderMaker(900, None))
    return [record for piece in route.publish(rows, 900, tx) for record in piece]


def test_a_row_of_the_initial_copy_is_quarantined_at_the_consistent_point() -> None:
    gateway = quarantining(publish(where="((10 / b) > 1)"))

    records = copied(
        gateway, "((10 / b) > 1)", ("a",), (b"1", b"0"), (b"2", b"2"), (b"3", b"9"), (b"4", None)
    )

    assert [record[0] for record in records] == ["gw.error", "s.public.t1"]
    error = gateway.schemas.decode(records[0][3] or b"")
    assert (error["op"], error["seq"], error["xid"], error["lsn"]) == ("r", 0, None, 900)
    assert error["after"] == {"a": "1"}
    assert gateway.schemas.decode(records[1][3] or b"")["after"] == {"a": 2}
