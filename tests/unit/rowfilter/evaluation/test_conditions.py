"""Which filters become tables for the compiled row path, and what these say of a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway._speedups.codes import ALL_OF, AS_INTEGER, AS_TEXT, EQUAL, ONE_OF
from gateway._speedups.layouts import Condition
from gateway.core.errors import ValueFormatError
from gateway.routing.row.native import why_not_built
from gateway.rowfilter import RowFilter, combine, compile_filter, condition_of
from gateway.rowfilter.expr import Not
from tests.support.gateway.conditions import bind_compiled
from tests.unit.rowfilter.columns import COLUMNS, NAMES, row

INFINITE = "'infinity'::date"
ROWS = [
    row(),
    *(row(a=value) for value in (b"-7", b"0", b"5", b"6", b"2147483647")),
    *(row(t=value) for value in (b"", b"EU", b"EUR", b"US", b"\xc3\xa9", b"tab\t\\")),
    *(row(p=value) for value in (b"", b"ab", b"ab  ", b"abc")),
    *(row(z=value) for value in (b"t", b"f")),
    *(row(n=value) for value in (b"5.5", b"5.50", b"-0.00", b"0", b"-5.6", b"10", b"9.99")),
    *(row(n=b"1" + b"0" * 40 + zeros) for zeros in (b"", b".1")),
    *(row(f=value) for value in (b"1.5", b"-0", b"1e+30", b"-1e-07", b"2")),
    *(row(d=value) for value in (b"2024-01-01", b"2023-12-31", b"infinity", b"-infinity")),
    *(row(tz=value) for value in (b"2024-01-01 00:00:00+00", b"2024-01-01 00:00:00.5+00")),
    *(row(tz=value) for value in (b"infinity", b"-infinity", b"1999-12-31 23:59:59.999999+00")),
    row(u=b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    row(a=b"5", t=b"EU", z=b"t"),
]
LEFT_ALONE = [
    row(a=b"2147483647123456789"),  # more digits than are read
    row(n=b"NaN"),
    row(n=b"Infinity"),
    row(f=b"NaN"),
    row(f=b"-Infinity"),
    row(d=b"10000-01-01"),
    row(d=b"0044-03-15 BC"),
    row(tz=b"0044-03-15 00:00:00+00 BC"),
]
UNREADABLE = [
    *(row(a=value) for value in (b"", b"0x10", b"5.5", b"-71\xac8", b"1e1")),
    *(row(n=value) for value in (b"", b"5.5.", b"0x10", b"1 0")),
    *(row(f=value) for value in (b"", b"1.5.", b"one")),
    row(a=b"0x10", t=b"EU", z=b"t"),
    row(a=b"5", n=b"5.5.", z=b"f"),
]
"""Texts that no server sends for the type."""
TABLES = [
    *("(a > 5)", "(a >= 5)", "(a < 5)", "(a <= 5)", "(a = 5)", "(a <> 5)", "(5 < a)", "(5 >= a)"),
    *("((a >= 0) AND (a <= 5))", "(NOT ((a >= 0) AND (a <= 5)))", "((a < 0) OR (a > 5))"),
    *("(a IS NULL)", "(a IS NOT NULL)", "(a IS DISTINCT FROM 5)", "(NOT (a IS DISTINCT FROM 5))"),
    *("(a = ANY (ARRAY[0, 5, 7]))", "(a <> ALL (ARRAY[0, 5, 7]))", "(NOT (a = ANY (ARRAY[5, 6])))"),
    *("(a = ANY (ARRAY[5, NULL::integer]))", "(a <> ALL (ARRAY[5, NULL::integer]))"),
    "(NOT (a <> ALL (ARRAY[5, NULL::integer])))",
    *(
        "(a <> ALL (ARRAY[NULL::integer, 5, 7]))",
        "((a = 5) OR (a <> ALL (ARRAY[5, NULL::integer])))",
    ),
    *("((t = 'EU'::text) OR (a > 5) OR (a < 0))", "((t = 'US'::text) AND (a > 5) AND (a < 9))"),
    *("((a = 5) OR ((n > 5.5) AND (n < 10.0)))", "((a IS NOT NULL) OR (a > 5))"),
    "((t = 'EU'::text) OR (f > (1.5)::double precision) OR (f < (0)::double precision))",
    *("((a)::numeric > 5.5)", "((a)::numeric = 5.0)", "((a)::numeric = ANY (ARRAY[5.0, 5.5]))"),
    *("(t = 'EU'::text)", "(t <> 'EU'::text)", "(t > 'EU'::text)", "(t <= 'EU'::text)"),
    *("(t = ANY (ARRAY['EU'::text, 'é'::text]))", "(t = 'tab\t\\'::text)", "(NOT (t = ''::text))"),
    *("(p = 'ab'::bpchar)", "(p <> 'ab '::bpchar)", "(p = ANY (ARRAY['abc'::bpchar, ''::bpchar]))"),
    *("z", "(NOT z)", "(z IS TRUE)", "(z IS NOT FALSE)", "(z IS UNKNOWN)", "(z = false)"),
    *(
        "(n > 5.5)",
        "(n = 5.5)",
        "(n < '-5.5'::numeric)",
        "(n = (0)::numeric)",
        "(n >= (10)::numeric)",
    ),
    f"(n > {'9' * 40}.0)",
    *("(n = ANY (ARRAY[0.0, 9.990]))", "(n <> ALL (ARRAY[5.5, 10.0]))"),
    *("(f > (1.5)::double precision)", "(f = (0)::double precision)"),
    *("(d >= '2024-01-01'::date)", f"(d = {INFINITE})", f"(d <> {INFINITE})", f"(d < {INFINITE})"),
    *("(d = ANY (ARRAY['2024-01-01'::date, '-infinity'::date]))", "(d > '-infinity'::date)"),
    "(tz > '2024-01-01 00:00:00+00'::timestamp with time zone)",
    "(tz < '2000-01-01 00:00:00+00'::timestamp with time zone)",
    "(tz = 'infinity'::timestamp with time zone)",
    "(u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid)",
    *("(z OR (NOT z))", "((p = 'ab'::bpchar) OR (p = 'abc'::bpchar))"),
    "((u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid) OR (u IS NULL))",
    "((a = 5) AND ((t = 'EU'::text) OR (t = 'US'::text)) AND z)",
]
FUNCTIONS = [
    *(
        "((a + 1) > 5)",
        "(a > b)",
        "(t ~~ 'E%'::text)",
        "(substr(t, 1) = 'EU'::text)",
        "((a = 5) = z)",
    ),
    *("(a = ANY (ARRAY[NULL::integer]))", "(a IS DISTINCT FROM NULL::integer)"),
    *("(COALESCE(a, 0) > 5)", "((a > 5) IS UNKNOWN)", "(a > ANY (ARRAY[1, 2]))"),
    *("(n > 'NaN'::numeric)", "(n < 'Infinity'::numeric)", "(f < 'NaN'::double precision)"),
    "((a > 5) AND ((100 / b) > 3))",
]


if why_not_built() is None:

    @pytest.mark.parametrize("text", TABLES)
    def test_a_table_says_what_the_function_says(text: str) -> None:
        row_filter = compile_filter(text, COLUMNS)
        function = combine([row_filter], NAMES)
        decide = bind_compiled([row_filter], NAMES)

        assert decide is not None
        assert [decide(values) for values in ROWS] == [function(values) for values in ROWS]
        for values in LEFT_ALONE:
            assert decide(values) in (None, function(values))

    @pytest.mark.parametrize("text", TABLES)
    def test_a_text_that_the_function_refuses_is_left_to_it(text: str) -> None:
        row_filter = compile_filter(text, COLUMNS)
        function = combine([row_filter], NAMES)
        decide = bind_compiled([row_filter], NAMES)

        assert decide is not None
        for values in UNREADABLE:
            try:
                passes = function(values)
            except ValueFormatError:
                assert decide(values) is None, values
            else:
                assert decide(values) in (None, passes), values

    @pytest.mark.parametrize("values", LEFT_ALONE)
    def test_what_is_not_read_in_c_is_left_to_the_function(
        values: tuple[bytes | None, ...],
    ) -> None:
        texts = {
            "a": "(a > 5)",
            "n": "(n > 5.5)",
            "f": "(f > (1.5)::double precision)",
            "d": "(d >= '2024-01-01'::date)",
            "tz": "(tz > '2024-01-01 00:00:00+00'::timestamp with time zone)",
        }
        (name,) = (
            name for name in NAMES if row(**{name: None}) != values and values[NAMES.index(name)]
        )

        decide = bind_compiled([compile_filter(texts[name], COLUMNS)], NAMES)

        assert decide is not None
        assert decide(values) is None


@pytest.mark.parametrize("text", FUNCTIONS)
def test_what_is_more_than_comparisons_with_constants_has_no_table(text: str) -> None:
    assert condition_of([compile_filter(text, COLUMNS)], NAMES) is None


def test_one_of_several_filters_must_pass() -> None:
    filters = [compile_filter(text, COLUMNS) for text in ("(a = 5)", "(t = 'EU'::text)")]

    assert condition_of(filters, NAMES) == Condition(
        ONE_OF,
        (
            Condition(AS_INTEGER, column=NAMES.index("a"), orders=EQUAL, constants=(5,)),
            Condition(AS_TEXT, column=NAMES.index("t"), orders=EQUAL, constants=(b"EU",)),
        ),
    )
    assert condition_of([], NAMES) == Condition(ALL_OF)
    mixed = [filters[0], compile_filter("((a + 1) > 5)", COLUMNS)]
    assert condition_of(mixed, NAMES) is None


def test_what_is_nested_very_deeply_stays_a_function() -> None:
    def nested(depth: int) -> RowFilter:
        inner = compile_filter("(a = 5)", COLUMNS)
        expr = inner.expr
        for _ in range(depth):
            expr = Not(expr)
        return replace(inner, expr=expr)

    assert condition_of([nested(31)], NAMES) is not None
    assert condition_of([nested(32)], NAMES) is None
