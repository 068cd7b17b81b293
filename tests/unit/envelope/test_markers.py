"""Records that are not rows."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO

import fastavro
import pytest

import schemas
from gateway.envelope.markers import (
    decode_marker,
    decode_progress,
    decode_progress_key,
    decode_totals,
    decode_totals_key,
    encode_copy,
    encode_end,
    encode_message,
    encode_progress,
    encode_progress_key,
    encode_progress_marker,
    encode_reload,
    encode_totals,
    encode_totals_key,
)
from gateway.errors import ProtocolError
from gateway.lsn import Lsn
from gateway.pgoutput.messages import LogicalMessage
from gateway.records import CopyState, Watermark

ONE_DAY = 86_400_000_000
EMPTY: dict[str, object] = {
    "commit_lsn": None,
    "xid": None,
    "commit_time": None,
    "origin": None,
    "gid": None,
    "partitions": [],
    "copy": None,
    "definitions": None,
}


def test_an_end_marker_says_what_the_transaction_brought() -> None:
    marker = encode_end(
        xid=745,
        commit_lsn=100,
        end_lsn=148,
        commit_time=ONE_DAY,
        origin="node_b",
        gid="tx-1",
        partitions=[("s1.public.t1", 0, 2, 40)],
    )

    assert decode_marker(marker) == {
        "kind": "END",
        "end_lsn": 148,
        "commit_lsn": 100,
        "xid": 745,
        "commit_time": datetime(2000, 1, 2, tzinfo=UTC),
        "origin": "node_b",
        "gid": "tx-1",
        "partitions": [{"topic": "s1.public.t1", "partition": 0, "records": 2, "total": 40}],
        "copy": None,
        "definitions": None,
    }


def test_a_progress_marker_says_how_far_everything_is_published() -> None:
    assert decode_marker(encode_progress_marker(4711)) == {
        **EMPTY,
        "kind": "PROGRESS",
        "end_lsn": 4711,
    }


def test_a_copy_marker_says_where_the_copy_stands_and_the_totals() -> None:
    state = CopyState("s1", "public", "t1", "ready", Lsn(77))

    assert decode_marker(encode_copy(state, [("s1.public.t1", 0, 10, 10)])) == {
        **EMPTY,
        "kind": "COPY",
        "end_lsn": 77,
        "partitions": [{"topic": "s1.public.t1", "partition": 0, "records": 10, "total": 10}],
        "copy": {"schema": "public", "table": "t1", "state": "ready", "consistent_point": 77},
    }


def test_a_reload_marker_says_which_definitions_are_in_force_from_where_on() -> None:
    assert decode_marker(encode_reload(4711, "60303ae2")) == {
        **EMPTY,
        "kind": "RELOAD",
        "end_lsn": 4711,
        "definitions": "60303ae2",
    }


def test_a_message_keeps_its_content_as_bytes() -> None:
    message = LogicalMessage(False, Lsn(9), "audit", b"\x00\xff")

    encoded = encode_message(message, commit_lsn=9, xid=None, seq=0, ts_ms=5)

    schema = fastavro.parse_schema(schemas.load("message"))
    assert fastavro.schemaless_reader(BytesIO(encoded), schema, schema) == {
        "prefix": "audit",
        "content": b"\x00\xff",
        "transactional": False,
        "lsn": 9,
        "commit_lsn": 9,
        "xid": None,
        "seq": 0,
        "ts_ms": 5,
    }


def test_a_watermark_is_read_back_as_it_was() -> None:
    watermark = Watermark(
        end_lsn=Lsn(2**40),
        timeline=3,
        definitions="abc",
        copies=(
            CopyState("s1", "public", "t1", "ready", Lsn(5), "60303ae22b998861"),
            CopyState("s1", "public", "t2", "pending"),
        ),
    )

    assert decode_progress(encode_progress(watermark)) == watermark


def test_keys_of_watermark_and_totals_are_read_back() -> None:
    assert decode_progress_key(encode_progress_key("73", "shop", "slot")) == ("73", "shop", "slot")
    assert decode_totals_key(encode_totals_key("73", "shop", "slot", "t")) == (
        "73",
        "shop",
        "slot",
        "t",
    )


def test_totals_are_read_back_by_partition() -> None:
    assert decode_totals(encode_totals([1, 0, 2**40])) == (1, 0, 2**40)


def written_by_a_later_format(name: str, **fields: object) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(schemas.load(name)), {"format": 9, **fields}
    )
    return out.getvalue()


def test_a_watermark_of_another_format_is_refused() -> None:
    data = written_by_a_later_format("progress", timeline=1, end_lsn=0, definitions="", copies=[])

    with pytest.raises(ProtocolError, match="has format 9, this gateway knows 2"):
        decode_progress(data)


def test_a_watermark_of_the_first_format_is_refused_by_its_number() -> None:
    first = schemas.load("progress")
    item = first["fields"][-1]["type"]["items"]
    item["fields"] = [field for field in item["fields"] if field["name"] != "definition"]
    out = BytesIO()
    datum = {"format": 1, "timeline": 1, "end_lsn": 5, "definitions": "", "copies": []}
    fastavro.schemaless_writer(out, fastavro.parse_schema(first), datum)

    with pytest.raises(ProtocolError, match="has format 1, this gateway knows 2"):
        decode_progress(out.getvalue())


def test_totals_of_another_format_are_refused() -> None:
    data = written_by_a_later_format("totals", partitions=[])

    with pytest.raises(ProtocolError, match="has format 9, this gateway knows 1"):
        decode_totals(data)
