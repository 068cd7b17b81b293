"""Of tables that cannot have a topic each, the one that was there first has it."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.watermark import CopyState
from gateway.definitions.model import Plan, TableCopy
from gateway.definitions.tables.topic_names import topic_name_faults
from tests.unit.definitions.test_changes import TABLE

FIRST = replace(TABLE, oid=5, schema="a", name="b_c")
SECOND = replace(TABLE, oid=9, schema="a_b", name="c")


def plan(*open_ended: int) -> Plan:
    tables = {table.oid: table for table in (FIRST, SECOND)}
    copies = tuple(TableCopy("s", oid, (), ("a", "b")) for oid in tables)
    return Plan(tables, (), (), copies, (), open_ended=frozenset(("s", oid) for oid in open_ended))


def test_the_older_table_keeps_a_topic_that_two_would_have() -> None:
    (found,) = topic_name_faults(plan(5, 9), (), {}, ()).items()

    assert found[0] == ("s", 9)
    assert "its topic s.a_b.c collides with s.a.b_c" in found[1].reason
    assert found[1].cause == "topic_name"


def test_a_table_that_the_file_names_and_one_that_has_the_topic_already_come_first() -> None:
    has_it = CopyState("s", "a_b", "c", "ready", oid=9)

    assert list(topic_name_faults(plan(5), (), {}, ())) == [("s", 5)]
    assert list(topic_name_faults(plan(5, 9), [has_it], {}, ())) == [("s", 5)]
    assert list(topic_name_faults(plan(5, 9), [replace(has_it, state="held")], {}, ())) == [
        ("s", 9)
    ]


def test_another_name_ends_a_collision_and_the_gateways_own_topics_are_nobodys() -> None:
    assert topic_name_faults(plan(5, 9), (), {"s.a_b.c": "other"}, ()) == {}
    assert list(topic_name_faults(plan(5, 9), (), {"s.a_b.c": "other"}, ["other"])) == [("s", 9)]
