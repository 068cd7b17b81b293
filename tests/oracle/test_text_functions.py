"""Functions on text and bytea over products of awkward arguments: the server says what is right.

Each function is asked once, for all its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from types import MappingProxyType
from typing import Final

import psycopg
import pytest

from gateway.pgtypes.arrays import Array, parse_array
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.strings import parse_bytea
from gateway.pgtypes.strings_codes import character
from gateway.rowfilter.builtins.text import operations
from gateway.rowfilter.operators import OPERATIONS
from tests.oracle.attempts import Attempt, Failure, attempts, outcome
from tests.oracle.majors import MAJORS
from tests.servers import Database

pytestmark = pytest.mark.postgres

_MOST: Final = 3000
"""Rows for one function; more are drawn from at random."""

TEXTS: Final = ("", "a", "abc", "Hello World", "  two  words ", "é", "aéz", "日本語", "ÀB",
                "a,b,,c", ",", "aaa", "abab", "x\ty\n", "ß1st 2ND o'neil", "\\", "a\\b'c", "😀a😀",
                "xyxTomxx", "a.b", " ", "ab" * 40)  # fmt: skip
PARTS: Final = ("", "a", "ab", ",", "é", "xy", " ", "本", "😀", "\\", "aa", "bé")
COUNTS: Final = ("0", "1", "2", "3", "-1", "-2", "5", "100", "-100", "2147483647", "-2147483648")
FEW: Final = ("0", "1", "2", "-1", "7", "40")
BYTES: Final = ("\\x", "\\x00", "\\x61", "\\x616263", "\\xff00ff", "\\x5c27", "\\xdeadbeef01",
                "\\x6162616261", "\\x2020612020", "\\x" + "4f" * 57, "\\x" + "80" * 58)  # fmt: skip
BYTE_PARTS: Final = ("\\x", "\\x00", "\\x61", "\\x6162", "\\xff", "\\x20")
BPCHARS: Final = ("", " ", "a", "a  ", " a ", "é  ", "abc")
NAMES: Final = ("", "a", "é" * 40, "x" * 70, "x" * 62 + "é", "日" * 22, "a b ")
INTEGERS: Final = ("0", "1", "97", "255", "233", "26085", "128512", "-1", "1114111", "1114112",
                   "55296", "57343", "2147483647")  # fmt: skip
ESCAPED: Final = ("", "abc", "\\", "\\\\", "\\101", "\\x41", "\\377\\000", "\\400", "a\\", "é\\134",
                  "\\1", "\\18a")  # fmt: skip
HEX: Final = ("", "00", "0", "fF", "f f", " ff 00\n", "0x", "g0", "é", "1\t2")
BASE64: Final = ("", "QQ==", "QUI=", "QUJD", "QUJDRA==", "QQ", "Q", "Q===", "=", "QQ=Q", "QQ==QUJD",
                 "Q Q\n=\t=", "QUI=QUJD", "Q_==", "é", "QQ==Q", "QUJD====")  # fmt: skip
UNISTR: Final = ("", "abc", "\\0041", "\\+01F600", "\\u00e9", "\\U0001F600", "\\\\", "\\d83d\\de00",
                 "\\d83d", "\\de00", "\\d83dx", "\\d83d\\\\", "\\d83d\\0041", "\\00", "\\", "\\u12",
                 "\\+110000", "\\U00110000", "\\0000", "é\\00E9", "\\xyz", "\\d83d\\d83d",
                 "\\ud83d\\+00de00", "\\U8000000A", "\\dc00\\d800")  # fmt: skip
PATTERNS: Final = ("", "%", "a%", "_", "__", "%b_", "\\%", "a\\", "%\\", "é%", "A_C%")


def pool(kind: str) -> Sequence[str | None]:
    """The texts from which arguments of a kind are taken."""
    return _POOLS[kind][1]


_POOLS: Final[Mapping[str, tuple[str, Sequence[str | None]]]] = MappingProxyType(
    {
        "text": ("text", TEXTS),
        "part": ("text", PARTS),
        "null_part": ("text", (None, *PARTS)),
        "count": ("integer", COUNTS),
        "few": ("integer", FEW),
        "long": ("bigint", COUNTS),
        "bytea": ("bytea", BYTES),
        "bytes": ("bytea", BYTE_PARTS),
        "bpchar": ("bpchar", BPCHARS),
        "char5": ("char(5)", BPCHARS),
        "varchar": ("varchar", TEXTS),
        "name": ("name", NAMES),
        "long_text": ("text", NAMES),
        "integer": ("integer", INTEGERS),
        "escaped": ("text", ESCAPED),
        "hex": ("text", HEX),
        "base64": ("text", BASE64),
        "unistr": ("text", UNISTR),
        "pattern": ("text", PATTERNS),
        "mark": ("text", ("", "\\", "#", "é", "##")),
        "format": ("text", ("hex", "HEX", "base64", "Escape", "base65", "")),
        "char": ('"char"', ("", "a", "B", "~")),
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """A function by its key, how SQL calls it, and what its arguments are made of."""

    key: str
    expression: str
    kinds: tuple[str, ...]
    since: int = 14


def case(key: str, expression: str, kinds: str, since: int = 14) -> Case:
    """`kinds` is separated by blanks; ``{}`` in `expression` stands for all arguments."""
    names = tuple(kinds.split())
    numbered = ", ".join(f"a{number + 1}" for number in range(len(names)))
    return Case(key, expression.replace("{}", numbered), names, since)


CASES: Final = (
    case("textlen", "length({})", "text"),
    case("bpcharlen", "length({})", "bpchar"),
    case("bpcharlen", "length({})", "char5"),
    case("textoctetlen", "octet_length({})", "text"),
    case("bpcharoctetlen", "octet_length({})", "char5"),
    case("byteaoctetlen", "octet_length({})", "bytea"),
    case("bit_length(text)", "bit_length({})", "text"),
    case("bit_length(bytea)", "bit_length({})", "bytea"),
    case("lower", 'lower(a1 COLLATE "C")', "text"),
    case("upper", 'upper(a1 COLLATE "C")', "text"),
    case("initcap", 'initcap(a1 COLLATE "C")', "text"),
    case("casefold", 'casefold(a1 COLLATE "C")', "text", since=18),
    case("text_substr_no_len", "substr({})", "text count"),
    case("text_substr", "substr({})", "text count count"),
    case("text_left", '"left"({})', "text count"),
    case("text_right", '"right"({})', "text count"),
    case("textoverlay_no_len", "overlay({})", "text part count"),
    case("textoverlay", "overlay({})", "text part count count"),
    case("textpos", "strpos({})", "text part"),
    case("text_starts_with", "starts_with({})", "text part"),
    case("btrim", "btrim({})", "text part"),
    case("ltrim", "ltrim({})", "text part"),
    case("rtrim", "rtrim({})", "text part"),
    case("btrim1", "btrim({})", "text"),
    case("ltrim1", "ltrim({})", "text"),
    case("rtrim1", "rtrim({})", "text"),
    case("lpad", "lpad({})", "text few part"),
    case("rpad", "rpad({})", "text few part"),
    case("lpad(text,int4)", "lpad({})", "text few"),
    case("rpad(text,int4)", "rpad({})", "text few"),
    case("repeat", "repeat({})", "text few"),
    case("replace_text", "replace({})", "text part part"),
    case("translate", "translate({})", "text part part"),
    case("text_reverse", "reverse({})", "text"),
    case("split_part", "split_part({})", "text part count"),
    case("text_to_array", "string_to_array({})", "text null_part"),
    case("text_to_array_null", "string_to_array({})", "text null_part null_part"),
    case("ascii", "ascii({})", "text"),
    case("chr", "chr({})", "integer"),
    case("to_hex32", "to_hex({})", "count"),
    case("to_hex64", "to_hex({})", "long"),
    case("to_bin32", "to_bin({})", "count", since=17),
    case("to_bin64", "to_bin({})", "long", since=17),
    case("to_oct32", "to_oct({})", "count", since=17),
    case("to_oct64", "to_oct({})", "long", since=17),
    case("md5_text", "md5({})", "text"),
    case("md5_bytea", "md5({})", "bytea"),
    case("sha224_bytea", "sha224({})", "bytea"),
    case("sha256_bytea", "sha256({})", "bytea"),
    case("sha384_bytea", "sha384({})", "bytea"),
    case("sha512_bytea", "sha512({})", "bytea"),
    case("crc32_bytea", "crc32({})", "bytea", since=18),
    case("crc32c_bytea", "crc32c({})", "bytea", since=18),
    case("quote_literal", "quote_literal({})", "text"),
    case("quote_nullable", "quote_nullable({})", "text"),
    case("unistr", "unistr({})", "unistr"),
    case("text_name", "a1::name", "long_text"),
    case("bpchar_name", "a1::name", "bpchar"),
    case("name_text", "a1::text", "name"),
    case("binary_encode", "encode({})", "bytea format"),
    case("binary_decode", "decode({})", "hex format"),
    case("binary_decode", "decode({})", "base64 format"),
    case("binary_decode", "decode({})", "escaped format"),
    case("bytea_substr", "substr({})", "bytea count count"),
    case("bytea_substr_no_len", "substr({})", "bytea count"),
    case("byteaoverlay", "overlay({})", "bytea bytes count count"),
    case("byteaoverlay_no_len", "overlay({})", "bytea bytes count"),
    case("byteapos", "position(a2 IN a1)", "bytea bytes"),
    case("byteatrim", "btrim({})", "bytea bytes"),
    case("bytealtrim", "ltrim({})", "bytea bytes"),
    case("byteartrim", "rtrim({})", "bytea bytes"),
    case("bytea_reverse", "reverse({})", "bytea", since=18),
    case("byteaGetByte", "get_byte({})", "bytea count"),
    case("byteaSetByte", "set_byte({})", "bytea few count"),
    case("byteaGetBit", "get_bit({})", "bytea long"),
    case("byteaSetBit", "set_bit({})", "bytea long few"),
    case("bytea_bit_count", "bit_count({})", "bytea"),
    case("bytea_int2", "a1::int2", "bytea", since=18),
    case("bytea_int4", "a1::int4", "bytea", since=18),
    case("bytea_int8", "a1::int8", "bytea", since=18),
    case("int4_bytea", "a1::bytea", "integer", since=18),
    case("bytealike", "a1 LIKE a2", "bytea bytes"),
    case("byteanlike", "a1 NOT LIKE a2", "bytea bytes"),
    case("like_escape_bytea", "like_escape({})", "bytea bytes"),
    case("textlike", "a1 LIKE a2", "text pattern"),
    case("texticlike", 'a1 COLLATE "C" ILIKE a2', "text pattern"),
    case("like_escape", "like_escape({})", "pattern mark"),
    case("text_pattern_lt", "a1 ~<~ a2", "text text"),
    case("text_pattern_le", "a1 ~<=~ a2", "text text"),
    case("text_pattern_gt", "a1 ~>~ a2", "text text"),
    case("text_pattern_ge", "a1 ~>=~ a2", "text text"),
    case("text_larger", 'text_larger(a1 COLLATE "C", a2)', "text text"),
    case("text_smaller", 'text_smaller(a1 COLLATE "C", a2)', "text text"),
    case("bytea_larger", "bytea_larger({})", "bytea bytea", since=18),
    case("bytea_smaller", "bytea_smaller({})", "bytea bytea", since=18),
    case("chartoi4", "a1::integer", "char"),
    case("chareq", "a1 = a2", "char char"),
    case("charlt", "a1 < a2", "char char"),
)  # fmt: skip


def _read(kind: str, text: bytes | None) -> object:
    if text is None:
        return None
    sql = _POOLS[kind][0]
    if sql in ("integer", "bigint"):
        return int(text)
    if sql == "bytea":
        return parse_bytea(text)
    if sql == "char(5)":  # its cast to text, which shows the arguments, has dropped the blanks
        return text.decode().ljust(5).encode()
    return (text or b"\x00") if sql == '"char"' else text


def _shown(value: object, like: bytes | None) -> object:
    """A result of ours as the server prints it."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, bytes) and like is not None and like[:2] == b"\\x" != value[:2]:
        return b"\\x" + value.hex().encode()
    return value


