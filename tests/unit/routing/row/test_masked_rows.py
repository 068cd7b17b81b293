"""Records of tables with masked columns: what filters see, and what nobody else does."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.lsn import Lsn
from gateway.core.records import Record
from gateway.definitions.model import Collation, Column, Masks, Table, TableCopy
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.pgoutput.messages import (
    UNCHANGED,
    Delete,
    Insert,
    OldTuple,
    OldTupleKind,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Update,
)
from gateway.routing.build.relation_check import mismatch_of
from gateway.routing.row.transaction_state import TransactionState
from schemas.settings.masks import Mask
from tests.support.gateway.routing_scene import (
    CHILD,
    PARENT,
    T1,
    Gateway,
    NoCatalog,
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

KEY = b"0123456789abcdef0123456789abcdef"
TEXT = (25, "text")
C_ORDER = Collation("C", deterministic=True, c_order=True)
MAIL = replace(column("mail", 2, *TEXT), collation=C_ORDER)
COLUMNS = (column("id", 1), MAIL, column("note", 3, *TEXT))
TABLE = table(T1, "t1", COLUMNS, identity=("id",), primary_key=("id",))
FULL = table(
    T1,
    "t1",
    COLUMNS,
    identity=("id", "mail", "note"),
    primary_key=("id",),
    replica_identity=ReplicaIdentity.FULL,
)
HASHED: Masks = (("id", Mask("hash")), ("mail", Mask("hash")))
MIXED: Masks = (("mail", Mask("null")), ("note", Mask("truncate", 2)))
SECRETS = (b"4711", b"ann@example.com", b"bob@example.com", b"confidential")


def hashed(text: str) -> str:
    """The definition, by Python's own modules."""
    return hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


def gateway_of(*publishes: Any, of: Any = TABLE, **how: Any) -> Gateway:
    return Gateway([of], publishes, hash_key=KEY, **how)


def rows(seen: list[Seen]) -> list[tuple[Any, ...]]:
    return [
        (s.op, s.key, s.value and s.value["before"], s.value and s.value["after"])
        for s in data(seen)
    ]


def assert_hidden(records: list[Record]) -> None:
    for _, _, key, value, headers in records:
        written = b"".join([key or b"", value or b"", *(text for _, text in headers)])
        assert [secret for secret in SECRETS if secret in written] == []


def test_key_rows_and_tombstone_are_masked_and_equal_values_stay_equal() -> None:
    gateway = gateway_of(publish(masks=HASHED), partitions=3)

    seen = gateway.commit(
        relation_of(TABLE),
        Insert(T1, (b"4711", b"ann@example.com", b"x")),
        update(None, b"4711", b"bob@example.com", b"x"),
        Delete(T1, key_tuple(b"4711", None, None)),
    )

    key = {"id": hashed("4711")}
    ann = {"id": hashed("4711"), "mail": hashed("ann@example.com"), "note": "x"}
    bob = {**ann, "mail": hashed("bob@example.com")}
    gone = {"id": hashed("4711"), "mail": None, "note": None}
    assert rows(seen) == [
        ("c", key, None, ann),
        ("u", key, None, bob),
        ("d", key, gone, None),
        (None, key, None, None),
    ]
    assert len({s.partition for s in data(seen)}) == 1


def test_a_filter_sees_the_true_value() -> None:
    gateway = gateway_of(publish(where="(mail = 'ann@example.com'::text)", masks=HASHED))

    seen = gateway.commit(
        relation_of(TABLE),
        Insert(T1, (b"1", b"ann@example.com", None)),
        Insert(T1, (b"2", hashed("ann@example.com").encode(), None)),
    )

    assert [s.key for s in data(seen)] == [{"id": hashed("1")}]


def test_a_change_of_a_hashed_key_is_one_of_the_key() -> None:
    gateway = gateway_of(publish(masks=HASHED))

    seen = gateway.commit(
        relation_of(TABLE), update(key_tuple(b"1", None, None), b"2", b"ann@example.com", None)
    )

    assert [(s.op, s.key) for s in data(seen)] == [
        ("d", {"id": hashed("1")}),
        (None, {"id": hashed("1")}),
        ("c", {"id": hashed("2")}),
    ]


