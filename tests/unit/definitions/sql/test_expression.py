"""What is read off an expression without a server."""

from __future__ import annotations

import pytest

from gateway.definitions.sql.expression import column_names, select_where


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("((a > 5) AND ((c)::text = 'NSW'::text))", {"a", "c"}),
        ('("Ä" IS NULL)', {"Ä"}),
        ("true", set()),
        ("(COALESCE(a, b) = ANY (ARRAY[t.c, 1]))", {"a", "b", "c"}),
    ],
)
def test_the_columns_of_an_expression(expression: str, names: set[str]) -> None:
    assert column_names(expression) == names


def test_the_filter_of_a_view_is_all_that_follows_where() -> None:
    query = " SELECT 1 AS \"?column?\"\n  FROM ONLY t\n WHERE ((a > 5) OR (c = ' WHERE '));"
    assert select_where(query) == "((a > 5) OR (c = ' WHERE '))"
