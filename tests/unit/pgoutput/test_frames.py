import pytest

from gateway.errors import ProtocolError
from gateway.lsn import Lsn
from gateway.pgoutput.frames import (
    Keepalive,
    decode_keepalive,
    wal_start,
)

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
