"""Names of tables on the command line."""

from __future__ import annotations

import pytest

from gateway.commands.table_names import find_table, quoted_name, split_name
from gateway.core.errors import ConfigError

KNOWN = [
    ("public", "t"),
    ("sales", "t"),
    ("sales", "orders"),
    ("sales", "Items"),
    ("public", "items"),
    ("public", "Only"),
    ("odd.schema", 'a "b".c'),
]


def find(text: str) -> tuple[str, str]:
    return find_table(text, KNOWN, absent="no subscription has a table", hint="look")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("orders", ("sales", "orders")),
        ("ORDERS", ("sales", "orders")),
        ("Sales.Orders", ("sales", "orders")),
        ("sales.t", ("sales", "t")),
        ("Items", ("public", "items")),
        ('"Items"', ("sales", "Items")),
        ("sales.Items", ("sales", "Items")),
        ("Only", ("public", "Only")),
        ('"odd.schema"."a ""b"".c"', ("odd.schema", 'a "b".c')),
        ('odd.schema.a "b".c', ("odd.schema", 'a "b".c')),
    ],
)
def test_a_name_stands_for_a_table_of_the_definitions(text: str, table: tuple[str, str]) -> None:
    assert find(text) == table


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("t", "t is ambiguous: public.t, sales.t"),
        ("vic", 'no subscription has a table "vic"'),
        ('"T"', 'no subscription has a table "T"'),
        ("public.orders", 'no subscription has a table "public.orders"'),
        ("", 'no subscription has a table ""'),
    ],
)
def test_a_name_for_no_table_or_several_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        find(text)

    assert raised.value.message == why


def test_a_name_that_is_nearly_right_is_put_right() -> None:
    with pytest.raises(ConfigError, match=r"did you mean sales\.orders\? look"):
        find("oders")


@pytest.mark.parametrize("table", KNOWN)
def test_a_name_with_its_quotes_is_read_back(table: tuple[str, str]) -> None:
    assert split_name(quoted_name(table)) == table
