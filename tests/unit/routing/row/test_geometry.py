"""Columns of PostGIS's types, whose text is hexadecimal EWKB, as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.errors import UnfitKind
from gateway.pgoutput.messages import UNCHANGED, Insert, Update
from schemas.settings.tables import EnvelopeTable, TypesTable
from tests.golden import ewkb
from tests.support.gateway.routing_scene import (
    T1,
    Gateway,
    column,
    data,
    publish,
    relation_of,
    table,
)

NATIVE = TypesTable(geometry="native")
KINDS: tuple[UnfitKind, ...] = ("value",)
SHAPE = column("shape", 2, 65_000, "public.geometry(Geometry,4326)")
PLACE = column("place", 3, 65_001, '"of extensions".geography')
PLACES = table(T1, "t1", (column("a", 1), SHAPE, PLACE))


def test_values_that_postgis_printed_are_its_bytes() -> None:
    gateway = Gateway([PLACES], [publish()], types=NATIVE)
    texts = [value.printed for value in ewkb.read()]

    seen = data(
        gateway.commit(
            relation_of(PLACES),
            *(Insert(T1, (b"1", text.encode(), text.encode())) for text in texts),
            Insert(T1, (b"1", None, None)),
        )
    )

    values = [one.value["after"] for one in seen if one.value is not None]
    assert [value["shape"] for value in values] == [*map(bytes.fromhex, texts), None]
    assert [value["place"] for value in values] == [*map(bytes.fromhex, texts), None]


def test_without_the_setting_they_are_text() -> None:
    gateway = Gateway([PLACES], [publish()])

    (one,) = data(gateway.commit(relation_of(PLACES), Insert(T1, (b"1", b"0101", b"01"))))

    assert one.value is not None
    assert one.value["after"] == {"a": 1, "shape": "0101", "place": "01"}


def test_a_key_has_the_bytes_and_its_partition_follows_from_the_text() -> None:
    keyed = table(T1, "t1", (column("a", 1), SHAPE), identity=("shape",), primary_key=("shape",))
    texts = [value.printed.encode() for value in ewkb.read() if value.pg_type == "geometry"]
    changes = [Insert(T1, (b"1", text)) for text in texts]
    native, as_text = (
        data(
            Gateway([keyed], [publish()], types=types, partitions=7).commit(
                relation_of(keyed), *changes
            )
        )
        for types in (NATIVE, TypesTable())
    )

    assert [one.key for one in native] == [{"shape": bytes.fromhex(t.decode())} for t in texts]
    assert [one.partition for one in native] == [one.partition for one in as_text]
    assert len({one.partition for one in native}) > 1


@pytest.mark.parametrize("text", [b"0", b"0G", b"\\x01", b"01 "])
def test_other_text_is_a_value_that_cannot_be_carried(text: bytes) -> None:
    gateway = Gateway([PLACES], [publish()], types=NATIVE, quarantined=KINDS)

    seen = gateway.commit(relation_of(PLACES), Insert(T1, (b"1", text, None)))

    (error,) = (one.value for one in seen if one.topic == "gw.error")
    assert error is not None
    assert error["reason"].startswith("public.t1, column shape: ")
    assert not any(one.topic.startswith("s.") for one in data(seen))


@pytest.mark.parametrize("kind", ["debezium", "row"])
def test_one_that_did_not_change_has_debezium_s_bytes(kind: str) -> None:
    large = table(T1, "t1", (column("a", 1), replace(SHAPE, name="large"), PLACE))
    envelope = EnvelopeTable(format="debezium" if kind == "debezium" else "row")
    gateway = Gateway([large], [publish()], types=NATIVE, envelope=envelope)

    (one,) = data(gateway.commit(relation_of(large), Update(T1, None, (b"1", UNCHANGED, b"0102"))))

    assert one.value is not None
    row = one.value.get("after", one.value)
    assert (row["large"], row["place"]) == (b"__debezium_unavailable_value", b"\x01\x02")
