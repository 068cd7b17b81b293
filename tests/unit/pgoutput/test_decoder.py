"""Every message against bytes laid out by hand from the manual's tables."""

import dataclasses
from typing import Any

import pytest

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput.decoder import Decoder, decode_message
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

LSN = "00000001 B374D848"
TIME = "0002B2C0 12345678"  # 0x2B2C012345678 µs
MINUS_ONE = "FFFFFFFF FFFFFFFF"
XID = "FFFFFFF0"
AT, MAX = Lsn(0x1B374D848), Lsn(2**64 - 1)
TIME_US = 0x2B2C012345678

DATA: list[tuple[str, str, Message]] = [
    (
        "relation",
        "52 | 00004001 70756200 743100 64 0002 01 6100 00000017 FFFFFFFF 00 6300 00000413 0000000E",
        Relation(
            0x4001,
            "pub",
            "t1",
            ReplicaIdentity.DEFAULT,
            (RelationColumn(True, "a", 23, -1), RelationColumn(False, "c", 1043, 14)),
        ),
    ),
    (
        "relation in pg_catalog",
        "52 | FFFFFFFF 00 743100 66 0000",
        Relation(0xFFFFFFFF, "pg_catalog", "t1", ReplicaIdentity.FULL, ()),
    ),
    (
        "relation without identity",
        "52 | 00000001 7300 C3A400 6E 0000",
        Relation(1, "s", "ä", ReplicaIdentity.NOTHING, ()),
    ),
    (
        "relation with index identity",
        "52 | 00000001 7300 7400 69 0000",
        Relation(1, "s", "t", ReplicaIdentity.INDEX, ()),
    ),
    ("type", "59 | 00004002 7075626C696300 6D6F6F6400", Type(0x4002, "public", "mood")),
    (
        "insert",
        "49 | 00004001 4E 0004 74 00000002 3432 6E 75 62 00000004 0000002A",
        Insert(0x4001, (b"42", None, UNCHANGED, BinaryValue(b"\0\0\0*"))),
    ),
    ("insert of an empty value", "49 | 00000001 4E 0001 74 00000000", Insert(1, (b"",))),
    ("insert without columns", "49 | 00000001 4E 0000", Insert(1, ())),
    ("update", "55 | 00000001 4E 0001 74 00000001 32", Update(1, None, (b"2",))),
    (
        "update with key",
        "55 | 00000001 4B 0002 74 00000001 31 6E 4E 0002 74 00000001 32 75",
        Update(1, OldTuple(OldTupleKind.KEY, (b"1", None)), (b"2", UNCHANGED)),
    ),
    (
        "update with old row",
        "55 | 00000001 4F 0001 74 00000001 31 4E 0001 74 00000001 32",
        Update(1, OldTuple(OldTupleKind.FULL, (b"1",)), (b"2",)),
    ),
    (
        "delete with key",
        "44 | 00000001 4B 0001 74 00000001 31",
        Delete(1, OldTuple(OldTupleKind.KEY, (b"1",))),
    ),
    (
        "delete with old row",
        "44 | 00000001 4F 0001 6E",
        Delete(1, OldTuple(OldTupleKind.FULL, (None,))),
    ),
    (
        "truncate",
        "54 | 00000002 00 00000001 FFFFFFFE",
        Truncate(cascade=False, restart_identity=False, relation_oids=(1, 0xFFFFFFFE)),
    ),
    (
        "truncate cascade",
        "54 | 00000001 01 00000001",
        Truncate(cascade=True, restart_identity=False, relation_oids=(1,)),
    ),
    (
        "truncate restart identity",
        "54 | 00000001 02 00000001",
        Truncate(cascade=False, restart_identity=True, relation_oids=(1,)),
    ),
    (
        "message",
        f"4D | 01 {LSN} 7000 00000003 00FF01",
        LogicalMessage(True, AT, "p", b"\x00\xff\x01"),
    ),
    (
        "non-transactional message",
        f"4D | 00 {LSN} 00 00000000",
        LogicalMessage(False, AT, "", b""),
    ),
]

