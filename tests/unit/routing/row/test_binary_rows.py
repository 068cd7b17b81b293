"""Rows in binary format are published as the same rows in text format are."""

from __future__ import annotations

import pytest

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.definitions.model import Column, SubscriptionDefinition, Table
from gateway.pgoutput.messages import (
    UNCHANGED,
    BinaryValue,
    ColumnValue,
    Delete,
    Insert,
    OldTuple,
    OldTupleKind,
    ReplicaIdentity,
    TupleData,
    Update,
)
from gateway.pgtypes.binary import TypeInfo
from gateway.source.stream.options import negotiate
from tests.support.gateway.routing_scene import (
    T1,
    Gateway,
    column,
    data,
    publish,
    relation_of,
    table,
)

ACLITEM, MONEY = 1033, 790

TYPES = {
    info.oid: info
    for info in (
        TypeInfo(23, "integer", "b", "int4out", "int4send"),
        TypeInfo(25, "text", "b", "textout", "textsend"),
        TypeInfo(1700, "numeric", "b", "numeric_out", "numeric_send"),
        TypeInfo(ACLITEM, "aclitem", "b", "aclitemout", None),
        TypeInfo(MONEY, "money", "b", "cash_out", "cash_send"),
    )
}


class Types:
    """A catalog that knows types and nothing else."""

    def table(self, oid: int) -> Table | None:
        return None

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column:
        raise AssertionError(name)

    def type_info(self, oid: int) -> TypeInfo:
        return TYPES[oid]


COLUMNS = (
    column("a", 1),
    column("b", 2),
    column("n", 3, 1700, "numeric"),
    column("t", 4, 25, "text"),
    column("acl", 5, ACLITEM, "aclitem"),
)
MIXED = table(T1, "t1", COLUMNS)


def binary(values: TupleData) -> TupleData:
    """Integers and the numeric 1.10 as a server sends them; aclitem has no binary format."""
    result: list[ColumnValue] = []
    for index, value in enumerate(values):
        if not isinstance(value, bytes) or index == 4:
            result.append(value)
        elif index in (0, 1):
            result.append(BinaryValue(int(value).to_bytes(4, "big", signed=True)))
        elif index == 2:
            assert value == b"1.10"
            result.append(BinaryValue(bytes.fromhex("0002000000000002000103e8")))
        else:
            result.append(BinaryValue(value))
    return tuple(result)


def messages(encode: bool, replica_identity: ReplicaIdentity) -> list[Insert | Update | Delete]:
    def row(*values: ColumnValue) -> TupleData:
        return binary(values) if encode else values

    full = replica_identity is ReplicaIdentity.FULL
    kind = OldTupleKind.FULL if full else OldTupleKind.KEY

    def old(key: bytes, b: bytes) -> OldTuple:
        return OldTuple(
            kind, row(key, b, b"1.10", b"x", b"=r/o") if full else row(key, None, None, None, None)
        )

    changes: list[Insert | Update | Delete] = [
        Insert(T1, row(b"1", b"2", b"1.10", b"x", b"=r/o")),
        Insert(T1, row(b"-5", None, None, None, None)),
        Update(T1, None, row(b"1", b"3", b"1.10", UNCHANGED, b"=r/o")),
        Update(T1, old(b"1", b"3"), row(b"2", b"3", b"1.10", UNCHANGED, b"=r/o")),
        Delete(T1, old(b"2", b"3")),
    ]
    if full:
        changes[2] = Update(T1, old(b"1", b"0"), row(b"1", b"3", b"1.10", UNCHANGED, b"=r/o"))
    return changes


@pytest.mark.parametrize("identity", [ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL])
@pytest.mark.parametrize("where", [None, "b > 1", "n = 1.1 AND a <> 7"])
def test_binary_rows_make_the_records_of_text_rows(
    identity: ReplicaIdentity, where: str | None
) -> None:
    if identity is ReplicaIdentity.DEFAULT and where is not None:
        where = "a <> 7"
    names = tuple(c.name for c in COLUMNS) if identity is ReplicaIdentity.FULL else ("a",)
    shown = table(T1, "t1", COLUMNS, replica_identity=identity, identity=names)
    seen = []
    for catalog in (None, Types()):
        gateway = Gateway([shown], [publish(where=where)], binary=catalog, partitions=3)
        changes = messages(catalog is not None, identity)
        seen.append(gateway.commit(relation_of(shown), *changes))

    in_text, in_binary = seen
    assert in_binary == in_text
    assert len(data(in_text)) >= 5


def test_a_column_that_nobody_reads_may_have_any_type() -> None:
    shown = table(T1, "t1", (column("a", 1), column("cash", 2, MONEY, "money")))
    gateway = Gateway([shown], [publish(columns=("a",))], binary=Types())

    row = (*binary((b"1",)), BinaryValue(b"\0" * 8))
    seen = data(gateway.commit(relation_of(shown), Insert(T1, row)))

    assert [s.value["after"] for s in seen if s.value is not None] == [{"a": 1}]


def test_a_published_type_that_cannot_be_read_is_refused_before_its_first_row() -> None:
    shown = table(T1, "t1", (column("a", 1), column("cash", 2, MONEY, "money")))
    gateway = Gateway([shown], [publish()], binary=Types())

    with pytest.raises(SchemaError, match=r"public\.t1: column 'cash': values of type money"):
        gateway.commit(relation_of(shown), Insert(T1, (b"1", b"1")))
    with pytest.raises(SchemaError, match=r"public\.t1: column 'cash'"):
        gateway.routes.register_all()


def test_a_value_of_another_format_is_named_by_its_column_and_never_shown() -> None:
    gateway = Gateway([MIXED], [publish()], binary=Types())
    row: TupleData = (BinaryValue(b"secret"), None, None, None, None)

    with pytest.raises(ValueFormatError, match=r"public\.t1: column 'a'") as caught:
        gateway.commit(relation_of(MIXED), Insert(T1, row))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("wishes", "expected"), [([True], True), ([True, True], True), ([True, False], False)]
)
def test_the_stream_is_binary_when_every_subscription_asks_for_it(
    wishes: list[bool], expected: bool
) -> None:
    subscriptions = [
        SubscriptionDefinition(f"s{number}", ("p",), binary=wish)
        for number, wish in enumerate(wishes)
    ]

    assert negotiate(subscriptions, 160000).binary is expected
