"""Avro and topic names of PostgreSQL identifiers."""

from __future__ import annotations

import pytest

from gateway.core.errors import SchemaError
from gateway.core.names import (
    avro_name,
    error_topic,
    find_collisions,
    message_topic,
    topic_name,
    transaction_topic,
)
from tests.unit.envelope.names import identifier_of

AVRO_NAMES = [
    ("orders", "orders"),
    ("Order_Items2", "Order_Items2"),
    ("order items", "order_x0020_items"),
    ("1st", "_x0031_st"),
    ("a1", "a1"),
    ("prix_€", "prix__x20AC_"),
    ("注文", "_x6CE8__x6587_"),
    ("\U0001f600", "_x1F600_"),
    ("_x", "_x"),
    ("_xyz", "_xyz"),
    ("_x00e9_", "_x00e9_"),
    ("_x00E9_", "_x005F_x00E9_"),
    ("_x00E9é", "_x005F_x00E9_x00E9_"),
    ("éx00E9_", "_x00E9_x00E9_"),
]


@pytest.mark.parametrize(("identifier", "name"), AVRO_NAMES)
def test_an_identifier_becomes_an_avro_name(identifier: str, name: str) -> None:
    assert avro_name(identifier) == name


@pytest.mark.parametrize(("identifier", "name"), AVRO_NAMES)
def test_an_avro_name_gives_the_identifier_back(identifier: str, name: str) -> None:
    assert identifier_of(name) == identifier


def test_a_topic_is_named_after_subscription_schema_and_table() -> None:
    assert topic_name("s1", "public", "Order Items") == "s1.public.Order-x0020-Items"


def test_markers_and_messages_have_topics_of_their_own() -> None:
    assert transaction_topic("s.1") == "s-x002E-1.transaction"
    assert message_topic("gw") == "gw.message"
    assert error_topic("gw") == "gw.error"


def test_a_topic_name_of_249_characters_is_accepted() -> None:
    assert len(topic_name("s", "public", "t" * 240)) == 249


def test_a_longer_topic_name_is_refused_with_what_to_do() -> None:
    with pytest.raises(SchemaError, match=r"250 characters") as caught:
        topic_name("s", "public", "t" * 241)

    assert caught.value.hint is not None
    assert "[topics] names" in caught.value.hint


def test_names_that_differ_only_in_point_and_underscore_collide() -> None:
    names = ["s.a.b_c", "s.a_b.c", "s.a.b", "s_a_b", "s.a.d", "s.a.d"]

    assert find_collisions(names) == [("s.a.b", "s_a_b"), ("s.a.b_c", "s.a_b.c")]