def _same_error(server: str, ours: str) -> bool:
    """The same message; ours leaves out values, and a quoted one with its quotes."""
    pattern = ".*".join(re.escape(word) for word in ours.split())
    return re.fullmatch(pattern + ".*", server) is not None


def _differences(case: Case, found: Sequence[Attempt]) -> list[str]:
    function = OPERATIONS[case.key].function
    lines = []
    for attempt in found:
        arguments = [_read(kind, a) for kind, a in zip(case.kinds, attempt.arguments, strict=True)]
        ours = outcome(function, arguments)
        if isinstance(ours, Failure):
            agree = attempt.error is not None and _same_error(attempt.error, ours.message)
        elif isinstance(ours, Array) and attempt.result is not None:
            agree = ours == parse_array(attempt.result, bytes)
        else:
            agree = attempt.error is None and _shown(ours, attempt.result) == attempt.result
        if not agree:
            lines.append(f"{case.expression} of {arguments}: {ours!r}, the server {attempt}")
    return lines


def _rows(case: Case) -> list[tuple[str | None, ...]]:
    rows = list(product(*map(pool, case.kinds)))
    return rows if len(rows) <= _MOST else Random(case.key).sample(rows, _MOST)


@pytest.mark.parametrize("postgres_major", MAJORS, indirect=True)
def test_functions_on_text_and_bytea_agree_with_the_server(
    database: Database, postgres_major: int
) -> None:
    found: list[str] = []
    with database.connect() as connection:
        for case in CASES:
            if postgres_major >= case.since:
                types = [_POOLS[kind][0] for kind in case.kinds]
                differences = _differences(
                    case, attempts(connection, case.expression, types, _rows(case))
                )
                found += differences[:3]

    assert not found, "\n".join(found)


