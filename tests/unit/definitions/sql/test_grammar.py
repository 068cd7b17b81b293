"""Texts that others have written are parsed only as deep as the parser's stack goes."""

from __future__ import annotations

import postgast
import pytest

from gateway.core.errors import DefinitionError, FilterError
from gateway.definitions.sql.expression import column_names, is_expression
from gateway.definitions.sql.foreign_code import first_reference, foreign_name
from gateway.definitions.sql.grammar import TooDeepError, column_words, parse
from gateway.definitions.sql.parser import parse_definitions
from gateway.rowfilter.permitted import functions_of

DEEP = {
    "brackets": ("(", "a", " || 'x'::text)"),
    "casts": ("", "a", "::int::text"),
    "NOT": ("NOT ", "a", ""),
    "CASE": ("CASE WHEN ", "a", " THEN b END"),
    "minus": ("- ", "a", ""),
    "operators": ("", "a", " || b"),
    "arrays": ("ARRAY[", "a", "]"),
    "calls": ("f(", "a", ", 1)"),
    "tests": ("", "a", " IS TRUE"),
    "unions": ("", "(SELECT 1", " UNION SELECT 1"),
    "exists": ("EXISTS (SELECT ", "1", ")"),
}
FLAT = {
    "IN": "a IN (" + ", ".join(["'x'"] * 20_000) + ")",
    "OR": " OR ".join(["(a = 1)"] * 20_000),
    "AND NOT": " AND ".join(["NOT a = 1"] * 20_000),
    "CASE": "CASE " + "WHEN a = 1 THEN 2 " * 20_000 + "END",
}


def nested(kind: str, times: int) -> str:
    before, middle, behind = DEEP[kind]
    text = before * times + middle + behind * times
    return text + ")" * (text.count("(") - text.count(")"))


@pytest.mark.parametrize("times", [1_000, 30_000])
@pytest.mark.parametrize("kind", DEEP)
def test_what_is_nested_too_deeply_is_refused_and_ends_nothing(kind: str, times: int) -> None:
    text = nested(kind, times)
    with pytest.raises(TooDeepError):
        parse(f"SELECT WHERE ({text})")
    assert not is_expression(text)
    for look in (foreign_name, functions_of):
        with pytest.raises(FilterError, match="nested too deeply"):
            look(text)
    with pytest.raises(FilterError, match="nested too deeply"):
        first_reference(text, ["a"])
    with pytest.raises(DefinitionError, match="nested too deeply"):
        parse_definitions(f"CREATE PUBLICATION p FOR TABLE t WHERE ({text})")


@pytest.mark.parametrize("kind", FLAT)
def test_what_is_only_long_is_read(kind: str) -> None:
    assert column_names(FLAT[kind]) == {"a"}


@pytest.mark.parametrize("kind", ["brackets", "casts", "operators", "tests"])
def test_the_columns_of_what_is_too_deep_are_its_words(kind: str) -> None:
    assert column_names(nested(kind, 2_000)) <= {"a", "b"}
    assert "a" in column_names(nested(kind, 2_000))


def test_words_are_no_types_functions_or_reserved_words() -> None:
    text = """((("a b"."c""d")::text || lower(name)) COLLATE "C") IS NOT NULL AND NOT value"""
    assert column_words(text) == {"a b", 'c"d', "name", "value"}


def test_an_error_of_syntax_stays_one() -> None:
    with pytest.raises(postgast.PgQueryError, match="syntax error"):
        parse("SELECT WHERE (")
