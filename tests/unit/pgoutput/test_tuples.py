import pytest

from gateway.core.errors import ProtocolError
from gateway.pgoutput.messages import UNCHANGED, BinaryValue
from gateway.pgoutput.tuples import split_tuple


@pytest.mark.parametrize("before", [0, 1, 31], ids=["alone", "behind a byte", "in a frame"])
@pytest.mark.parametrize("after", [0, 5], ids=["at the end", "before more"])
def test_tuple_is_split_at_any_position(before: int, after: int) -> None:
    tuple_data = bytes.fromhex("0005 74 00000002 3432 6E 75 62 00000001 FF 74 00000000")
    data = b"I" * before + tuple_data + b"N" * after

    values, end = split_tuple(data, before)

    assert values == [b"42", None, UNCHANGED, BinaryValue(b"\xff"), b""]
    assert [type(value) for value in values[3:]] == [BinaryValue, bytes]
    assert end == before + len(tuple_data)


def test_long_value_and_many_columns_are_taken_whole() -> None:
    long = b"x" * 0x012345
    data = bytes.fromhex("0641") + b"n" * 1600 + b"t\x00\x01\x23\x45" + long

    values, end = split_tuple(data, 0)

    assert values == [None] * 1600 + [long]
    assert end == len(data)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("00", 1),
        ("0001", 2),
        ("0001 74", 3),
        ("0001 74 000000", 6),
        ("0001 74 00000002 61", 8),
        ("0002 74 00000009 61 6E", 9),
        ("0001 62 80000000 61", 8),
        ("0002 6E", 3),
    ],
)
def test_cut_tuple_is_refused_at_its_end(text: str, offset: int) -> None:
    with pytest.raises(ProtocolError, match="cut") as caught:
        split_tuple(bytes.fromhex(text), 0)

    assert caught.value.offset == offset


@pytest.mark.parametrize("kind", ["00", "4E", "78", "FF"])
def test_unknown_kind_is_refused_where_it_stands(kind: str) -> None:
    frame = b"w" + bytes(24) + b"I" + bytes.fromhex(f"00000001 4E 0002 6E {kind}")

    with pytest.raises(ProtocolError, match="column 2 of 2") as caught:
        split_tuple(frame, 31)

    assert (caught.value.tag, caught.value.offset) == (b"I", 9)
