"""What the families declare, against the catalog that a real server wrote."""

from __future__ import annotations

from collections import Counter

from gateway.pgtypes.catalog import CASTS, FUNCTIONS, OPERATORS, TYPES
from gateway.rowfilter.builtins import FAMILIES
from gateway.rowfilter.operators import OPERATIONS

KEYS = (
    {key for key, _ in FUNCTIONS.values()}
    | {key for key, _ in OPERATORS.values()}
    | set(CASTS.values())
)


def test_nothing_is_declared_twice() -> None:
    keys = [operation.name for family in FAMILIES for operation in family.operations]
    keys += [name for family in FAMILIES for name in family.parsers]

    assert [key for key, times in Counter(keys).items() if times > 1] == []


def test_every_function_that_is_declared_is_in_the_catalog() -> None:
    assert OPERATIONS.keys() - KEYS == set()


def test_types_are_named_as_in_the_catalog() -> None:
    names = {name for family in FAMILIES for name in (*family.parsers, *family.lengths)}

    assert names <= TYPES.keys()


def test_what_a_comparison_is_seen_through_never_raises() -> None:
    adapters = [adapter for operation in OPERATIONS.values() for adapter in operation.adapters]

    assert not any(adapter.can_raise for adapter in adapters if adapter is not None)
