"""Records whose key or partition is of other columns than the replica identity's."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.definitions.model import Operation, Publish, Table, TableCopy, TableId
from gateway.pgoutput.messages import UNCHANGED, Delete, Insert, ReplicaIdentity, Update
from schemas.settings.masks import Mask
from schemas.settings.tables import EnvelopeTable, TopicsTable
from tests.support.gateway.routing_scene import (
    CHILD,
    PARENT,
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

COLUMNS = (column("a", 1), column("b", 2), column("c", 3, 25, "text"))
BOTH = table(T1, "t1", COLUMNS, identity=("a", "b"), primary_key=("a", "b"))
FULL = table(T1, "t1", COLUMNS, replica_identity=ReplicaIdentity.FULL)
INSERTS = frozenset({Operation.INSERT})
PARTITIONS = 5


def gateway_of(
    of: Table,
    *publishes: Publish,
    keys: tuple[str, ...] = (),
    partition_by: tuple[str, ...] = (),
    envelope: EnvelopeTable | None = None,
) -> Gateway:
    return Gateway(
        [of],
        publishes or (publish(),),
        topics=TopicsTable(keys={"public.t1": keys}, partition_by={"public.t1": partition_by}),
        partitions=PARTITIONS,
        envelope=envelope,
    )


def shown(records: list[Seen]) -> list[tuple[str | None, Any, str | None]]:
    return [(s.op, s.key, s.headers.get("rekey")) for s in data(records)]


def partition(*texts: bytes | None) -> int:
    form = b"".join(
        struct.pack(">i", -1) if text is None else struct.pack(">i", len(text)) + text
        for text in texts
    )
    return zlib.crc32(form) % PARTITIONS


def identity_of(gateway: Gateway) -> list[Any]:
    return [s["pg_identity"] for s in gateway.schemas.by_id if "pg_identity" in s]


def test_an_update_of_the_identity_alone_is_a_key_change_under_one_key_without_tombstone() -> None:
    gateway = gateway_of(BOTH, keys=("b",))

    seen = gateway.commit(
        relation_of(BOTH),
        Insert(T1, (b"1", b"7", b"x")),
        Update(T1, key_tuple(b"1", b"7", None), (b"2", b"7", UNCHANGED)),
        update(None, b"2", b"7", b"y"),
        Delete(T1, key_tuple(b"2", b"7", None)),
    )

    key = {"b": 7}
    expected = [("c", None), ("d", "old"), ("c", "new"), ("u", None), ("d", None)]
    assert shown(seen) == [(op, key, rekey) for op, rekey in expected]
    assert {s.partition for s in data(seen)} == {partition(b"7")}
    assert data(seen)[2].value is not None
    assert data(seen)[2].value["before"] == {"a": 1, "b": 7, "c": None}  # type: ignore[index]
    assert identity_of(gateway) == [["a", "b"]]


def test_a_key_with_null_moves_with_its_row() -> None:
    gateway = gateway_of(FULL, keys=("c",))

    seen = gateway.commit(
        relation_of(FULL),
        update(full_tuple(b"1", b"2", b"x"), b"1", b"3", b"x"),
        update(full_tuple(b"1", b"3", b"x"), b"1", b"3", None),
        update(full_tuple(b"1", b"3", None), b"1", b"3", None),
    )

    assert shown(seen) == [
        ("u", {"c": "x"}, None),
        ("d", {"c": "x"}, "old"),
        ("c", {"c": None}, "new"),
        ("u", {"c": None}, None),
    ]
    places = [partition(text) for text in (b"x", b"x", None, None)]
    assert [s.partition for s in data(seen)] == places
    (key_schema,) = (s for s in gateway.schemas.by_id if s["name"] == "Key")
    assert key_schema["fields"] == [{"name": "c", "type": ["null", "string"], "default": None}]


@pytest.mark.parametrize("envelope", ["pgsluice", "debezium"])
def test_a_row_whose_partition_changes_leaves_one_and_arrives_in_the_other(envelope: Any) -> None:
    gateway = gateway_of(FULL, partition_by=("b",), envelope=EnvelopeTable(format=envelope))

    seen = data(
        gateway.commit(relation_of(FULL), update(full_tuple(b"1", b"2", b"x"), b"1", b"3", b"x"))
    )

    assert [(s.op, s.headers["op"], s.key, s.partition) for s in seen] == [
        ("d", "d", {"a": 1}, partition(b"2")),
        (None, "d", {"a": 1}, partition(b"2")),
        ("c", "c", {"a": 1}, partition(b"3")),
    ]
    assert [s.headers["rekey"] for s in seen] == ["old", "old", "new"]
    assert not any(s.other_key for s in seen)  # the key is the same one
    assert identity_of(gateway) == []


def test_a_key_that_has_the_identity_keeps_its_tombstones() -> None:
    gateway = gateway_of(FULL, keys=("b", "a"), partition_by=("b",))

    seen = gateway.commit(relation_of(FULL), update(full_tuple(b"1", b"2", b"x"), b"1", b"3", b"x"))

    assert shown(seen) == [
        ("d", {"b": 2, "a": 1}, "old"),
        (None, {"b": 2, "a": 1}, "old"),
        ("c", {"b": 3, "a": 1}, "new"),
    ]
    assert identity_of(gateway) == [["a"]]


def test_the_masked_form_is_in_the_key_and_chooses_the_partition() -> None:
    masks = (("c", Mask("truncate", 1)),)
    gateway = gateway_of(FULL, publish(masks=masks), keys=("c",))

    seen = gateway.commit(
        relation_of(FULL), update(full_tuple(b"1", b"2", b"xy"), b"1", b"2", b"xz")
    )

    assert shown(seen) == [("u", {"c": "x"}, None)]
    assert [s.partition for s in data(seen)] == [partition(b"x")]


def test_inserts_of_a_table_without_identity_have_the_key() -> None:
    bare = table(T1, "t1", COLUMNS, identity=(), primary_key=())
    gateway = gateway_of(bare, publish(operations=INSERTS), keys=("b",), partition_by=("c", "b"))

    seen = gateway.commit(relation_of(bare), Insert(T1, (b"1", b"2", b"x")))

    assert shown(seen) == [("c", {"b": 2}, None)]
    assert [s.partition for s in data(seen)] == [partition(b"x", b"2")]
    assert identity_of(gateway) == [[]]


def test_a_relation_that_logs_the_column_no_more_cannot_be_published() -> None:
    gateway = gateway_of(FULL, keys=("b",))
    lacking = replace(FULL, replica_identity=ReplicaIdentity.DEFAULT)

    with pytest.raises(SchemaError, match="'b', whose old value an UPDATE or DELETE does not log"):
        gateway.commit(relation_of(lacking), update(None, b"1", b"2", b"x"))


LOST = [Delete(PARENT, key_tuple(b"1", None, None)), update(None, b"1", b"2", b"x", oid=PARENT)]


def tree_of(*copies: TableCopy, retired: frozenset[TableId] = frozenset()) -> Gateway:
    """A tree whose leaf does not log its old values, which the root's Relation does not show."""
    root = table(PARENT, "t1", COLUMNS, replica_identity=ReplicaIdentity.FULL, kind="p")
    leaf = table(CHILD, "leaf", COLUMNS, ancestors=(PARENT,))
    return Gateway(
        [replace(root, leaves=(CHILD,)), leaf],
        [publish(name, relation=CHILD, target=PARENT) for name in ("s", "other")],
        topics=TopicsTable(partition_by={"public.t1": ("b",)}),
        partitions=PARTITIONS,
        copies=copies,
        quarantined={"value"} if copies else (),
        retired=retired,
    )


