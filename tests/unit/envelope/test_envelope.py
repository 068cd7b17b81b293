"""The value of a record, read back by fastavro."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest

from gateway.envelope.envelope import (
    EnvelopeEncoder,
    TransactionContext,
    package_version,
    wire_prefix,
)
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from tests.unit.envelope.columns import T1

CONTEXT = TransactionContext(
    gateway="gw",
    db="shop",
    version="1.2.3",
    xid=745,
    commit_lsn=2**36 + 9,
    commit_time=1_500,  # 2000-01-01 00:00:00.0015
    origin=None,
    snapshot="false",
    ts_ms=1717171717999,
)
OLD: tuple[ColumnValue, ...] = (b"6", None, b"NSW")
NEW: tuple[ColumnValue, ...] = (b"6", b"106", b"NSW")


def make_encoder(key: tuple[str, ...] | None = ("a", "c")) -> EnvelopeEncoder:
    return EnvelopeEncoder(
        "public",
        "t1",
        T1,
        key=key,
        identity=("a", "c"),
        replica_identity="i",
        indexes=(0, 1, 2),
    )


ENCODER = make_encoder()


def envelope(
    op: bytes,
    before: bytes | None,
    after: bytes | None,
    *,
    context: TransactionContext = CONTEXT,
    numbers: tuple[int, int, int, int] = (2**36, 3, 2, 1),
    unchanged: bytes = b"\x00",
) -> Any:
    data = ENCODER.value(op, before, after, ENCODER.begin(context), *numbers, unchanged)
    source = BytesIO(data)
    schema = fastavro.parse_schema(ENCODER.value_schema)
    datum = fastavro.schemaless_reader(source, schema, schema)
    assert source.read() == b""
    return datum


def test_an_update_has_both_rows_its_source_and_its_transaction() -> None:
    assert envelope(b"u", ENCODER.encode_old(OLD), ENCODER.encode_row(NEW)) == {
        "before": {"a": 6, "b": None, "c": "NSW"},
        "after": {"a": 6, "b": 106, "c": "NSW"},
        "source": {
            "version": "1.2.3",
            "connector": "postgresql",
            "name": "gw",
            "db": "shop",
            "schema": "public",
            "table": "t1",
            "identity": "i",
            "ts_ms": 946684800001,
            "snapshot": "false",
            "commit_lsn": 2**36 + 9,
            "txId": 745,
            "origin": None,
            "lsn": 2**36,
            "seq": 3,
        },
        "transaction": {
            "id": "745:68719476745",
            "total_order": 2,
            "data_collection_order": 1,
        },
        "op": "u",
        "ts_ms": 1717171717999,
        "unchanged": [],
    }


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (b"c", None, NEW),
        (b"r", None, NEW),
        (b"d", OLD, None),
        (b"t", None, None),
        (b"u", None, NEW),
    ],
)
def test_an_operation_has_the_rows_that_it_has(
    op: bytes, before: tuple[ColumnValue, ...] | None, after: tuple[ColumnValue, ...] | None
) -> None:
    datum = envelope(
        op,
        None if before is None else ENCODER.encode_row(before),
        None if after is None else ENCODER.encode_row(after),
    )

    assert datum["op"] == op.decode()
    assert (datum["before"] is None) is (before is None)
    assert (datum["after"] is None) is (after is None)


def test_a_snapshot_record_has_no_transaction() -> None:
    context = replace(CONTEXT, xid=None, snapshot="first")

    datum = envelope(b"t", None, None, context=context, numbers=(5, 0, 0, 0))

    assert datum["transaction"] is None
    assert datum["source"]["txId"] is None
    assert datum["source"]["snapshot"] == "first"
    assert (datum["source"]["lsn"], datum["source"]["seq"]) == (5, 0)


def test_an_origin_is_named_in_the_source() -> None:
    datum = envelope(b"t", None, None, context=replace(CONTEXT, origin="größe"))

    assert datum["source"]["origin"] == "größe"


@pytest.mark.parametrize("number", [8191, 8192, 2_000_000])
def test_large_numbers_are_kept(number: int) -> None:
    datum = envelope(b"t", None, None, numbers=(2**62, number, number, number))

    assert datum["source"]["lsn"] == 2**62
    assert datum["source"]["seq"] == number
    assert datum["transaction"]["total_order"] == number
    assert datum["transaction"]["data_collection_order"] == number


def test_columns_that_were_not_sent_are_null_and_named() -> None:
    row = (b"6", b"106", UNCHANGED)

    datum = envelope(b"u", None, ENCODER.encode_row(row), unchanged=ENCODER.encode_unchanged(row))

    assert datum["after"]["c"] is None
    assert datum["unchanged"] == ["c"]


@pytest.mark.parametrize(
    ("key", "has_key", "has_tombstones"),
    [
        pytest.param(("a", "c"), True, True, id="columns"),
        pytest.param((), True, False, id="whole row"),
        pytest.param(None, False, False, id="none"),
    ],
)
def test_only_a_key_of_columns_has_tombstones(
    key: tuple[str, ...] | None, has_key: bool, has_tombstones: bool
) -> None:
    encoder = make_encoder(key)

    assert (encoder.key_schema is not None) is has_key
    assert (encoder.encode_key is not None) is has_key
    assert (encoder.canonical_key is not None) is has_key
    assert encoder.has_tombstones is has_tombstones


def test_the_value_does_not_depend_on_the_key() -> None:
    assert make_encoder(None).value_schema == ENCODER.value_schema


def test_the_wire_prefix_is_confluents() -> None:
    assert wire_prefix(0x01020304) == b"\x00\x01\x02\x03\x04"


def test_the_package_knows_its_version() -> None:
    assert package_version()
