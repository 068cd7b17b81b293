"""Records of subscriptions with another format than pgsluice's own."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.errors import RecordSizeError, SchemaError, ValueFormatError
from gateway.core.lsn import Lsn
from gateway.definitions.model import Element, TableCopy
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.pgoutput.messages import (
    UNCHANGED,
    Delete,
    Insert,
    OldTuple,
    OldTupleKind,
    ReplicaIdentity,
    Truncate,
    Update,
)
from gateway.routing.row.native import why_interpreted
from gateway.routing.row.transaction_state import TransactionState
from schemas.settings.masks import Mask
from schemas.settings.tables import EnvelopeTable, TypesTable
from tests.support.gateway.routing_scene import (
    T1,
    Gateway,
    Seen,
    column,
    data,
    full_tuple,
    key_tuple,
    ops,
    publish,
    relation_of,
    table,
    update,
)

DEBEZIUM = EnvelopeTable(format="debezium")
ROW = EnvelopeTable(format="row")
COLUMNS = (
    column("a", 1),
    column("note", 2, 25, "text"),
    column("raw", 3, 17, "bytea"),
    column("seen", 4, 1184, "timestamp with time zone"),
    column("clock", 5, 1083, "time without time zone"),
)
TABLE = table(T1, "t1", COLUMNS)
RELATION = relation_of(TABLE)
NEW = (b"1", b"x", b"\\x00ff", b"2024-02-29 12:34:56.5+00", b"24:00:00")
UNSENT = (b"1", UNCHANGED, UNCHANGED, None, None)
PLACEHOLDER = "__debezium_unavailable_value"


def gateway_of(envelope: EnvelopeTable, *publishes: Any, **how: Any) -> Gateway:
    return Gateway([TABLE], publishes or (publish(),), envelope=envelope, **how)


def values(seen: list[Seen]) -> list[dict[str, Any]]:
    return [s.value for s in data(seen) if s.value is not None]


def test_debezium_has_instants_as_text_and_times_to_the_end_of_the_day() -> None:
    (value,) = values(gateway_of(DEBEZIUM).commit(RELATION, Insert(T1, NEW)))

    assert value["after"] == {
        "a": 1,
        "note": "x",
        "raw": b"\x00\xff",
        "seen": "2024-02-29T12:34:56.500000Z",
        "clock": 24 * 3600 * 1_000_000,
    }


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        (0, {b"2024-02-29 12:34:56+00": "2024-02-29T12:34:56Z"}),
        (3, {b"2024-02-29 12:34:56+00": "2024-02-29T12:34:56.000Z"}),
        (3, {b"2024-02-29 12:34:56.789+00": "2024-02-29T12:34:56.789Z"}),
        (-1, {b"2024-02-29 12:34:56+00": "2024-02-29T12:34:56.000000Z"}),
        (-1, {b"12024-02-29 12:34:56.5+00": "+12024-02-29T12:34:56.500000Z"}),
        (-1, {b"infinity": "infinity"}),
    ],
)
def test_debezium_s_instants_have_the_digits_of_the_column(
    digits: int, expected: dict[bytes, str]
) -> None:
    """Source: see test_an_instant_for_debezium_s_consumers."""
    seen = replace(column("seen", 2, 1184, "timestamp with time zone"), type_modifier=digits)
    instants = table(T1, "t1", (column("a", 1), seen))
    gateway = Gateway([instants], [publish()], envelope=DEBEZIUM)

    found = values(
        gateway.commit(relation_of(instants), *(Insert(T1, (b"1", text)) for text in expected))
    )

    assert [value["after"]["seen"] for value in found] == list(expected.values())


def test_debezium_s_source_has_its_fields_and_ours() -> None:
    (value,) = values(gateway_of(DEBEZIUM).commit(RELATION, Insert(T1, NEW)))

    source = value["source"]
    unknown = {name: source[name] for name in ("sequence", "xmin", "ts_us", "ts_ns", "origin_lsn")}
    assert set(unknown.values()) == {None}
    assert (source["name"], source["db"], source["table"], source["txId"]) == ("gw", "db", "t1", 7)
    assert (source["identity"], source["seq"]) == ("d", 1)


@pytest.mark.parametrize(
    ("change", "op"),
    [
        pytest.param(Update(T1, None, UNSENT), "u", id="an update"),
        pytest.param(Update(T1, key_tuple(b"9", None, None, None, None), UNSENT), "c", id="a move"),
    ],
)
@pytest.mark.parametrize("envelope", [DEBEZIUM, ROW], ids=["debezium", "row"])
def test_a_large_value_that_was_not_sent_is_debezium_s_text(
    envelope: EnvelopeTable, change: Update, op: str
) -> None:
    value = values(gateway_of(envelope).commit(RELATION, change))[-1]

    row = value["after"] if envelope is DEBEZIUM else value
    assert value.get("op", value.get("__op")) == op
    assert (row["note"], row["raw"]) == (PLACEHOLDER, PLACEHOLDER.encode())
    assert value["unchanged" if envelope is DEBEZIUM else "__unchanged"] == ["note", "raw"]


def test_a_row_that_a_filter_inserts_lacks_such_a_value_as_natively() -> None:
    gateway = gateway_of(DEBEZIUM, publish(where="(a < 5)"))

    (value,) = values(
        gateway.commit(RELATION, Update(T1, key_tuple(b"9", None, None, None, None), UNSENT))
    )

    assert (value["op"], value["after"]["note"], value["unchanged"]) == ("c", None, ["note", "raw"])


def test_an_old_row_never_has_debezium_s_text() -> None:
    whole = replace(TABLE, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([whole], [publish()], envelope=DEBEZIUM)

    (value,) = values(
        gateway.commit(relation_of(whole), Delete(T1, OldTuple(OldTupleKind.FULL, UNSENT)))
    )

    assert (value["before"]["note"], value["before"]["raw"]) == (None, None)


@pytest.mark.parametrize("envelope", [DEBEZIUM, ROW], ids=["debezium", "row"])
def test_values_of_several_parts_have_debezium_s_text_where_it_could_not_be_a_value(
    envelope: EnvelopeTable,
) -> None:
    """Numbers are null: Debezium has the characters' codes, and those may be a value.

    Source: Debezium's UnchangedToastedPlaceholder and setUnchangedToastValue of its
    UnchangedToastedReplicationMessageColumn.
    """
    of = {"texts": (1009, 25, "text"), "docs": (199, 114, "json"), "more": (3807, 3802, "jsonb")}
    of |= {"raws": (1001, 17, "bytea"), "tokens": (2951, 2950, "uuid")}
    of |= {"ints": (1007, 23, "integer"), "days": (1182, 1082, "date")}
    arrays = [
        replace(column(name, n, array, f"{kind}[]"), element=Element(oid, -1, kind, "b"))
        for n, (name, (array, oid, kind)) in enumerate(of.items(), 2)
    ]
    pairs = column("pairs", 20, 65_000, "hstore")
    several = table(T1, "t1", (column("a", 1), *arrays, pairs))
    types = TypesTable(arrays="native", hstore="native")
    gateway = Gateway([several], [publish()], envelope=envelope, types=types)
    unsent = [UNCHANGED] * (len(of) + 1)

    (value,) = values(gateway.commit(relation_of(several), Update(T1, None, (b"1", *unsent))))

    row = value.get("after", value)
    token = uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode()).digest(), version=3)
    assert {name: row[name] for name in (*of, "pairs")} == {
        **{name: [PLACEHOLDER] for name in ("texts", "docs", "more")},
        "raws": [PLACEHOLDER.encode()],
        "tokens": [token if envelope is ROW else str(token)],
        **dict.fromkeys(("ints", "days")),
        "pairs": {PLACEHOLDER: PLACEHOLDER},
    }
    unchanged = value["unchanged" if envelope is DEBEZIUM else "__unchanged"]
    assert unchanged == [*of, "pairs"]


def test_what_cannot_hold_debezium_s_text_is_null() -> None:
    items = Element(3906, -1, "numrange", "b")
    columns = (
        column("a", 1),
        column("numbers", 2, 3906, "numrange"),  # its bounds are text, and it is none
        replace(column("many", 3, 3907, "numrange[]"), element=items),
        column("span", 4, 1186, "interval"),
    )
    ranges = table(T1, "t1", columns)
    types = TypesTable(arrays="native", interval="native", ranges="native")
    gateway = Gateway([ranges], [publish()], envelope=DEBEZIUM, types=types)

    (value,) = values(
        gateway.commit(relation_of(ranges), Update(T1, None, (b"1", *[UNCHANGED] * 3)))
    )

    names = [column.name for column in columns[1:]]
    assert value["after"] == {"a": 1, **dict.fromkeys(names)}
    assert value["unchanged"] == names


def test_both_halves_of_a_key_change_name_the_other_key() -> None:
    gateway = gateway_of(DEBEZIUM, publish("s"), publish("other"))

    seen = data(
        gateway.commit(
            RELATION,
            update(key_tuple(b"9", None, None, None, None), *NEW),
            Update(T1, None, NEW),
            Delete(T1, key_tuple(b"1", None, None, None, None)),
        )
    )

    moved = [(s.op, s.key, s.other_key, s.headers["rekey"]) for s in seen if "rekey" in s.headers]
    assert (
        moved
        == [
            ("d", {"a": 9}, {"__debezium.newkey": {"a": 1}}, "old"),
            (None, {"a": 9}, {"__debezium.newkey": {"a": 1}}, "old"),
            ("c", {"a": 1}, {"__debezium.oldkey": {"a": 9}}, "new"),
        ]
        * 2
    )
    assert [s.other_key for s in seen if "rekey" not in s.headers] == [{}] * 6


def test_the_headers_of_a_key_change_count_for_the_size_of_a_record() -> None:
    texts = table(T1, "t1", (column("k", 1, 25, "text"),), identity=("k",), primary_key=("k",))
    gateway = Gateway([texts], [publish()], envelope=DEBEZIUM, most_bytes={"s.public.t1": 9_000})
    change = update(key_tuple(b"a" * 1_900), b"b" * 1_900)

    seen = data(gateway.commit(relation_of(texts), change))

    assert [s.op for s in seen] == ["d", None, "c"]
    with pytest.raises(RecordSizeError):
        gateway.commit(update(key_tuple(b"a" * 2_300), b"b" * 2_300))


def test_a_row_is_flat_and_a_delete_has_its_key_and_a_tombstone() -> None:
    gateway = gateway_of(ROW)

    seen = data(
        gateway.commit(
            RELATION, Insert(T1, NEW), Delete(T1, key_tuple(b"1", None, None, None, None))
        )
    )

    inserted, deleted = values(seen)
    assert [s.key for s in seen] == [{"a": 1}] * 3
    assert seen[2].value is None
    assert list(inserted)[-4:] == ["__op", "__lsn", "__deleted", "__unchanged"]
    assert (inserted["note"], inserted["__op"], inserted["__deleted"]) == ("x", "c", False)
    assert (deleted["note"], deleted["__op"], deleted["__deleted"]) == (None, "d", True)
    assert inserted["__lsn"] < deleted["__lsn"]
    assert deleted["a"] == 1


def test_a_deleted_row_is_whole_where_it_was_logged() -> None:
    full = replace(TABLE, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish()], envelope=ROW)

    (deleted,) = values(gateway.commit(relation_of(full), Delete(T1, full_tuple(*NEW))))

    assert (deleted["note"], deleted["__deleted"]) == ("x", True)


@pytest.mark.parametrize("name", ["__op", "__lsn", "__deleted", "__unchanged"])
def test_a_column_cannot_have_the_name_of_a_row_s_field(name: str) -> None:
    taken = table(T1, "t1", (column("a", 1), column(name, 2)))
    gateway = Gateway([taken], [publish()], envelope=ROW)

    with pytest.raises(SchemaError, match=name):
        gateway.commit(relation_of(taken), Insert(T1, (b"1", b"2")))


@pytest.mark.parametrize(
    ("envelope", "truncated"),
    [
        pytest.param(DEBEZIUM, ["s", "t"], id="debezium"),
        pytest.param(ROW, [], id="row"),
        pytest.param(replace(DEBEZIUM, without_truncates=("s",)), ["t"], id="without"),
        pytest.param(EnvelopeTable(subscriptions={"t": "row"}), ["s"], id="one of two"),
    ],
)
def test_a_truncate_is_sent_where_it_can_be_taken(
    envelope: EnvelopeTable, truncated: list[str]
) -> None:
    gateway = gateway_of(envelope, publish("s"), publish("t"))

    seen = data(gateway.commit(RELATION, Truncate(False, False, (T1,))))

    assert [(s.topic, s.op) for s in seen] == [(f"{name}.public.t1", "t") for name in truncated]


@pytest.mark.parametrize("without", [(), ("s",)])
def test_a_copy_begins_with_a_truncate_where_it_can_be_taken(without: tuple[str, ...]) -> None:
    columns = tuple(c.name for c in COLUMNS)
    copies = (TableCopy("s", T1, (), columns),)
    envelope = replace(DEBEZIUM, without_truncates=without)
    gateway = Gateway([TABLE], [publish()], copies=copies, envelope=envelope)
    route = gateway.routes.copy_route(copies, ("a",))

    def transaction(snapshot: Any) -> TransactionState:
        context = TransactionContext("gw", "db", "1", None, 900, 0, None, snapshot, 0)
        return TransactionState(context, HeaderMaker(900, None))

    begun = route.begin(Lsn(900), transaction("first"))
    copied = [r for p in route.publish([list(NEW)], Lsn(900), transaction("true")) for r in p]

    assert ops([gateway.see(record) for record in begun]) == ([] if without else ["t"])
    assert ops([gateway.see(record) for record in copied]) == ["r"]


@pytest.mark.parametrize("envelope", [DEBEZIUM, ROW], ids=["debezium", "row"])
def test_masks_hold_in_every_format(envelope: EnvelopeTable) -> None:
    key = b"0123456789abcdef0123456789abcdef"
    masks = (("a", Mask("hash")), ("note", Mask("hash")), ("raw", Mask("null")))
    gateway = Gateway(
        [TABLE], [publish(masks=masks)], envelope=envelope, hash_key=key, has_masks=True
    )

    def hashed(text: bytes) -> str:
        return hmac.new(key, text, hashlib.sha256).hexdigest()

    records = gateway.route(
        gateway.frames(
            RELATION,
            Insert(T1, (b"4711", b"secret", b"\\x736563726574", None, None)),
            Update(T1, key_tuple(b"4711", None, None, None, None), (b"4712", *UNSENT[1:])),
            Delete(T1, key_tuple(b"4712", None, None, None, None)),
        )
    )

    for _, _, record_key, value, headers in records:
        written = b"".join([record_key or b"", value or b"", *(text for _, text in headers)])
        assert b"secret" not in written
        assert b"471" not in written.replace(hashed(b"4711").encode(), b"").replace(
            hashed(b"4712").encode(), b""
        )
    moved = values([gateway.see(record) for record in records])[-2]
    row = moved.get("after", moved)
    assert (row["a"], row["note"], row["raw"]) == (hashed(b"4712"), PLACEHOLDER, None)


@pytest.mark.parametrize("identity", ["key", "row"])
@pytest.mark.parametrize("kind", [1083, 1114])
def test_connect_s_times_leave_the_keys_of_rows_apart(kind: int, identity: str) -> None:
    of = {1083: "time without time zone", 1114: "timestamp without time zone"}[kind]
    whole = identity == "row"
    at = table(
        *(T1, "t1", (column("at", 1, kind, of), column("a", 2))),
        identity=() if whole else ("at",),
        primary_key=() if whole else ("at",),
        replica_identity=ReplicaIdentity.FULL if whole else ReplicaIdentity.DEFAULT,
    )
    envelope = replace(DEBEZIUM, time_precision="connect")
    gateway = Gateway([at], [publish()], envelope=envelope, partitions=7)
    day = b"2024-02-29 " if kind == 1114 else b""
    rows = [Insert(T1, (day + b"12:34:56.78900%d" % n, b"1")) for n in range(9)]

    seen = data(gateway.commit(relation_of(at), *rows))

    assert len({s.key["at"] for s in seen if s.key}) == 9
    assert len({s.partition for s in seen}) > 1
    first = seen[0].value
    assert first is not None
    assert seen[0].key == {name: first["after"][name] for name in seen[0].key or ()}


def test_an_instant_that_ours_cannot_carry_is_refused_by_the_compiled_path_too() -> None:
    for late in (b"294247-01-10 04:00:54.775807+00", b"2024-13-01 00:00:00+00"):
        gateway = gateway_of(DEBEZIUM)
        with pytest.raises(ValueFormatError, match="column seen"):
            gateway.commit(RELATION, Insert(T1, (b"1", None, None, late, None)))


def test_subscriptions_of_one_table_have_their_own_formats() -> None:
    gateway = gateway_of(
        EnvelopeTable(subscriptions={"d": "debezium", "r": "row"}),
        *map(publish, ("s", "d", "r", "s2")),
    )

    seen = data(gateway.commit(RELATION, Insert(T1, (*NEW[:4], b"01:00:00"))))

    clocks = {s.topic[0]: s.value and s.value.get("after", s.value)["clock"] for s in seen}
    assert clocks == {"s": "01:00:00", "d": 3_600_000_000, "r": "01:00:00"}
    assert len({id(s.value) for s in seen}) == 4


@pytest.mark.parametrize(
    ("envelope", "compiled"),
    [
        pytest.param(DEBEZIUM, True, id="debezium"),
        pytest.param(replace(DEBEZIUM, time_precision="connect"), False, id="connect"),
        pytest.param(ROW, False, id="row"),
    ],
)
def test_which_formats_are_routed_in_c(envelope: EnvelopeTable, compiled: bool) -> None:
    gateway = gateway_of(envelope)

    gateway.commit(RELATION, Insert(T1, (*NEW[:4], b"01:00:00")))

    assert (gateway.routes.by_oid[T1].compiled is not None) is (
        compiled and why_interpreted() is None
    )
