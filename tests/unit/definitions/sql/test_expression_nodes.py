"""Which texts may stand in a statement as a condition, by the grammar alone."""

from __future__ import annotations

import pytest

from gateway.definitions.sql.expression import function_names, refuse_nodes


@pytest.mark.parametrize(
    "text",
    [
        "a > 5 AND c = 'NSW'",
        "((a)::numeric > 5.5) AND ((c)::text = 'NSW'::text)",
        "(b)::pg_catalog.text ~~ 'x%'::text",
        "c COLLATE pg_catalog.\"C\" < 'm'",
        "a IN (1, 2, 3) OR a BETWEEN 4 AND 5 OR a = ANY (ARRAY[6, 7])",
        "CASE WHEN a IS NULL THEN true ELSE lower(c) = 'x' END",
        "COALESCE(a, 0) = GREATEST(1, 2) AND NULLIF(a, 1) IS DISTINCT FROM 2",
        "EXTRACT(year FROM d) = 2024",
        "(a, b) = (1, 2) AND (flag IS TRUE) AND NOT (e IS NULL)",
        "t.a OPERATOR(pg_catalog.>) 5",
        "a > 5 -- and why",
    ],
)
def test_an_expression_of_a_row_filter_passes(text: str) -> None:
    assert refuse_nodes(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "true)) TO PROGRAM 'touch /tmp/x' --",
        "a > 5) UNION (SELECT 1",
        "true); DROP TABLE t; SELECT (true",
        "",
        "a >",
        "a = (SELECT 1)",
        "EXISTS (SELECT FROM pg_authid WHERE rolpassword LIKE 'S%')",
        "a IN (SELECT oid FROM pg_class)",
        "public.f(a)",
        "a OPERATOR(public.=) 5",
        "a::public.domain > 5",
        "c COLLATE public.mine = 'x'",
        "count(*) > 1",
        "sum(a) OVER () > 1",
        "string_agg(c, ',' ORDER BY c) = 'x'",
        "a = current_setting('x')::int AND current_user = 'x'",
        "now() = CURRENT_TIMESTAMP",
        "a = $1",
        "(row).field = 1",
        "arr[1] = 1",
        "t.* IS NOT NULL",
        "a = DEFAULT",
        "(" * 2_000 + "a" + ")" * 2_000,
        "a" + "::text" * 2_000,
        "a = 1 \0",
    ],
)
def test_anything_else_does_not(text: str) -> None:
    assert refuse_nodes(text) is not None or function_names(text) & {"current_setting", "now"}


def test_functions_are_named_without_their_schema() -> None:
    assert function_names("pg_catalog.lower(c) = upper(d)") == {"lower", "upper"}