CONTROL: list[tuple[str, int, str, Message]] = [
    ("begin", 1, f"42 {LSN} {TIME} {XID}", Begin(AT, TIME_US, 0xFFFFFFF0)),
    ("begin before 2000", 1, f"42 {MINUS_ONE} {MINUS_ONE} 00000001", Begin(MAX, -1, 1)),
    ("commit", 1, f"43 00 {LSN} {MINUS_ONE} {TIME}", Commit(0, AT, MAX, TIME_US)),
    ("origin", 1, f"4F {LSN} 6E6F6465E282AC00", Origin(AT, "node€")),
    ("stream start", 2, f"53 {XID} 01", StreamStart(0xFFFFFFF0, True)),
    ("later stream start", 2, f"53 {XID} 00", StreamStart(0xFFFFFFF0, False)),
    ("stream stop", 2, "45", StreamStop()),
    (
        "stream commit",
        2,
        f"63 {XID} 00 {LSN} {LSN} {TIME}",
        StreamCommit(0xFFFFFFF0, 0, AT, AT, TIME_US),
    ),
    ("stream abort", 2, f"41 {XID} 00000007", StreamAbort(0xFFFFFFF0, 7)),
    (
        "begin prepare",
        3,
        f"62 {LSN} {LSN} {TIME} {XID} 673100",
        BeginPrepare(AT, AT, TIME_US, 0xFFFFFFF0, "g1"),
    ),
    (
        "prepare",
        3,
        f"50 00 {LSN} {LSN} {TIME} {XID} 673100",
        Prepare(0, AT, AT, TIME_US, 0xFFFFFFF0, "g1"),
    ),
    (
        "commit prepared",
        3,
        f"4B 00 {LSN} {LSN} {TIME} {XID} 673100",
        CommitPrepared(0, AT, AT, TIME_US, 0xFFFFFFF0, "g1"),
    ),
    (
        "rollback prepared",
        3,
        f"72 00 {LSN} {MINUS_ONE} {TIME} {MINUS_ONE} {XID} 673100",
        RollbackPrepared(0, AT, MAX, TIME_US, -1, 0xFFFFFFF0, "g1"),
    ),
    (
        "stream prepare",
        3,
        f"70 00 {LSN} {LSN} {TIME} {XID} 673100",
        StreamPrepare(0, AT, AT, TIME_US, 0xFFFFFFF0, "g1"),
    ),
]


def unhex(text: str, xid: str = "") -> bytes:
    return bytes.fromhex(text.replace("|", xid))


def with_xid(message: Any, xid: int) -> Message:
    changed: Message = dataclasses.replace(message, xid=xid)
    return changed


@pytest.mark.parametrize(
    ("text", "message"), [row[1:] for row in DATA], ids=[row[0] for row in DATA]
)
class TestDataMessage:
    def test_decodes(self, text: str, message: Message) -> None:
        assert Decoder().decode(unhex(text)) == message

    def test_carries_an_xid_inside_a_stream_block(self, text: str, message: Message) -> None:
        decoder = Decoder(2)
        decoder.decode(unhex("53 00000001 01"))

        assert decoder.decode(unhex(text, XID)) == with_xid(message, 0xFFFFFFF0)

    def test_carries_none_behind_the_block(self, text: str, message: Message) -> None:
        decoder = Decoder(2)
        decoder.decode(unhex("53 00000001 01"))
        decoder.decode(unhex("45"))

        assert decoder.decode(unhex(text)) == message

    def test_decodes_where_it_lies_in_a_frame(self, text: str, message: Message) -> None:
        header = b"w" + bytes(24)

        assert decode_message(header + unhex(text), 25, streamed=False) == message
        assert decode_message(header + unhex(text, XID), 25, streamed=True) == with_xid(
            message, 0xFFFFFFF0
        )


@pytest.mark.parametrize(
    ("version", "text", "message"), [row[1:] for row in CONTROL], ids=[row[0] for row in CONTROL]
)
class TestControlMessage:
    def test_decodes_in_the_version_that_brought_it(
        self, version: int, text: str, message: Message
    ) -> None:
        assert Decoder(version).decode(unhex(text)) == message

    def test_decodes_in_version_4(self, version: int, text: str, message: Message) -> None:
        assert version <= 4
        assert Decoder(4).decode(unhex(text)) == message


@pytest.mark.parametrize(
    ("version", "text"),
    [row[1:3] for row in CONTROL if row[1] > 1],
    ids=[row[0] for row in CONTROL if row[1] > 1],
)
def test_message_of_a_later_version_is_refused(version: int, text: str) -> None:
    below = version - 1

    with pytest.raises(ProtocolError, match=f"not a message of protocol version {below}"):
        Decoder(below).decode(unhex(text))


@pytest.mark.parametrize("version", [0, 5])
def test_there_are_four_versions(version: int) -> None:
    with pytest.raises(ValueError, match="versions are 1 to 4"):
        Decoder(version)


def test_stream_abort_has_lsn_and_time_when_parallel() -> None:
    data = unhex(f"41 {XID} 00000007 {LSN} {TIME}")

    message = Decoder(4, parallel_streaming=True).decode(data)

    assert message == StreamAbort(0xFFFFFFF0, 7, AT, TIME_US)


