"""Filters without columns: folded when they are read. Expected: PostgreSQL 16 and 18."""

from __future__ import annotations

import pytest

from gateway.core.errors import FilterError
from gateway.rowfilter import compile_filter
from gateway.rowfilter.expr import Constant
from tests.unit.rowfilter.columns import COLUMNS

TRUE = (
    "((('abcdef'::text)::character varying(3))::text = 'abc'::text)",
    "(('ab'::text)::character(4) = 'ab'::bpchar)",
    "((('ab  '::bpchar)::text || 'c'::text) = 'abc'::text)",
    "((2.345)::numeric(5,2) = 2.35)",
    "((1234567)::numeric(3,-4) = (1230000)::numeric)",
    "((7)::numeric(5) = 7.0)",
    "(('2024-01-01 00:00:00.5'::timestamp without time zone)::timestamp(0) without time zone"
    " = '2024-01-01 00:00:01'::timestamp without time zone)",
    "(('2024-01-01 12:00:00'::timestamp without time zone)::date = '2024-01-01'::date)",
    "(('2024-01-01'::date)::timestamp without time zone"
    " = '2024-01-01 00:00:00'::timestamp without time zone)",
    "((2.5)::integer = 3)",
    "(9999999999 > 5)",
    "((1.0)::double precision = '1'::double precision)",
    '(\'{"a b","c\\"d",NULL}\'::text[] IS NOT NULL)',
    '(\'c"d\'::text = ANY (\'{"a b","c\\"d",NULL}\'::text[]))',
    "(5 = ANY ('[0:1]={4,5}'::integer[]))",
    "(5 = ANY ('{{1,2},{4,5}}'::integer[]))",
    "(5 > ALL (ARRAY[1, 2]))",
    "((5 = ANY (ARRAY[1, NULL::integer])) IS NULL)",
    "(NOT (5 = ANY (ARRAY[]::integer[])))",
    "('x '::bpchar = ANY ('{x,NULL}'::bpchar[]))",
    "('abc'::text !~~ 'b%'::text)",
    "('abc'::name ~~ 'a%'::text)",
    "('a'::name < 'b'::name)",
    "(('a'::text COLLATE \"C\") < 'b'::text)",
    "(NULL::boolean IS UNKNOWN)",
    "((NULL::integer + 1) IS NULL)",
    "(NULL::integer IS NOT DISTINCT FROM NULL::integer)",
    "(1 IS DISTINCT FROM NULL::integer)",
    "(1 IS DISTINCT FROM 2)",
    "((NULL::boolean OR false) IS NULL)",
    "((NULL::boolean AND true) IS NULL)",
    "(NOT (false OR false))",
    "((true AND true) AND (NOT (NOT true)))",
    "((('2024-01-01'::date + 60) - '2024-01-01'::date) = 60)",
    "((('2024-01-01'::date - 1) < '2024-01-01'::date))",
    "((@ '-5'::integer) = (- '-5'::integer))",
    "((+ 1.5) = (- '-1.5'::numeric))",
    "((~ 5) = '-6'::integer)",
    "((5 & 3) = (5 # 4))",
    "(('a'::text ^@ ''::text))",
    "(CASE 1 WHEN 2 THEN 1 / 0 WHEN 1.0 THEN 5 ELSE 1 / 0 END = 5)",
    "(CASE WHEN NULL::boolean THEN 1 ELSE 2 END = 2)",
    "(COALESCE(NULL::integer, 5, 1 / 0) = 5)",
    "(NULLIF(1, 1) IS NULL)",
    "(NULLIF(1, NULL::integer) = 1)",
    "(NULLIF('a '::bpchar, 'a'::bpchar) IS NULL)",
    "(GREATEST(1, NULL::integer, 3, 2) = 3)",
    "(LEAST(NULL::integer, NULL::integer) IS NULL)",
    "(LEAST('-1'::integer, 0) = '-1'::integer)",
    "(GREATEST(('a'::text COLLATE \"C\"), 'b'::text) = 'b'::text)",
    "(('{{1,2},{3,4}}'::integer[] IS NOT NULL))",
)


@pytest.mark.parametrize("text", TRUE)
def test_a_constant_filter_that_is_true(text: str) -> None:
    assert compile_filter(text, COLUMNS).expr == Constant(True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("((40000)::smallint = 1)", "smallint out of range"),
        ("(('9999999999'::bigint)::integer = 1)", "integer out of range"),
        ("((5)::numeric(3,3) = 1.0)", "numeric field overflow"),
        ("((1 / 0) = ANY (ARRAY[1]))", "division by zero"),
        ("('a'::text ~~ '\\'::text)", "LIKE pattern must not end with escape character"),
        ("('{1'::integer[] IS NULL)", "does not read as int4[]"),
        ("('{\"1'::text[] IS NULL)", "does not read as text[]"),
        ("('t2'::boolean)", "does not read as bool"),
        ("(CASE WHEN ((1 / 0) = 1) THEN true ELSE false END)", "division by zero"),
        ("(NULLIF(1 / 0, 1) IS NULL)", "division by zero"),
    ],
)  # fmt: skip
def test_a_constant_filter_that_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(text, COLUMNS)

    assert reason in str(caught.value)
