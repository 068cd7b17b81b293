from __future__ import annotations

import pytest

from gateway.errors import FilterError
from gateway.rowfilter import FilterSource, compile_filter
from tests.unit.rowfilter.columns import COLUMNS


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("((a > 1) AND (j IS NULL))", 'column "j" has type xml', "j IS"),
        ("(own = 5)", "User-defined types are not allowed", "own"),
        ("(virtual = 5)", "generated when it is read", "virtual"),
        ("(missing = 5)", 'column "missing" does not exist', "missing"),
        ("((a > 5) AND (c < 'm'::text))", "the order of text under collation default", "< 'm'"),
        ("(c ~~* 'm'::text)", '"~~*" under collation default', "~~*"),
        ("(loose = 'x'::text)", "is nondeterministic", "= 'x'"),
        ("(t = (c COLLATE \"en_US\"))", None, ""),
        ("((t COLLATE \"C\") = (c COLLATE \"POSIX\"))", "collation mismatch", "= (c"),
        ("(c ~ '\\d'::text)", '"~" under collation default cannot be reproduced', "~"),
        ("(a = 5.5)", 'operator "=" is not supported for int4 and numeric', "= 5.5"),
        ("(a = 'x')", "a literal without a type", "'x'"),
        ("(sin(f) = f)", "function sin(float8) is not supported", "sin"),
        ("(lower(a) = 'x'::text)", "function lower(int4) is not supported", "lower"),
        ("(to_char(a, 'x'::text) = c)", "so it is not immutable", "to_char"),
        ("(nothing() = c)", "function nothing() is not supported", "nothing"),
        ("(count(a) > 1)", "function count(int4) is not supported", "count"),
        ("(count(*) > 1)", "aggregate functions are not allowed in WHERE", "count"),
        ("public.f(a)", "user-defined functions are not allowed", "public"),
        ("(a OPERATOR(public.=) 5)", "user-defined operators are not allowed", "OPERATOR"),
        ('((c COLLATE public.x) = \'y\'::text)', "user-defined collations", "COLLATE"),
        ("(t.a = 5)", "only plain names of columns", "t.a"),
        ("a", "must be type boolean, not int4", "a"),
        ("(NOT a)", "a boolean is expected, not int4", "a)"),
        ("((d)::timestamp with time zone > tz)", "is not immutable", "::timestamp"),
        ("(d < tz)", "is not immutable", "< tz"),
        ("((a)::text = '5'::text)", "cast from int4 to text is not supported", "::text"),
        ("(a = '5'::public.own)", "type public.own is not supported", "public"),
        ("(a = 'x'::integer)", "does not read as int4", "'x'"),
        ("(d = 'now'::date)", "does not read as date", "'now'"),
        ("(a = ANY (b))", "int4 is not an array", "= ANY"),
        ("(a = ANY (ARRAY[1, 2.5]))", "elements differ in type", "ARRAY"),
        ("(a IN (1, 2))", "not how the server prints", "IN"),
        ("(a = (SELECT 1))", "sub link is not supported", "(SELECT"),
        ("(ROW(a, b) IN (1))", "not how the server prints", "IN"),
        ("(CASE a WHEN d THEN z END)", "CASE that compares int4 with date", "WHEN"),
        ("(COALESCE(a, 1.5) > 1)", "results that differ in type", "COALESCE"),
        ("(GREATEST(c, 'x'::text) = 'x'::text)", "the order of text under", "GREATEST"),
        ("(a > 5", "syntax error", ""),
        ("a > 5; SELECT 1", "one expression is expected", "a"),
        ("a > 5, b", "one expression is expected", "a"),
        ("a > 5 FROM t", "one expression is expected", "a"),
        ("*", "only plain names of columns", "*"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_with_its_position(
    text: str, reason: str | None, at: str
) -> None:
    if reason is None:  # a supported neighbour of the cases around it
        compile_filter(text, COLUMNS)
        return
    with pytest.raises(FilterError) as caught:
        compile_filter(text, COLUMNS)

    assert reason in str(caught.value)
    assert "docs/row-filters.md" in str(caught.value.hint)
    assert caught.value.text == text
    assert caught.value.position is not None
    assert text[caught.value.position :].startswith(at)


def test_positions_count_characters_not_bytes() -> None:
    text = "((\"Été\" = 5) AND (c = 'é'::text) AND (c ~ '\\d'::text))"

    with pytest.raises(FilterError) as caught:
        compile_filter(text, COLUMNS)

    assert caught.value.position == text.index("~")


def test_the_message_shows_the_filter_and_a_caret() -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter("(j IS NULL)", COLUMNS, source=FilterSource("public.orders", "p1"))

    assert str(caught.value) == (
        "row filter of publication p1 for public.orders, column 2: "
        'column "j" has type xml, which is not supported\n'
        "line 1: (j IS NULL)\n"
        "         ^\n"
        'hint: see docs/row-filters.md, "what a filter may say"'
    )


def test_a_filter_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(FilterError, match="nested too deeply"):
        compile_filter("NOT " * 200 + "z", COLUMNS)
