"""Records that are not rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from io import BytesIO

import fastavro
import pytest

import schemas
from gateway.core.lsn import Lsn
from gateway.core.records import PartitionOffsets, Writer
from gateway.core.watermark import CopyState
from gateway.envelope.datums import write_datum
from gateway.envelope.encoding.conversions import EPOCH_SHIFT_US
from gateway.envelope.markers import (
    encode_claim,
    encode_copy,
    encode_end,
    encode_end_of,
    encode_message,
    encode_move,
    encode_progress,
    encode_reload,
    encode_writer,
)
from gateway.pgoutput.messages import LogicalMessage
from tests.support.models.markers import decode_marker

NOBODY = b"\0\0"
WRITER = Writer("7409213587021412345", "shöp", "pgsluice", "gw")

ONE_DAY = 86_400_000_000
EMPTY: dict[str, object] = {
    "writer": None,
    "taken_from": None,
    "commit_lsn": None,
    "xid": None,
    "commit_time": None,
    "origin": None,
    "gid": None,
    "topics": [],
    "offsets": [],
    "copy": None,
    "definitions": None,
    "move": None,
    "timeline": None,
}


def test_an_end_marker_says_what_the_transaction_brought() -> None:
    transaction = encode_end_of(
        xid=745,
        commit_lsn=100,
        end_lsn=148,
        commit_time=ONE_DAY,
        origin="node_b",
        gid="tx-1",
    )
    marker = encode_end(transaction, [("s1.public.t1", 2)])

    assert decode_marker(NOBODY + marker) == {
        **EMPTY,
        "kind": "END",
        "end_lsn": 148,
        "commit_lsn": 100,
        "xid": 745,
        "commit_time": datetime(2000, 1, 2, tzinfo=UTC),
        "origin": "node_b",
        "gid": "tx-1",
        "topics": [{"topic": "s1.public.t1", "records": 2}],
        "offsets": [],
        "copy": None,
        "definitions": None,
        "move": None,
        "timeline": None,
    }


@pytest.mark.parametrize("origin", [None, "", "Knoten b, ü"])
@pytest.mark.parametrize("gid", [None, "tx-1"])
@pytest.mark.parametrize("topics", [[], [("s.public.t", 1)], [("t" * 200, 1 << 40)] * 200])
def test_an_end_marker_has_the_bytes_that_fastavro_gives_it(
    origin: str | None, gid: str | None, topics: list[tuple[str, int]]
) -> None:
    transaction = encode_end_of(
        xid=2**32 - 1,
        commit_lsn=2**62,
        end_lsn=2**62 + 8,
        commit_time=-(2**60),
        origin=origin,
        gid=gid,
    )
    marker = encode_end(transaction, topics)

    assert NOBODY + marker == write_datum(
        "transaction",
        {
            "kind": "END",
            "commit_lsn": 2**62,
            "end_lsn": 2**62 + 8,
            "xid": 2**32 - 1,
            "commit_time": -(2**60) + EPOCH_SHIFT_US,
            "origin": origin,
            "gid": gid,
            "topics": [{"topic": topic, "records": records} for topic, records in topics],
        },
    )


@pytest.mark.parametrize("commit_time", [None, -(2**60)])
@pytest.mark.parametrize(
    "offsets",
    [
        [],
        [PartitionOffsets("s.public.t", 0, 0, 1, 0, 1)],
        [PartitionOffsets("ü" * 100, 2**31 - 1, 2**62, 2**62 + 9, 2**62 - 1, 2**40)] * 200,
    ],
    ids=["none", "one", "many"],
)
def test_a_progress_marker_has_the_bytes_that_fastavro_gives_it(
    commit_time: int | None, offsets: list[PartitionOffsets]
) -> None:
    marker = encode_progress(2**62, timeline=2**32 - 1, commit_time=commit_time, offsets=offsets)

    assert NOBODY + marker == write_datum(
        "transaction",
        {
            "kind": "PROGRESS",
            "end_lsn": 2**62,
            "commit_time": None if commit_time is None else commit_time + EPOCH_SHIFT_US,
            "offsets": [asdict(each) for each in offsets],
            "timeline": 2**32 - 1,
        },
    )


def test_a_progress_marker_says_how_far_everything_is_published() -> None:
    assert decode_marker(NOBODY + encode_progress(4711, timeline=3)) == {
        **EMPTY,
        "kind": "PROGRESS",
        "end_lsn": 4711,
        "timeline": 3,
    }


def test_a_progress_marker_says_which_offsets_the_kafka_transaction_has_written() -> None:
    written = PartitionOffsets("s1.public.t1", 2, 40, 45, 38, 5)

    progress = encode_progress(4711, timeline=3, commit_time=ONE_DAY, offsets=[written])

    assert decode_marker(NOBODY + progress) == {
        **EMPTY,
        "kind": "PROGRESS",
        "end_lsn": 4711,
        "timeline": 3,
        "commit_time": datetime(2000, 1, 2, tzinfo=UTC),
        "offsets": [
            {
                "topic": "s1.public.t1",
                "partition": 2,
                "first_offset": 40,
                "next_offset": 45,
                "previous_offset": 38,
                "records": 5,
            }
        ],
    }


def test_a_copy_marker_says_where_the_copy_stands() -> None:
    state = CopyState("s1", "public", "t1", "ready", Lsn(77))

    assert decode_marker(NOBODY + encode_copy(state)) == {
        **EMPTY,
        "kind": "COPY",
        "end_lsn": 77,
        "copy": {
            "schema": "public",
            "table": "t1",
            "state": "ready",
            "consistent_point": 77,
            "reason": None,
        },
    }


def test_a_reload_marker_says_which_definitions_are_in_force_from_where_on() -> None:
    assert decode_marker(NOBODY + encode_reload(4711, "60303ae2")) == {
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


@pytest.mark.parametrize("taken_from", [None, Writer("1", "other", "s", "gw")])
def test_a_claim_says_whose_the_topics_are_and_were(taken_from: Writer | None) -> None:
    assert decode_marker(encode_writer(WRITER, taken_from) + encode_claim()) == {
        **EMPTY,
        "kind": "CLAIM",
        "end_lsn": 0,
        "writer": asdict(WRITER),
        "taken_from": None if taken_from is None else asdict(taken_from),
    }


@pytest.mark.parametrize(("settled", "state"), [(False, "begun"), (True, "settled")])
def test_a_move_marker_says_which_table_and_no_value(settled: bool, state: str) -> None:
    marker = encode_move(4711, schema="public", table="t1", settled=settled)

    assert decode_marker(NOBODY + marker) == {
        **EMPTY,
        "kind": "MOVE",
        "end_lsn": 4711,
        "move": {"schema": "public", "table": "t1", "state": state},
    }
