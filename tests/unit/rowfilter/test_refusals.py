from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.errors import FilterError
from gateway.definitions.model import Collation
from gateway.rowfilter import FilterSource, asks, compile_filter, place_filter
from gateway.rowfilter.evaluation.compile import reference
from tests.unit.rowfilter.columns import COLUMNS, column


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("((a > 1) AND (j IS NULL))", 'column "j" of type xml', "j IS"),
        ("(own = 5)", 'column "own" of type', "own"),
        ("(virtual = 5)", "generated when it is read", "virtual"),
        ("(missing = 5)", 'column "missing" does not exist', "missing"),
        ("((a > 5) AND (c < 'm'::text))", "the order of text under collation default", "< 'm'"),
        ("(c ~~* 'm'::text)", 'operator "~~*" of text and text', "~~*"),
        ("(loose = 'x'::text)", "is nondeterministic", "= 'x'"),
        ("(t = (c COLLATE \"en_US\"))", None, ""),
        ("((t COLLATE \"C\") = (c COLLATE \"POSIX\"))", "collation mismatch", "= (c"),
        ("(c ~ '\\d'::text)", 'operator "~" of text and text', "~"),
        ("(a = 5.5)", 'operator "=" of int4 and numeric', "= 5.5"),
        ("(a = 'x')", "a literal without a type", "'x'"),
        ("(sin(f) = f)", "function sin(float8)", "sin"),
        ("(lower(a) = 'x'::text)", "function lower(int4)", "lower"),
        ("(now() > tz)", "function now()", "now"),
        ("(nothing() = c)", "function nothing()", "nothing"),
        ("(count(a) > 1)", "function count(int4)", "count"),
        ("public.f(a)", "this form of a function", "public"),
        ("(a OPERATOR(public.=) 5)", "user-defined operators are not allowed", "OPERATOR"),
        ('((c COLLATE public.x) = \'y\'::text)', "user-defined collations", "COLLATE"),
        ("(t.a = 5)", "only plain names of columns", "t.a"),
        ("a", "must be type boolean, not int4", "a"),
        ("(NOT a)", "a boolean is expected, not int4", "a)"),
        ("((d)::timestamp with time zone > tz)", "cast from date to timestamptz", "::timestamp"),
        ("(d < tz)", 'operator "<" of date and timestamptz', "< tz"),
        ("((a)::text = '5'::text)", "cast from int4 to text", "::text"),
        ("(a = '5'::public.own)", "a value of type public.own", "public"),
        ("(a = 'x'::integer)", "does not read as int4", "'x'"),
        ("(d = 'now'::date)", "does not read as date", "'now'"),
        ("(a = ANY (b))", "an array that is not constant", "= ANY"),
        ("(a = ANY (ARRAY[1, 2.5]))", "ARRAY[...] of", "ARRAY"),
        ("(a IN (1, 2))", "not how the server prints", "IN"),
        ("(a = (SELECT 1))", "sub link", "(SELECT"),
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
        'column "j" of type xml\n'
        "line 1: (j IS NULL)\n"
        "         ^\n"
        'hint: a server evaluates what the gateway does not: [filters] server = "on" '
        "(docs/row-filters.md)"
    )


def test_a_filter_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(FilterError, match="nested too deeply"):
        compile_filter("NOT " * 200 + "z", COLUMNS)


@pytest.mark.parametrize(
    ("rest", "spares"),
    [
        ("(t ~ '^a'::text)", True),
        ("(t ~ ANY (ARRAY['a'::text, 'b'::text]))", True),
        ("(('a'::text ~ '('::text) OR (t ~ 'a'::text))", False),
        ("(power((2)::double precision, (9999)::double precision) > (z)::double precision)", False),
        ("(GREATEST(p, q) IS NULL)", False),
        ("(length(t) > (99999)::smallint)", False),
        ("((length(t))::numeric > 555.5::numeric(3,1))", False),
        ("((t ~ '^a'::text) AND ((length(t))::numeric > (5)::numeric))", True),
        ("((t ~ '^a'::text) AND ((z)::smallint > '7'::smallint))", True),
    ],
)
def test_rows_are_spared_the_server_unless_it_may_fail_for_every_row(
    rest: str, spares: bool
) -> None:
    columns = [column("z", "int4"), column("t", "text"), column("p", "point"), column("q", "point")]

    filter_ = place_filter(f"((z > 5) AND {rest})", columns)

    assert filter_.refused is not None
    asked = asks([filter_], ["z", "t", "p", "q"])
    assert [asked((z, b"a", None, None)) for z in (b"5", b"6")] == [not spares, True]


@pytest.mark.parametrize("sorts_by_bytes", [True, False])
def test_text_is_ordered_here_where_the_databases_collation_sorts_by_bytes(
    sorts_by_bytes: bool,
) -> None:
    collation = Collation("default", deterministic=True, c_order=sorts_by_bytes)
    columns = [replace(column("t", "text"), collation=collation)]

    placed = place_filter("((t >= 'b'::text) AND (t < 'd'::text))", columns)

    assert (placed.refused is None) is sorts_by_bytes
    if sorts_by_bytes:
        passes = placed.bind(["t"])
        assert [passes((text,)) for text in (b"a", b"b", b"cZ", b"d", None)] == [
            False, True, True, False, False,
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2024-05-31 23:59:59.999999+00", False),
        (b"2024-06-01 00:00:00+00", True),
        (b"2024-06-01 00:00:00.1+00", True),
        (b"10000-01-01 00:00:00+00", True),
        (b"4000-01-01 00:00:00+00 BC", False),
        (b"infinity", True),
        (b"-infinity", False),
        (None, False),
    ],
)
def test_a_timestamp_is_compared_by_its_text_where_that_sorts(
    text: bytes | None, expected: bool
) -> None:
    columns = [column("at", "timestamptz")]
    filter_ = compile_filter("(at >= '2024-06-01 00:00:00+00'::timestamp with time zone)", columns)

    assert filter_.bind(["at"])((text,)) is expected
    assert reference(filter_.expr, ["at"])((text,)) is expected
