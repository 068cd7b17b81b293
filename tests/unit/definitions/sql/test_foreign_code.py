"""Names of other schemas, and columns, in expressions that somebody else may have a hand in."""

from __future__ import annotations

import pytest

from gateway.definitions.sql.foreign_code import first_reference, foreign_name


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("lower(c) = 'x' AND pg_catalog.upper(c) = 'X'", None),
        ("public.lower(c) = 'x'", "public.lower"),
        ("c::evil = '1'", None),  # looked up in pg_catalog, where it is not
        ("c = '{1}'::public.evil[]", "public.evil"),
        ("c OPERATOR(public.=) 1", "public.="),
        ("c OPERATOR(pg_catalog.=) 1", None),
        ("EXISTS (SELECT other.f(1))", "other.f"),
        ("c = ", None),
    ],
)
def test_the_first_name_of_another_schema_is_found(expression: str, named: str | None) -> None:
    assert foreign_name(expression) == named


@pytest.mark.parametrize(
    ("expression", "offset"),
    [("a = 1 AND b = '{1}'", 10), ("ä.b IS NULL", 0), ("a = 1", None), ("b = ", None)],
)
def test_the_first_reference_to_a_column_is_found(expression: str, offset: int | None) -> None:
    assert first_reference(expression, {"b"}) == offset
