"""Which subscriptions a group has, and what is wrong with groups."""

from __future__ import annotations

import pytest

from gateway.core.errors import ConfigError
from gateway.definitions.groups import only_group
from gateway.definitions.sql.parser import parse_definitions

DEFINITIONS = parse_definitions(
    "CREATE PUBLICATION p FOR TABLE t;"
    "CREATE SUBSCRIPTION a CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION b CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION c CONNECTION '' PUBLICATION p;"
)


def test_a_group_has_its_subscriptions_in_the_order_of_the_definitions() -> None:
    groups = {"one": ("c", "a"), "two": ("b",)}

    one, two = (only_group(DEFINITIONS, groups, group) for group in groups)

    assert [s.name for s in one.subscriptions] == ["a", "c"]
    assert [s.name for s in two.subscriptions] == ["b"]
    assert len({DEFINITIONS.fingerprint, one.fingerprint, two.fingerprint}) == 3


def test_without_a_group_everything_is_meant() -> None:
    assert only_group(DEFINITIONS, {}, None) is DEFINITIONS
    assert only_group(DEFINITIONS, {"one": ("a", "b", "c")}, None) is DEFINITIONS


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"one": ("a",), "two": ("b",)}, "subscription c is in none of the groups"),
        ({"one": ("a", "b"), "two": ("b", "c")}, "subscription b is in several groups"),
        ({"one": ("a", "b"), "two": ("c", "d")}, "subscription d is not defined"),
        ({"one": ("a", "b", "c"), "two": ()}, "names no subscription"),
    ],
)
def test_every_subscription_is_in_exactly_one_group(
    groups: dict[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        only_group(DEFINITIONS, groups, "two")
