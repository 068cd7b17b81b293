"""Functions on text and bytea; the values come from the manual and from PostgreSQL 18."""

from __future__ import annotations

import pytest

from gateway.pgtypes import bytea, strings_codes, strings_parts
from gateway.pgtypes.errors import EvaluationError


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (strings_parts.length("aéz".encode()), 3),
        (strings_parts.substring(b"Thomas", 2, 3), b"hom"),
        (strings_parts.substring(b"alphabet", -1, 4), b"al"),
        (strings_parts.substring("日本語".encode(), 2), "本語".encode()),
        (strings_parts.left(b"abcde", 2), b"ab"),
        (strings_parts.left(b"abcde", -2), b"abc"),
        (strings_parts.right(b"abcde", 2), b"de"),
        (strings_parts.right(b"abcde", -2), b"cde"),
        (strings_parts.right(b"abcde", 9), b"abcde"),
        (strings_parts.overlay(b"Txxxxas", b"hom", 2, 4), b"Thomas"),
        (strings_parts.overlay(b"abcdef", b"x", 3, -2), b"abxabcdef"),
        (strings_parts.position(b"Thomas", b"om"), 3),
        (strings_parts.position(b"Thomas", b""), 1),
        (strings_parts.trim_both(b"yxTomxx", b"xyz"), b"Tom"),
        (strings_parts.trim_left(b"zzzytest", b"xyz"), b"test"),
        (strings_parts.trim_right(b"testxxzx", b"xyz"), b"test"),
        (strings_parts.pad_left(b"hi", 5, b"xy"), b"xyxhi"),
        (strings_parts.pad_right(b"hi", 5, b"xy"), b"hixyx"),
        (strings_parts.pad_left(b"hello", 2), b"he"),
        (strings_parts.pad_left(b"hi", 5, b""), b"hi"),
        (strings_parts.repeat(b"Pg", 4), b"PgPgPgPg"),
        (strings_parts.repeat(b"Pg", -4), b""),
        (strings_parts.replace(b"abcdefabcdef", b"cd", b"XX"), b"abXXefabXXef"),
        (strings_parts.translate(b"12345", b"143", b"ax"), b"a2x5"),
        (strings_parts.reverse("aé".encode()), "éa".encode()),
        (strings_parts.split_part(b"abc~@~def~@~ghi", b"~@~", 2), b"def"),
        (strings_parts.split_part(b"abc,def,ghi,jkl", b",", -2), b"ghi"),
        (strings_codes.code_point("é".encode()), 233),
        (strings_codes.character(65), b"A"),
        (strings_codes.initial_capitals(b"hi THOMAS o'neil"), b"Hi Thomas O'Neil"),
        (strings_codes.quote_literal(b"O'Reilly\\"), b"E'O''Reilly\\\\'"),
        (strings_codes.quote_nullable(None), b"NULL"),
        (strings_codes.to_name("é".encode() * 40), "é".encode() * 31),
        (strings_codes.unistr(b"d\\0061t\\+000061"), b"data"),
        (strings_codes.unistr(b"\\d83d\\de00"), "😀".encode()),
        (bytea.encode(b"123\x00\x01", b"base64"), b"MTIzAAE="),
        (bytea.encode(b"\x00" * 57, b"base64"), b"A" * 76 + b"\n"),
        (bytea.encode(b"123\x00\\\xff", b"Escape"), b"123\\000\\\\\\377"),
        (bytea.decode(b"MTIz AAE=\n", b"base64"), b"123\x00\x01"),
        (bytea.decode(b"QQ==QUJD", b"base64"), b"AA"),
        (bytea.get_byte(b"\x124Vx\x90", 4), 144),
        (bytea.set_byte(b"\x124Vx\x90", 4, 64), b"\x124Vx@"),
        (bytea.get_bit(b"\x124Vx\x90", 30), 1),
        (bytea.set_bit(b"\x124Vx\x90", 30, 0), b"\x124V8\x90"),
        (bytea.bit_count(b"\x124Vx\x90"), 15),
        (bytea.crc32(b"abc"), 891568578),
        (bytea.crc32c(b"abc"), 910901175),
        (bytea.md5(b"abc"), b"900150983cd24fb0d6963f7d28e17f72"),
        (bytea.like(b"\xff\x00", b"__"), True),
        (bytea.to_integer(b"\x80\x00", size=2, name="smallint"), -32768),
        (bytea.to_integer(b"\x80", size=2, name="smallint"), 128),
        (bytea.from_integer(1234, size=4), b"\x00\x00\x04\xd2"),
    ],
)
def test_functions_return_what_the_server_returns(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (strings_parts.substring, (b"a", 1, -1), "negative substring length not allowed"),
        (strings_parts.overlay, (b"a", b"b", 0), "negative substring length not allowed"),
        (strings_parts.overlay, (b"a", b"b", 2, 2**31 - 1), "integer out of range"),
        (strings_parts.pad_left, (b"a", 2**31 - 1), "requested length too large"),
        (strings_parts.repeat, (b"a", 2**31 - 1), "requested length too large"),
        (strings_parts.split_part, (b"a", b",", 0), "field position must not be zero"),
        (strings_codes.character, (0,), "null character not permitted"),
        (strings_codes.character, (-1,), "character number must be positive"),
        (strings_codes.unistr, (b"\\de00",), "invalid Unicode surrogate pair"),
        (strings_codes.unistr, (b"\\xyz",), "invalid Unicode escape"),
        (bytea.encode, (b"", b"base65"), "unrecognized encoding"),
        (bytea.decode, (b"0", b"hex"), "invalid hexadecimal data: odd number of digits"),
        (bytea.decode, (b"g0", b"hex"), "invalid hexadecimal digit"),
        (bytea.decode, (b"Q", b"base64"), "invalid base64 end sequence"),
        (bytea.decode, (b"\\400", b"escape"), "invalid input syntax for type bytea"),
        (bytea.get_byte, (b"a", 1), "index out of valid range"),
        (bytea.set_bit, (b"a", 1, 2), "new bit must be 0 or 1"),
    ],
)
def test_functions_fail_as_the_server_does_without_the_value(
    function: object, arguments: tuple[object, ...], message: str
) -> None:
    assert callable(function)
    with pytest.raises(EvaluationError) as caught:
        function(*arguments)

    assert caught.value.message == message
