"""Names of tables on the command line."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from gateway.commands.table_names import find_table, split_name
from gateway.core.errors import ConfigError
from gateway.core.watermark import CopyState
from gateway.monitor.status import table_problem, tables_of
from schemas.table_names import quoted_name
from schemas.topic_names import topic_part
from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.job.subscriber_tables import SubscriberTables

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


ALIKE = [
    *(("public", "orders"), ("public", "Orders"), ("public", '"orders"'), ("public", "x\n")),
    *(("a.b", "c"), ("a", "b.c"), ("public", "it's $(id)"), ("Public", "orders")),
]


@pytest.mark.parametrize("table", ALIKE)
def test_the_command_of_a_hint_names_the_held_table_and_no_other(table: tuple[str, str]) -> None:
    (found,) = tables_of([CopyState("s", *table, "held", cause="lost")], lambda _: None)
    problem = table_problem(found)
    assert problem is not None
    of_gateway = (problem.hint or "").partition("`pgsluice copy ")[2].rpartition("`")[0]
    session: Any = None
    tables = SubscriberTables(session, DeltaFormat(), "warehouse", "s")
    tables.names["topic"] = ".".join(map(topic_part, table))
    hold = tables.hold(tables.names["topic"], TableError("gone", hint=COPY_AGAIN))
    of_job = (hold.hint or "").partition("(pgsluice copy ")[2].rpartition(" --subscription")[0]

    for words in (of_gateway, of_job):
        run = ["bash", "-c", f"printf '%s|' {words}"]
        text = subprocess.run(run, capture_output=True, check=True).stdout.decode()
        assert find_table(text.removesuffix("|"), ALIKE, absent="", hint="") == table