@pytest.mark.parametrize("change", LOST)
def test_a_table_is_held_from_a_row_on_whose_old_values_were_not_logged(change: Any) -> None:
    gateway = tree_of(TableCopy("s", PARENT, (), ("a", "b", "c")))
    root = gateway.plan.tables[PARENT]

    seen = gateway.commit(relation_of(root), Insert(PARENT, (b"1", b"2", b"x")), change)

    assert [(s.topic, s.op) for s in data(seen)][:2] == [
        ("s.public.t1", "c"),
        ("other.public.t1", "c"),
    ]
    assert gateway.routes.held.reasons.keys() == {("s", PARENT)}
    assert "old values of the columns in [topics.keys]" in gateway.routes.held.reasons["s", PARENT]
    assert gateway.routes.needs_replan
    errors = [s.value["subscription"] for s in seen if s.topic == "gw.error" and s.value]
    assert errors == ["other"]  # no copy will replace its rows
    (marker,) = (s.value for s in seen if s.op == "COPY")
    assert marker is not None
    assert marker["copy"]["state"] == "pending"


@pytest.mark.parametrize("change", LOST)
def test_last_rows_of_a_dropped_tree_whose_old_values_were_not_logged_are_lost(
    change: Any,
) -> None:
    retired = frozenset((name, PARENT) for name in ("s", "other"))
    gateway = tree_of(retired=retired)

    seen = gateway.commit(relation_of(gateway.plan.tables[PARENT]), change)

    assert seen == []
    assert gateway.routes.held.lost.keys() == retired


