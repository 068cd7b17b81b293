"""Reasons and hints of held tables."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_consumer.errors import TableError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.names import part, source_name

GONE = TableError("gone", hint="copy the table again: it begins again")


def test_a_table_that_needs_a_copy_is_named_with_the_command_that_asks_for_it() -> None:
    session: Any = None
    tables = SubscriberTables(session, DeltaFormat(), "warehouse", "s 1")
    tables.names["topic"] = f"public.{part('order items')}"

    why = tables.hold("public.order-x0020-items", GONE)

    assert why.hint == (
        "copy the table again (pgsluice copy 'public.order items' --subscription 's 1'):"
        " it begins again"
    )
    assert tables.hold("s.public.t", GONE).hint == GONE.hint


@given(st.text(min_size=1))
def test_a_written_name_is_read_back(name: str) -> None:
    assert source_name(part(name)) == name


@given(st.from_regex(r"(-x[0-9A-F]{3,7}-|a)*", fullmatch=True))
def test_any_name_of_a_marker_can_be_shown(name: str) -> None:
    source_name(name).encode()
    assert source_name("public.a-x110000-") == "public.a-x110000-"
    assert source_name("public.a-xD800-") == "public.a-xD800-"