def _ours(key: str, *arguments: object) -> object:
    return OPERATIONS[key].function(*arguments)


def test_right_of_the_least_integer_is_the_whole_text(database: Database) -> None:
    with database.connect() as connection:
        row = connection.execute("SELECT \"right\"('abc', '-2147483648')").fetchone()

    assert row == ("abc",)
    assert _ours("text_right", b"abc", -(2**31)) == b"abc"


def test_a_name_keeps_its_blanks_when_it_becomes_bpchar(database: Database) -> None:
    with database.connect() as connection:
        row = connection.execute("SELECT octet_length('a b '::name::bpchar)").fetchone()

    assert row == (_ours("bpcharoctetlen", _ours("name_bpchar", b"a b ")),)


@pytest.mark.parametrize("number", [0, 65, 127, -1, -128])
def test_an_integer_becomes_a_char_and_back(database: Database, number: int) -> None:
    with database.connect() as connection:
        row = connection.execute('SELECT %s::integer::"char"::integer', [number]).fetchone()

    assert row == (_ours("chartoi4", _ours("i4tochar", number)),)


@pytest.mark.parametrize("number", [128, -129])
def test_an_integer_that_is_no_char_is_refused(database: Database, number: int) -> None:
    with database.connect() as connection, pytest.raises(psycopg.Error) as server:
        connection.execute('SELECT %s::integer::"char"', [number])
    with pytest.raises(EvaluationError) as ours:
        _ours("i4tochar", number)

    assert server.value.diag.message_primary == ours.value.message


@pytest.mark.parametrize("postgres_major", MAJORS, indirect=True)
@pytest.mark.parametrize("text", ["", "a", "abc", "é", "\\351", "\\000", "\\8", "\\400", "\\3511"])
def test_text_becomes_a_char_and_back(database: Database, postgres_major: int, text: str) -> None:
    with database.connect() as connection:
        row = connection.execute('SELECT %s::text::"char"::text', [text]).fetchone()

    ours = {operation.name: operation.function for operation in operations(postgres_major)}
    assert row == (ours["char_text"](ours["text_char"](text.encode())).decode(),)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("postgres_major", "message"),
    [(14, "requested character too large for encoding"), (18, "character number must be positive")],
    indirect=["postgres_major"],
)
def test_a_negative_character_number_fails_in_the_words_of_the_version(
    database: Database, postgres_major: int, message: str
) -> None:
    with database.connect() as connection, pytest.raises(psycopg.Error) as server:
        connection.execute("SELECT chr(-1)")
    with pytest.raises(EvaluationError) as ours:
        character(-1, major=postgres_major)

    assert ours.value.message == message
    assert (server.value.diag.message_primary or "").startswith(message)
