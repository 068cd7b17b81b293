"""Parts of topic names, and the identifiers that are read back from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.topic_names import topic_identifier, topic_part

PARTS = [
    ("orders", "orders"),
    ("my-orders_2", "my-orders_2"),
    ("a.b", "a-x002E-b"),
    ("a b", "a-x0020-b"),
    ("a-x", "a-x002Dx"),
    ("a-x002E-b", "a-x002Dx002E-b"),
    ("-é", "--x00E9-"),
    ("éx", "-x00E9-x"),
    ("é-x", "-x00E9--x002Dx"),
    ("a/b.c-x `é", "a-x002F-b-x002E-c-x002Dx-x0020--x0060--x00E9-"),
]


@pytest.mark.parametrize(("identifier", "part"), PARTS)
def test_an_identifier_becomes_a_part_of_a_topic_name_and_is_read_back(
    identifier: str, part: str
) -> None:
    assert topic_part(identifier) == part
    assert topic_identifier(part) == identifier


@given(st.text(st.characters(codec="utf-8"), min_size=1) | st.text("-x0aD.Ü", min_size=1))
def test_a_part_is_legal_and_no_two_identifiers_have_the_same(identifier: str) -> None:
    part = topic_part(identifier)

    assert all(one.isascii() and (one.isalnum() or one in "_-") for one in part)
    assert topic_identifier(part) == identifier


@given(st.from_regex(r"(-x[0-9A-F]{3,7}-|a)*", fullmatch=True))
def test_any_name_of_somebody_else_s_topic_can_be_shown(name: str) -> None:
    topic_identifier(name).encode()


@pytest.mark.parametrize("part", ["a-x110000-", "a-xD800-", "a-x0D800-b"])
def test_what_no_gateway_has_written_stays_as_it_is(part: str) -> None:
    assert topic_identifier(f"public.{part}") == f"public.{part}"