def test_old_rows_are_masked_under_replica_identity_full() -> None:
    gateway = gateway_of(publish(masks=MIXED), of=FULL)
    old = full_tuple(b"1", b"ann@example.com", b"confidential")

    seen = gateway.commit(
        relation_of(FULL), update(old, b"1", b"bob@example.com", b"confidential"), Delete(T1, old)
    )

    shown = {"id": 1, "mail": None, "note": "co"}
    assert rows(seen)[:2] == [("u", {"id": 1}, shown, shown), ("d", {"id": 1}, shown, None)]


def test_an_unchanged_toast_value_is_named_unless_it_is_null_anyway() -> None:
    gateway = gateway_of(publish("s", masks=MIXED), publish("h", masks=HASHED))

    seen = gateway.commit(relation_of(TABLE), Update(T1, None, (b"1", UNCHANGED, UNCHANGED)))

    found = {s.topic: s.value and s.value["unchanged"] for s in data(seen)}
    assert found == {"s.public.t1": ["note"], "h.public.t1": ["mail", "note"]}


def test_subscriptions_have_their_own_masks() -> None:
    gateway = gateway_of(publish("h", masks=HASHED), publish("m", masks=MIXED), publish("plain"))

    seen = gateway.commit(relation_of(TABLE), Insert(T1, (b"1", b"ann@example.com", b"confid")))

    after = {s.topic.partition(".")[0]: s.value and s.value["after"] for s in data(seen)}
    assert after == {
        "h": {"id": hashed("1"), "mail": hashed("ann@example.com"), "note": "confid"},
        "m": {"id": 1, "mail": None, "note": "co"},
        "plain": {"id": 1, "mail": "ann@example.com", "note": "confid"},
    }


def test_whole_rows_as_keys_are_masked() -> None:
    whole = table(
        T1,
        "t1",
        COLUMNS,
        identity=("id", "mail", "note"),
        primary_key=(),
        replica_identity=ReplicaIdentity.FULL,
    )
    gateway = gateway_of(publish(masks=MIXED), of=whole, partitions=4)

    frames = gateway.frames(
        relation_of(whole),
        Insert(T1, (b"4", b"ann@example.com", b"confidential")),
        Delete(T1, full_tuple(b"4", b"ann@example.com", b"confidential")),
    )
    records = gateway.route(frames)

    assert_hidden(records)
    seen = data([gateway.see(record) for record in records])
    assert [s.key for s in seen] == [{"id": 4, "mail": None, "note": "co"}] * 2
    assert len({s.partition for s in seen}) == 1


@pytest.mark.parametrize("kind", ["filter", "value"])
def test_the_error_topic_has_the_masked_row(kind: str) -> None:
    columns = (*COLUMNS, column("n", 4), column("at", 5, 1114, "timestamp without time zone"))
    of = table(T1, "t1", columns, identity=("id",), primary_key=("id",))
    masks: Masks = (("id", Mask("hash")), ("mail", Mask("null")), ("note", Mask("truncate", 3)))
    gateway = gateway_of(
        publish(where="((10 / n) > 1)", masks=masks), of=of, quarantined={"filter", "value"}
    )
    n = b"0" if kind == "filter" else b"1"
    row = (b"4711", b"ann@example.com", b"confidential", n, b"294300-01-01 00:00:00")

    records = gateway.route(
        gateway.frames(
            relation_of(of), Insert(T1, row), update(key_tuple(b"4711", *[None] * 4), *row)
        )
    )

    assert_hidden(records)
    errors = [gateway.see(r).value for r in records if r[0] == "gw.error"]
    assert [(e["kind"], e["key"]) for e in errors if e] == [(kind, {"id": hashed("4711")})] * 2
    for error in errors:
        assert error is not None
        assert error["after"]["mail"] is None
        assert error["after"]["note"] == "con"


@pytest.mark.parametrize(
    ("has_masks", "reason"),
    [(False, "division by zero"), (True, "row filter of publication p for public.t1: division by")],
)
def test_no_reason_quotes_values_where_there_are_masks(has_masks: bool, reason: str) -> None:
    of = table(T1, "t1", (column("id", 1),), identity=("id",), primary_key=("id",))
    gateway = Gateway(
        [of], [publish(where="((10 / id) > 1)")], quarantined={"filter"}, has_masks=has_masks
    )

    seen = gateway.commit(relation_of(of), Insert(T1, (b"0",)))

    (error,) = (s.value for s in seen if s.topic == "gw.error")
    assert error is not None
    assert error["reason"].startswith(reason)


