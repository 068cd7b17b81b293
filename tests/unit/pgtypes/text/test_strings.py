from __future__ import annotations

import pytest

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.text.strings import (
    compile_like,
    match_like,
    parse_bytea,
    to_bpchar,
    to_varchar,
    trim_blanks,
)


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("abc", "abc", True),
        ("abc", "a%", True),
        ("abc", "_b_", True),
        ("abc", "c", False),
        ("abc", "%", True),
        ("", "%", True),
        ("", "", True),
        ("a", "", False),
        ("", "_", False),
        ("é", "_", True),
        ("é", "__", False),
        ("日本", "__", True),
        ("日本", "%本", True),
        ("a%b", "a\\%b", True),
        ("axb", "a\\%b", False),
        ("a\\b", "a\\\\b", True),
        ("abxb", "a%b", True),
        ("abab", "%ab", True),
        ("aXbXc", "a%X%c", True),
        ("aab", "%_b", True),
        ("b", "%_b", False),
        ("ab\n", "a_%", True),
        ("mississippi", "%iss%ip%", True),
        ("mississippi", "%iss%iss%iss%", False),
    ],
)
def test_like_matches_as_the_manual_says(text: str, pattern: str, matches: bool) -> None:
    assert match_like(text.encode(), pattern.encode()) is matches
    assert compile_like(pattern.encode())(text.encode()) is matches


@pytest.mark.parametrize(
    ("text", "pattern"), [("a", "\\"), ("ab", "a\\"), ("a", "%\\"), ("a", "%_\\"), ("ba", "b%\\")]
)
def test_a_pattern_may_not_end_with_an_escape_when_the_walk_gets_there(
    text: str, pattern: str
) -> None:
    with pytest.raises(EvaluationError, match="must not end with escape character"):
        compile_like(pattern.encode())(text.encode())


@pytest.mark.parametrize(("text", "pattern"), [("", "\\"), ("b", "a\\"), ("", "%\\"), ("a", "a\\")])
def test_an_escape_at_the_end_that_is_not_reached_only_fails_to_match(
    text: str, pattern: str
) -> None:
    assert compile_like(pattern.encode())(text.encode()) is False


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"\\x", b""),
        (b"\\xdeadBEEF", b"\xde\xad\xbe\xef"),
        (b"abc", b"abc"),
        (b"a\\\\b\\000\\377", b"a\\b\x00\xff"),
    ],
)
def test_bytea_reads_in_both_formats(text: bytes, value: bytes) -> None:
    assert parse_bytea(text) == value


@pytest.mark.parametrize("text", [b"\\xd", b"\\xzz", b"a\\", b"\\9", b"\\400"])
def test_what_is_no_bytea_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse_bytea(text)


def test_lengths_count_characters() -> None:
    assert to_varchar("éab".encode(), 4 + 2) == "éa".encode()
    assert to_varchar(b"ab", -1) == b"ab"
    assert to_bpchar("é".encode(), 4 + 3) == "é  ".encode()
    assert to_bpchar(b"abcd", 4 + 3) == b"abc"
    assert to_bpchar(b"ab ", -1) == b"ab "
    assert trim_blanks(b" a \t  ") == b" a \t"
