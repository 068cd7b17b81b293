"""Reasons and hints of held tables."""

from __future__ import annotations

from typing import Any

from schemas.topic_names import topic_part
from spark_consumer.errors import TableError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.job.subscriber_tables import SubscriberTables

GONE = TableError("gone", hint="copy the table again: it begins again")


def test_a_table_that_needs_a_copy_is_named_with_the_command_that_asks_for_it() -> None:
    session: Any = None
    tables = SubscriberTables(session, DeltaFormat(), "warehouse", "s 1")
    tables.names["topic"] = f"public.{topic_part('order items')}"

    why = tables.hold("public.order-x0020-items", GONE)

    assert why.hint == (
        "copy the table again (pgsluice copy 'public.\"order items\"' --subscription 's 1'):"
        " it begins again"
    )
    assert tables.hold("s.public.t", GONE).hint == GONE.hint
