"""Texts that can be row filters of a publication, and texts that can be something else."""

from __future__ import annotations

import pytest

from gateway.core.errors import FilterError
from gateway.rowfilter.permitted import functions_of, is_collation


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("((a)::numeric > 5.5) AND ((c)::text = 'NSW'::text)", set()),
        ("(a = ANY (ARRAY[1, 2])) OR (b IN ('x', 'y'))", set()),
        ("CASE WHEN (a > 1) THEN upper(b) ELSE NULL::text END IS NOT NULL", {"upper"}),
        ("EXTRACT(year FROM d) > 5", {"extract"}),
        ("(d AT TIME ZONE 'UTC'::text) IS NULL", {"timezone"}),
        ("COALESCE(a, 1) = GREATEST(a, 2) AND (b ~~ 'x%'::text COLLATE \"C\")", set()),
        ("jsonb_extract_path(j, VARIADIC ARRAY['a'::text]) IS NOT NULL", {"jsonb_extract_path"}),
        (
            "(a IS DISTINCT FROM 5) AND (b IS TRUE) AND (NULLIF(a, 1) = 2) AND (t IS DOCUMENT)",
            set(),
        ),
        ("ROW(a, b) = ROW(1, 2)", set()),
        ("pg_sleep(1) IS NULL", {"pg_sleep"}),  # the server says that it is not immutable
    ],
)
def test_what_computes_only_is_permitted(text: str, functions: set[str]) -> None:
    assert functions_of(text) == functions


@pytest.mark.parametrize(
    "text",
    [
        "a = (SELECT 1)",
        "EXISTS (SELECT FROM secret)",
        "ARRAY(SELECT 1) IS NULL",
        "public.f(a)",
        "a::public.d IS NULL",
        "a OPERATOR(public.=) 1",
        "a COLLATE public.c > 'x'",
        "count(*) > 1",
        "row_number() OVER () = 1",
        "f(a ORDER BY a)",
        "f(a => 1)",
        "t.a = 1",
        "((a)).b = 1",
        "a[1] = 2",
        "$1 = 1",
        "CURRENT_USER = 'x'",
        "*",
        "",
        "a = 1) OR (true",
        "a = 1; DROP TABLE t",
        "a = 1 /*",
        "a = 1 FROM secret",
    ],
)
def test_all_else_is_not(text: str) -> None:
    with pytest.raises(FilterError):
        functions_of(text)


def test_a_collation_is_a_name() -> None:
    assert is_collation('"public"."de-x-icu"')
    assert is_collation("default")  # as `gateway.definitions.model.Collation` calls it
    assert not is_collation('"C" > (SELECT 1)')
    assert not is_collation("")