@pytest.mark.parametrize("change", LOST)
def test_a_row_whose_old_values_were_not_logged_stops_where_no_copy_can_replace_it(
    change: Any,
) -> None:
    gateway = tree_of()

    with pytest.raises(ValueFormatError, match="old values of the columns"):
        gateway.commit(relation_of(gateway.plan.tables[PARENT]), change)


def test_rows_of_a_tree_without_identity_move_by_key_and_partition() -> None:
    root = table(PARENT, "t1", COLUMNS, identity=(), primary_key=(), kind="p", leaves=(CHILD,))
    leaf = replace(FULL, oid=CHILD, name="leaf", ancestors=(PARENT,))
    gateway = Gateway(
        [root, leaf],
        [publish(relation=CHILD, target=PARENT)],
        topics=TopicsTable(keys={"public.t1": ("b",)}, partition_by={"public.t1": ("c",)}),
        partitions=PARTITIONS,
    )

    seen = gateway.commit(
        relation_of(root),
        update(full_tuple(b"1", b"2", b"x"), b"2", b"2", b"x", oid=PARENT),
        update(full_tuple(b"2", b"2", b"x"), b"2", b"2", b"y", oid=PARENT),
        update(full_tuple(b"2", b"2", b"y"), b"2", b"3", b"y", oid=PARENT),
        Delete(PARENT, full_tuple(b"2", b"3", b"y")),
    )

    assert [(s.op, s.key, s.headers.get("rekey"), s.partition) for s in data(seen)] == [
        ("u", {"b": 2}, None, partition(b"x")),
        ("d", {"b": 2}, "old", partition(b"x")),
        ("c", {"b": 2}, "new", partition(b"y")),
        ("d", {"b": 2}, "old", partition(b"y")),
        ("c", {"b": 3}, "new", partition(b"y")),
        ("d", {"b": 3}, None, partition(b"y")),
    ]
    assert identity_of(gateway) == [[]]


def test_rows_without_key_move_between_partitions() -> None:
    root = table(PARENT, "t1", COLUMNS, identity=(), primary_key=(), kind="p", leaves=(CHILD,))
    leaf = replace(FULL, oid=CHILD, name="leaf", ancestors=(PARENT,))
    gateway = Gateway(
        [root, leaf],
        [publish(relation=CHILD, target=PARENT)],
        topics=TopicsTable(partition_by={"public.t1": ("c",)}),
        partitions=PARTITIONS,
        envelope=EnvelopeTable(format="debezium"),
    )

    seen = gateway.commit(
        relation_of(root), update(full_tuple(b"1", b"2", b"x"), b"1", b"2", b"y", oid=PARENT)
    )

    assert [(s.op, s.key, s.headers.get("rekey"), s.partition) for s in data(seen)] == [
        ("d", None, "old", partition(b"x")),
        ("c", None, "new", partition(b"y")),
    ]


@pytest.mark.parametrize("settings", [{"keys": {"public.t1": ("gone",)}},
                                      {"partition_by": {"public.t1": ("gone",)}}])  # fmt: skip
def test_a_dropped_table_that_lacks_a_chosen_column_loses_only_its_last_rows(settings: Any) -> None:
    retired = frozenset({("s", T1)})
    gateway = Gateway([FULL], [publish()], topics=TopicsTable(**settings), retired=retired)

    assert gateway.routes.register_all() == {}
    assert not gateway.routes.held.lost
    seen = gateway.commit(relation_of(FULL), Insert(T1, (b"1", b"2", b"x")))

    assert seen == []
    assert gateway.routes.held.lost.keys() == retired


def test_a_table_that_lacks_a_chosen_column_cannot_be_registered() -> None:
    gateway = gateway_of(FULL, keys=("gone",))

    with pytest.raises(SchemaError, match="key columns are not published: gone"):
        gateway.routes.register_all()
