import pytest

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput.decoder import Decoder
from gateway.pgoutput.frames import (
    XLOGDATA_HEADER,
    Keepalive,
    decode_keepalive,
    read_begin,
    read_commit,
    wal_start,
)
from gateway.pgoutput.messages import Begin, Commit

KEEPALIVE = "6B 00000001B374D848 FFFFFFFFFFFFFFFF"


@pytest.mark.parametrize(("reply", "requested"), [("00", False), ("01", True)])
def test_keepalive_is_read(reply: str, requested: bool) -> None:
    frame = bytes.fromhex(f"{KEEPALIVE} {reply}")

    assert decode_keepalive(frame) == Keepalive(Lsn(0x1B374D848), -1, requested)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("6B", 1),
        (KEEPALIVE, 17),
        (f"{KEEPALIVE} 00 00", 18),
        (f"{KEEPALIVE} 02", 17),
        (f"78{KEEPALIVE[2:]} 00", 0),
    ],
)
def test_anything_else_is_refused(text: str, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_keepalive(bytes.fromhex(text))

    assert caught.value.offset == offset


def test_wal_start_stands_behind_the_tag() -> None:
    assert wal_start(b"w" + bytes.fromhex("00000001B374D848") + bytes(16)) == 0x1B374D848


def test_cut_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="header"):
        wal_start(b"w" + bytes(23))


HEADER = b"w" + bytes(24)
BEGIN = HEADER + bytes.fromhex("42 00000001B374D848 FFFFFFFFFFFFFFFE FFFFFFF0")
COMMIT = HEADER + bytes.fromhex("43 00 00000001B374D848 FFFFFFFFFFFFFFFF FFFFFFFFFFFFFFFE")


def test_begin_and_commit_are_read_as_the_decoder_reads_them() -> None:
    begin, commit = (Decoder().decode(frame, XLOGDATA_HEADER) for frame in (BEGIN, COMMIT))

    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert read_begin(BEGIN) == (begin.final_lsn, begin.commit_time, begin.xid)
    assert read_commit(COMMIT) == (commit.commit_lsn, commit.end_lsn, commit.commit_time)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(BEGIN[:-1], id="a cut Begin"),
        pytest.param(BEGIN + b"\0", id="a long Begin"),
        pytest.param(COMMIT[:-1], id="a cut Commit"),
        pytest.param(b"k" + BEGIN[1:], id="no XLogData, as long as Begin"),
        pytest.param(b"k" + COMMIT[1:], id="no XLogData, as long as Commit"),
        pytest.param(HEADER + b"I" + bytes(20), id="another message, as long as Begin"),
        pytest.param(HEADER + b"I" + bytes(25), id="another message, as long as Commit"),
        pytest.param(HEADER + b"C\1" + bytes(24), id="a Commit with flags"),
    ],
)
def test_what_is_neither_is_left_to_the_decoder(frame: bytes) -> None:
    assert read_begin(frame) is None
    assert read_commit(frame) is None