@pytest.mark.parametrize("parallel", [False, True])
def test_the_other_form_of_stream_abort_is_refused(parallel: bool) -> None:
    data = unhex(f"41 {XID} 00000007" + ("" if parallel else f"{LSN} {TIME}"))

    with pytest.raises(ProtocolError):
        Decoder(4, parallel_streaming=parallel).decode(data)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_parallel_streaming_needs_version_4(version: int) -> None:
    with pytest.raises(ValueError, match="needs protocol version 4"):
        Decoder(version, parallel_streaming=True)


@pytest.mark.parametrize(
    ("text", "tag", "offset", "reason"),
    [
        pytest.param("", b"", 0, "empty message", id="empty"),
        pytest.param("58 00", b"X", 0, "not a message", id="unknown tag"),
        pytest.param("42 00", b"B", 1, "needs 20 more bytes, has 1", id="short begin"),
        pytest.param(f"43 01 {LSN} {LSN} {TIME}", b"C", 1, "unknown flags 0x01", id="commit flags"),
        pytest.param(f"4F {LSN} 6E", b"O", 9, "no terminating NUL", id="no NUL"),
        pytest.param(f"4F {LSN} FF00", b"O", 9, "not UTF-8", id="latin1 name"),
        pytest.param("52 00000001 7300 7400 78 0000", b"R", 9, "identity b'x'", id="identity"),
        pytest.param("52 00000001 7300 7400 64 0001 02 6100", b"R", 12, "flags", id="column flags"),
        pytest.param("52 00000001 7300 7400 64 0001", b"R", 12, "needs 1 more", id="no column"),
        pytest.param("49 00000001 4B 0000", b"I", 5, "expected a new tuple", id="insert with K"),
        pytest.param("55 00000001 58 0000", b"U", 5, "expected a new tuple", id="update with X"),
        pytest.param("55 00000001 4B 0000 4B 0000", b"U", 8, "found b'K'", id="update K K"),
        pytest.param("44 00000001 4E 0000", b"D", 5, "expected an old tuple", id="delete with N"),
        pytest.param("49 00000001 4E 0001 78", b"I", 8, "kind b'x'", id="column kind"),
        pytest.param("49 00000001 4E 00", b"I", 7, "column count is cut", id="cut count"),
        pytest.param("49 00000001 4E 0002 6E", b"I", 9, "after column 1 of 2", id="cut columns"),
        pytest.param("49 00000001 4E 0001 74 FFFFFFFF 61", b"I", 14, "is cut", id="negative size"),
        pytest.param("49 00000001 4E 0000 00", b"I", 8, "1 bytes left over", id="left over"),
        pytest.param("54 00000001 04 00000001", b"T", 5, "unknown flags 0x04", id="truncate flags"),
        pytest.param("54 FFFFFFFF 00 00000001", b"T", 6, "4294967295 relation OIDs", id="oids"),
        pytest.param(f"4D 02 {LSN} 00 00000000", b"M", 1, "unknown flags 0x02", id="message flags"),
        pytest.param(f"4D 01 {LSN} 00 00000002 00", b"M", 15, "needs 2 more", id="cut content"),
        pytest.param("53 00000001 02", b"S", 5, "unknown flags 0x02", id="first segment"),
    ],
)
def test_error_names_tag_and_offset(text: str, tag: bytes, offset: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        Decoder(4).decode(unhex(text))

    assert (caught.value.tag, caught.value.offset) == (tag, offset)


@pytest.mark.parametrize(
    "text",
    ["49 00000001 4E 0001 78", "49 00000001 4E 00", "49 00000001 58", "49 0000", "58", "44 0000"],
)
def test_offset_in_a_frame_is_the_message_s_own(text: str) -> None:
    header = b"w" + bytes(24)

    with pytest.raises(ProtocolError) as alone:
        Decoder().decode(unhex(text))
    with pytest.raises(ProtocolError) as framed:
        Decoder().decode(header + unhex(text), 25)

    assert str(framed.value) == str(alone.value)


@pytest.mark.parametrize("text", ["53 00000001", "53 00000001 01 00", "53 00000001 07"])
def test_failed_stream_start_opens_no_block(text: str) -> None:
    decoder = Decoder(2)

    with pytest.raises(ProtocolError):
        decoder.decode(unhex(text))

    assert not decoder.in_stream


@pytest.mark.parametrize("text", ["45 00", "49 0001", "58"])
def test_failed_message_leaves_the_block_open(text: str) -> None:
    decoder = Decoder(2)
    decoder.decode(unhex("53 00000001 01"))

    with pytest.raises(ProtocolError):
        decoder.decode(unhex(text))

    assert decoder.in_stream


def test_control_message_is_no_data_message() -> None:
    with pytest.raises(ProtocolError, match="not a data message"):
        decode_message(unhex("45"), streamed=False)
