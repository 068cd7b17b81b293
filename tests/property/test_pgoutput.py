"""The decoder against every message there can be, cut anywhere, and against noise."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput.decoder import Decoder, decode_message
from gateway.pgoutput.frames import decode_keepalive
from gateway.pgoutput.messages import (
    UNCHANGED,
    Begin,
    BeginPrepare,
    BinaryValue,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldTuple,
    OldTupleKind,
    Origin,
    Prepare,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from gateway.pgoutput.tuples import split_tuple
from tests.support.models.pgoutput_encode import encode_message, encode_tuple

u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
times = st.integers(-(2**63), 2**63 - 1)
lsns = st.integers(0, 2**64 - 1).map(Lsn)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
names = texts.filter(bool)
no_flags = st.just(0)

values = st.none() | st.just(UNCHANGED) | st.binary() | st.binary().map(BinaryValue)
tuples = st.lists(values, max_size=12).map(tuple)
old_tuples = st.builds(OldTuple, st.sampled_from(OldTupleKind), tuples)
columns = st.lists(st.builds(RelationColumn, st.booleans(), texts, u32, i32), max_size=8)

ROW_AND_SCHEMA: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
    Insert: {"relation_oid": u32, "new": tuples},
    Update: {"relation_oid": u32, "old": st.none() | old_tuples, "new": tuples},
    Delete: {"relation_oid": u32, "old": old_tuples},
    Truncate: {
        "cascade": st.booleans(),
        "restart_identity": st.booleans(),
        "relation_oids": st.lists(u32, max_size=9).map(tuple),
    },
    LogicalMessage: {
        "transactional": st.booleans(),
        "lsn": lsns,
        "prefix": texts,
        "content": st.binary(),
    },
    Relation: {
        "relation_oid": u32,
        "namespace": names,
        "name": texts,
        "replica_identity": st.sampled_from(ReplicaIdentity),
        "columns": columns.map(tuple),
    },
    Type: {"type_oid": u32, "namespace": names, "name": texts},
}
_ENDED = {"flags": no_flags, "commit_lsn": lsns, "end_lsn": lsns, "commit_time": times}
_PREPARED = {"prepare_lsn": lsns, "end_lsn": lsns, "prepare_time": times, "xid": u32, "gid": texts}
CONTROL: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
    Begin: {"final_lsn": lsns, "commit_time": times, "xid": u32},
    Commit: _ENDED,
    Origin: {"origin_lsn": lsns, "name": texts},
    StreamStart: {"xid": u32, "first_segment": st.booleans()},
    StreamStop: {},
    StreamCommit: {"xid": u32, **_ENDED},
    BeginPrepare: _PREPARED,
    Prepare: {"flags": no_flags, **_PREPARED},
    StreamPrepare: {"flags": no_flags, **_PREPARED},
    CommitPrepared: {**_ENDED, "xid": u32, "gid": texts},
    RollbackPrepared: {
        "flags": no_flags,
        "prepare_end_lsn": lsns,
        "rollback_end_lsn": lsns,
        "prepare_time": times,
        "rollback_time": times,
        "xid": u32,
        "gid": texts,
    },
}
SHORT_ABORT = st.builds(StreamAbort, u32, u32)
LONG_ABORT = st.builds(StreamAbort, u32, u32, lsns, times)


def data_messages(xids: st.SearchStrategy[int | None]) -> st.SearchStrategy[Message]:
    return st.one_of(
        [st.builds(kind, **fields, xid=xids) for kind, fields in ROW_AND_SCHEMA.items()]
    )


control_messages = st.one_of([st.builds(kind, **fields) for kind, fields in CONTROL.items()])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Decoder, Message]:
    """A decoder in a state in which the message can come."""
    parallel = draw(st.booleans())
    decoder = Decoder(4, parallel_streaming=parallel)
    if draw(st.booleans()):
        decoder.decode(encode_message(StreamStart(1, True)))
    xids = u32 if decoder.in_stream else st.none()
    aborts = LONG_ABORT if parallel else SHORT_ABORT
    return decoder, draw(data_messages(xids) | control_messages | aborts)


@given(cases())
def test_decode_of_encode_is_the_identity(case: tuple[Decoder, Message]) -> None:
    decoder, message = case

    assert decoder.decode(encode_message(message)) == message


@given(cases())
def test_every_proper_prefix_is_refused_and_changes_nothing(case: tuple[Decoder, Message]) -> None:
    decoder, message = case
    data, before = encode_message(message), decoder.in_stream

    for size in range(len(data)):
        with pytest.raises(ProtocolError) as caught:
            decoder.decode(data[:size])
        assert (caught.value.tag, decoder.in_stream) == (data[: min(size, 1)], before)
        assert 0 <= caught.value.offset <= size


@given(cases(), st.binary(min_size=1, max_size=9))
def test_every_appended_byte_is_refused(case: tuple[Decoder, Message], more: bytes) -> None:
    decoder, message = case
    before = decoder.in_stream

    with pytest.raises(ProtocolError):
        decoder.decode(encode_message(message) + more)

    assert decoder.in_stream == before


@given(st.integers(1, 4), st.booleans(), st.binary(max_size=60))
def test_noise_is_decoded_to_what_encodes_to_it_or_refused(
    version: int, in_stream: bool, noise: bytes
) -> None:
    decoder = Decoder(version)
    if in_stream and version > 1:
        decoder.decode(encode_message(StreamStart(1, True)))

    try:
        message = decoder.decode(noise)
    except ProtocolError:
        return

    # "pg_catalog" in full is the one text that PostgreSQL never sends and that reads the same.
    if getattr(message, "namespace", "") != "pg_catalog":
        assert encode_message(message) == noise


@given(
    st.sampled_from(b"BCORYIUDTMSEcAbPKrp"),
    st.binary(max_size=60),
    st.integers(1, 4),
)
def test_noise_behind_a_known_tag_raises_nothing_else(tag: int, noise: bytes, version: int) -> None:
    try:
        Decoder(version).decode(bytes([tag]) + noise)
    except ProtocolError as error:
        assert error.tag == bytes([tag])


@given(cases(), st.data())
def test_one_changed_byte_raises_nothing_else(
    case: tuple[Decoder, Message], data: st.DataObject
) -> None:
    decoder, message = case
    changed = bytearray(encode_message(message))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))

    with suppress(ProtocolError):
        decoder.decode(bytes(changed))


@given(data_messages(st.none()), st.binary(min_size=24, max_size=24))
def test_message_in_a_frame_decodes_as_alone(message: Message, header: bytes) -> None:
    frame = b"w" + header + encode_message(message)

    assert decode_message(frame, 25, streamed=False) == message


@given(tuples, st.binary(max_size=40), st.binary(max_size=9))
def test_tuple_is_split_wherever_it_lies(columns: Any, before: bytes, after: bytes) -> None:
    data = encode_tuple(columns)

    split, end = split_tuple(before + data + after, len(before))

    assert (tuple(split), end) == (columns, len(before) + len(data))
    assert [type(value) for value in split] == [type(value) for value in columns]


@given(st.binary(max_size=60), st.integers(0, 70))
def test_splitting_noise_raises_nothing_else(noise: bytes, position: int) -> None:
    try:
        _, end = split_tuple(noise, position)
    except ProtocolError:
        return

    assert position + 2 <= end <= len(noise)


@given(st.binary(max_size=20) | st.binary(min_size=17, max_size=17).map(lambda b: b"k" + b))
def test_keepalive_noise_raises_nothing_else(noise: bytes) -> None:
    with suppress(ProtocolError):
        decode_keepalive(noise)