def test_copied_rows_are_masked() -> None:
    copy = TableCopy("s", T1, (), ("id", "mail", "note"), HASHED)
    gateway = gateway_of(publish(masks=HASHED), copies=[copy])
    route = gateway.routes.copy_route([copy], ["id"])
    context = TransactionContext("gw", "db", "1", None, Lsn(5), 0, None, "true", 1)
    tx = TransactionState(context, HeaderMaker(Lsn(5), None, None, None))

    (records,) = route.publish([b"4711\tann@example.com\t\\N\n"], Lsn(5), tx)

    assert_hidden(records)
    assert [gateway.see(record).value["after"] for record in records] == [  # type: ignore[index]
        {"id": hashed("4711"), "mail": hashed("ann@example.com"), "note": None}
    ]


def test_a_table_whose_masked_column_is_renamed_is_held() -> None:
    copy = TableCopy("s", T1, (), ("id", "mail", "note"), HASHED)
    gateway = gateway_of(publish(masks=HASHED), copies=[copy])
    names = ("id", "address", "note")
    renamed = Relation(
        T1,
        "public",
        "t1",
        ReplicaIdentity.DEFAULT,
        tuple(
            RelationColumn(name == "id", name, c.type_oid, -1)
            for name, c in zip(names, COLUMNS, strict=True)
        ),
    )

    seen = gateway.commit(renamed, Insert(T1, (b"1", b"ann@example.com", None)))

    assert data(seen) == []
    assert "one of its columns may be a masked one" in gateway.routes.held.reasons["s", T1]


def test_a_table_that_gets_a_mask_is_held_until_it_is_copied() -> None:
    copy = TableCopy("s", T1, (), ("id", "mail", "note"))
    gateway = gateway_of(publish(), copies=[copy])
    masked = replace(
        gateway.plan,
        publishes=(publish(masks=HASHED),),
        copies=(replace(copy, masks=HASHED),),
    )

    before = gateway.commit(relation_of(TABLE), Insert(T1, (b"1", b"x", None)))
    gateway.replanned.append(masked)
    after = gateway.commit(relation_of(TABLE), Insert(T1, (b"2", b"ann@example.com", None)))

    assert [s.key for s in data(before)] == [{"id": 1}]
    assert [s.key for s in data(after)] == [{"id": hashed("2")}]
    assert "a column has another mask" in gateway.routes.held.reasons["s", T1]
    assert gateway.routes.needs_replan


def test_a_table_whose_key_becomes_a_column_that_is_null_is_held() -> None:
    copy = TableCopy("s", T1, (), ("id", "mail", "note"), MIXED)
    gateway = gateway_of(publish(masks=MIXED), copies=[copy])
    of = replace(TABLE, replica_identity=ReplicaIdentity.INDEX, identity=("mail",))

    seen = gateway.commit(relation_of(of), Insert(T1, (b"1", b"ann@example.com", None)))

    assert data(seen) == []
    assert "'mail' is part of the key now" in gateway.routes.held.reasons["s", T1]


def test_a_table_in_which_another_column_has_the_name_of_a_masked_one_does_not_match() -> None:
    filters = gateway_of(publish(masks=MIXED)).routes.filters
    columns = (COLUMNS[0], replace(MAIL, name="old"), COLUMNS[2], replace(MAIL, attnum=4))
    now = replace(TABLE, columns=columns)

    def mismatch(of: Table) -> str | None:
        return mismatch_of(publish(masks=MIXED), relation_of(of), filters, TABLE, [(TABLE, of)])

    assert mismatch(TABLE) is None
    assert mismatch(now) == "another column has the name of a masked one"


def test_last_rows_of_a_dropped_table_with_a_column_that_was_not_known_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NoCatalog, "column", lambda _, name, *__: column(name, 0, *TEXT))
    gateway = gateway_of(publish(masks=MIXED))
    columns = (COLUMNS[0], replace(MAIL, name="mail_old"), COLUMNS[2], replace(MAIL, attnum=4))
    altered = replace(TABLE, columns=columns)

    seen = gateway.commit(relation_of(altered), Insert(T1, (b"1", b"ann@example.com", b"", b"")))

    assert data(seen) == []
    assert gateway.routes.held.lost.keys() == {("s", T1)}


