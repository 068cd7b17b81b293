"""Records of the progress topic."""

from __future__ import annotations

from io import BytesIO
from typing import cast

import fastavro
import pytest

import schemas
from gateway.core.errors import HeldCause, ProtocolError
from gateway.core.lsn import Lsn
from gateway.core.watermark import (
    CopyRequest,
    CopyState,
    StatePart,
    StatePartKind,
    Watermark,
)
from gateway.envelope.progress import (
    PROGRESS_FORMAT,
    Position,
    ProgressKey,
    TopicOffsets,
    copy_name,
    decode_key,
    decode_value,
    encode_copy_state,
    encode_key,
    encode_offsets,
    encode_part,
    encode_position,
    encode_request,
)


def test_a_position_is_read_back_without_the_copies() -> None:
    copies = (CopyState("s1", "public", "t1", "ready", Lsn(5)),)
    watermark = Watermark(Lsn(2**40), 3, "abc", copies, schemas="f0")

    read = decode_value(encode_position(watermark), "position")

    assert read == Position(3, Lsn(2**40), "abc", schemas="f0")


@pytest.mark.parametrize(
    "state",
    [
        CopyState("s1", "public", "t1", "ready", Lsn(5), "60303ae22b998861"),
        CopyState("s1", "public", "t2", "pending"),
        CopyState("s1", "public", "t3", "ready", Lsn(5), asked=""),
        CopyState("s1", "public", "t4", "ready", Lsn(5), asked="a > 5"),
    ],
)
def test_the_state_of_a_copy_is_read_back_as_it_was(state: CopyState) -> None:
    assert decode_value(encode_copy_state(state), "copy", copy_name(state)) == state


def test_next_offsets_are_read_back_by_partition() -> None:
    for offsets in (TopicOffsets((1, 0, 2**40), "kdn6"), TopicOffsets((), "kdn6")):
        assert decode_value(encode_offsets(offsets), "offsets") == offsets


@pytest.mark.parametrize(
    "request_",
    [
        CopyRequest("n", "public", "t1", "s", "a > 5"),
        CopyRequest("n", None, None, cancel=True),
    ],
)
def test_a_request_is_read_back_under_its_name(request_: CopyRequest) -> None:
    assert decode_value(encode_request(request_), "request", "n") == request_


@pytest.mark.parametrize("kind", ["set", "moves"])
def test_a_part_of_the_state_is_read_back_under_its_name(kind: StatePartKind) -> None:
    for value in (b"", b"\0\xff"):
        assert decode_value(encode_part(value), kind, "n/0.0") == StatePart(kind, "n/0.0", value)
    with pytest.raises(ProtocolError, match=f"not that of a {kind}"):
        decode_value(encode_offsets(TopicOffsets((1,))), kind, "n")
    with pytest.raises(ProtocolError, match="not that of a copy"):
        decode_value(encode_part(b""), "copy", "n")


def test_keys_are_read_back() -> None:
    key = ProgressKey("73", "shop", "slot", "offsets", "s1.public.t1")

    assert decode_key(encode_key(key)) == key


def test_copies_of_tables_whose_names_have_points_have_names_of_their_own() -> None:
    states = [CopyState("s", "a.b", "c", "ready"), CopyState("s", "a", "b.c", "ready")]

    assert len({copy_name(state) for state in states}) == 2


def test_a_state_that_is_held_for_what_holds_no_table_is_refused() -> None:
    state = CopyState("s", "public", "t", "held", cause=cast(HeldCause, "whim"))

    with pytest.raises(ProtocolError, match="held for what holds no table"):
        decode_value(encode_copy_state(state), "copy", copy_name(state))


@pytest.mark.parametrize("number", [2, 99], ids=["an earlier one", "a later one"])
def test_a_record_of_another_format_is_refused_by_its_number(number: int) -> None:
    schema = schemas.load("progress")
    schema["fields"] = schema["fields"][:1]
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"format": number})

    with pytest.raises(
        ProtocolError, match=f"has format {number}, this gateway knows {PROGRESS_FORMAT}"
    ):
        decode_value(out.getvalue(), "position")
