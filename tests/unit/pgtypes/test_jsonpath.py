"""Paths: how they are read, what is refused; the expected values are those of a server."""

from __future__ import annotations

import pytest

from gateway.pgtypes import jsonpath_exec
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import print_jsonb, read_jsonb
from gateway.pgtypes.jsonpath import read_jsonpath

TRACK = (
    b'{"track": {"segments": [{"location": [47.763, 13.4034], "start time": "2018-10-14 10:05:14",'
    b' "HR": 73}, {"location": [47.706, 13.2635], "start time": "2018-10-14 10:39:21",'
    b' "HR": 135}]}}'
)


def found(path: str, document: bytes = TRACK, *, silent: bool = False) -> str:
    read = read_jsonpath(path.encode())
    assert not read.unsupported
    return print_jsonb(jsonpath_exec.find(read_jsonb(document), read, None, silent))


@pytest.mark.parametrize(
    ("path", "items"),
    [
        # manual, "The SQL/JSON Path Language", as the server prints the paths
        ('$."track"."segments"[*]."location"', "[[47.763, 13.4034], [47.706, 13.2635]]"),
        ('$."track"."segments"[0]."location"', "[[47.763, 13.4034]]"),
        ('$."track"."segments".size()', "[2]"),
        ('$."track"."segments"[*]."HR"?(@ > 130)', "[135]"),
        ('$."track"."segments"[*]?(@."HR" > 130)."start time"', '["2018-10-14 10:39:21"]'),
        (
            '$."track"."segments"[*]?(@."location"[1] < 13.4)."HR"?(@ > 130)',
            "[135]",
        ),
        ('$."track"?(exists (@."segments"[*]?(@."HR" > 130)))."segments".size()', "[2]"),
        ('($."track"."segments"[*]."HR" > 130)', "[true]"),
        ('strict $.**."HR"', "[73, 135]"),
        ('$.**."HR"', "[73, 135, 73, 135]"),
        ('$."track"."segments"[last]."HR"', "[135]"),
        ('($."track"."segments"[0]."HR" + 3)', "[76]"),
    ],
)
def test_paths_of_the_manual(path: str, items: str) -> None:
    assert found(path) == items


def test_strict_mode_raises_where_lax_mode_finds_nothing() -> None:
    assert found('$."a"."b"') == "[]"
    with pytest.raises(EvaluationError, match='JSON object does not contain key "a"'):
        found('strict $."a"."b"')
    assert found('strict $."a"."b"', silent=True) == "[]"


def test_zero_has_no_sign() -> None:
    assert found("(-0.5).ceiling()") == "[0]"
    assert found('($."a" * -1)', b'{"a": 0}') == "[0]"
    assert found("-0") == "[0]"


def test_long_numbers_are_not_rounded() -> None:
    digits = "1234567890" * 5
    assert found(f"-{digits}") == f"[-{digits}]"
    assert found('-$."a"'.join("()"), f'{{"a": {digits}}}'.encode()) == f"[-{digits}]"
    assert found('$."a".abs()', f'{{"a": -{digits}}}'.encode()) == f"[{digits}]"


@pytest.mark.parametrize(
    "path",
    [
        '(1 + -$."a".abs())',  # also printed of 1 + (-$.a).abs()
        '$?(@."a" + @."b" > 1)',  # also printed of ((@.a + @).b > 1)
        '(1 + $."a" * $."b")',
        '$[$."a" + $."b"]',
        "-1.abs()",
        '(1 + --$."a")',
    ],
)
def test_what_is_printed_without_needed_brackets_is_refused(path: str) -> None:
    assert "brackets" in read_jsonpath(path.encode()).unsupported


@pytest.mark.parametrize(
    "path",
    [
        '($."a" + $."b")',
        '$?(@."a" * 2 > 1)',
        '(1 + $."a".abs())',
        '(1 + ($."a" * $."b"))',
        '($."a" * $."b").abs()',
        "(-1).abs()",
        "(-$)",
    ],
)
def test_what_is_clear_is_supported(path: str) -> None:
    assert not read_jsonpath(path.encode()).unsupported


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("$.datetime()", ".datetime()"),
        ("$.keyvalue()", "id"),
        ('$.keyvalue()."id"', "id"),
        ("$.timestamp_tz()", ".timestamp_tz()"),
        ('($ like_regex "\\\\w")', "collation"),
        ("(" * 100 + "$" + ")" * 100, "nested too deeply"),
        ("$.", "not in a form"),
        ("", "not in a form"),
        ("$ $", "not in a form"),
        ("exists ($ > 1)", "not in a form"),
        ('$."a', "not in a form"),
        ("$\x00", "not in a form"),
    ],
)
def test_the_reason_is_said(path: str, reason: str) -> None:
    assert reason in read_jsonpath(path.encode()).unsupported


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('" 1.50 "', "[1.5]"),
        ('"0x1F"', "[31]"),
        ('"0x1p-2"', "[0.25]"),
        ('"-.5"', "[-0.5]"),
        ('"0e9"', "[0]"),
        ('"1_0"', "[]"),
        ('"1e400"', "[]"),
        ('"1e-400"', "[]"),
        ('"inf"', "[]"),
        ('"NaN"', "[]"),
        ('""', "[]"),
        ("1.500", "[1.500]"),
    ],
)
def test_double_reads_numbers_as_strtod_does(text: str, items: str) -> None:
    assert found("$.double()", text.encode(), silent=True) == items