SWAPPED = (COLUMNS[0], replace(MAIL, name="note"), replace(COLUMNS[2], name="mail"))


@pytest.mark.parametrize("columns", [SWAPPED, (*COLUMNS, column("new", 4, *TEXT))])
@pytest.mark.parametrize("now", [None, TABLE], ids=["dropped", "swapped back"])
def test_rows_whose_columns_had_other_names_than_are_known_are_not_published(
    monkeypatch: pytest.MonkeyPatch, columns: tuple[Column, ...], now: Table | None
) -> None:
    monkeypatch.setattr(NoCatalog, "table", lambda _, oid: now)
    monkeypatch.setattr(NoCatalog, "column", lambda _, name, *__: column(name, 0, *TEXT))
    gateway = gateway_of(publish(masks=MIXED))
    row = (b"1", b"ann@example.com", b"", b"ann@example.com")[: len(columns)]

    seen = gateway.commit(relation_of(replace(TABLE, columns=columns)), Insert(T1, row))

    assert data(seen) == []
    assert gateway.routes.held.lost.keys() == {("s", T1)}


@pytest.mark.parametrize("of", [TABLE, replace(TABLE, columns=COLUMNS[:2])], ids=["now", "later"])
def test_rows_of_the_columns_of_the_plan_or_of_the_catalog_are_published(
    monkeypatch: pytest.MonkeyPatch, of: Table
) -> None:
    monkeypatch.setattr(NoCatalog, "table", lambda _, oid: of)
    gateway = gateway_of(publish(masks=(("mail", Mask("null")),)))

    for sent in (TABLE, of):
        row = (b"1", b"ann@example.com", b"x")[: len(sent.columns)]
        (record,) = data(gateway.commit(relation_of(sent), Insert(T1, row)))
        assert record.value is not None
        assert record.value["after"]["mail"] is None


@pytest.mark.parametrize("described", ["as it was", "as its root"])
def test_last_rows_of_a_dropped_partition_are_published_unless_columns_were_renamed(
    monkeypatch: pytest.MonkeyPatch, described: str
) -> None:
    root = table(PARENT, "t1", COLUMNS, identity=("id",), primary_key=("id",), kind="p")
    own = (replace(MAIL, attnum=1), replace(COLUMNS[0], attnum=2), COLUMNS[2])
    leaf = replace(root, oid=CHILD, name="t1_1", kind="r", columns=own)
    planned = leaf if described == "as it was" else replace(root, oid=CHILD)
    monkeypatch.setattr(NoCatalog, "table", lambda _, oid: root if oid == PARENT else None)

    def published(of: Table) -> list[Seen]:
        by_root = publish(relation=CHILD, target=PARENT, masks=MIXED)
        gateway = Gateway([root, planned], [by_root], hash_key=KEY)
        row = Insert(CHILD, (b"ann@example.com", b"1", b"confid"))
        return data(gateway.commit(relation_of(of), row))

    swapped = (replace(own[0], name="note"), own[1], replace(own[2], name="mail"))
    address = (replace(own[0], name="address"), *own[1:])
    (record,) = published(leaf)
    assert record.value is not None
    assert record.value["after"] == {"id": 1, "mail": None, "note": "co"}
    assert published(replace(leaf, columns=address)) == []
    if described == "as it was":
        assert published(replace(leaf, columns=swapped)) == []


def test_masked_rows_are_left_to_the_interpreted_path(row_path: str) -> None:
    masked, plain = gateway_of(publish(masks=MIXED)), gateway_of(publish())

    for gateway in (masked, plain):
        gateway.commit(relation_of(TABLE), Insert(T1, (b"1", None, None)))

    assert masked.routes.by_oid[T1].compiled is None
    assert (plain.routes.by_oid[T1].compiled is None) == (row_path == "interpreted")


def test_a_large_value_that_is_masked_is_no_large_record() -> None:
    gateway = gateway_of(publish(masks=MIXED), most_bytes={"s.public.t1": 100_000})
    large = b"x" * 3_000_000

    seen = gateway.commit(
        relation_of(TABLE),
        Insert(T1, (b"1", large, large)),
        update(OldTuple(OldTupleKind.KEY, (b"0", None, None)), b"1", large, large),
    )

    assert [s.op for s in data(seen)] == ["c", "d", None, "c"]
