"""What the areas declare, against the catalog that a real server wrote."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.pgtypes.catalog import CASTS, FUNCTIONS, OPERATORS, TYPES
from gateway.rowfilter import builtins
from gateway.rowfilter.operators import OPERATIONS

STRICT = {
    (key, strict)
    for overloads in FUNCTIONS.values()
    for _, key, _, strict, _, _ in overloads
    if "(" not in key  # a function in SQL is replaced by what it calls
}
KEYS = (
    {key for overloads in FUNCTIONS.values() for _, key, *_ in overloads}
    | {key for key, _ in OPERATORS.values()}
    | set(CASTS.values())
)


@pytest.mark.parametrize("major", [None, 14, 16, 18])
def test_no_function_is_declared_twice(major: int | None) -> None:
    keys = [operation.name for operation in builtins.operations(major)]
    keys += [key for key, _ in builtins.factories()]
    keys += [key for key, _ in builtins.element_factories()]

    assert [key for key, times in Counter(keys).items() if times > 1] == []


def test_every_function_that_is_declared_is_in_the_catalog() -> None:
    declared = {*OPERATIONS, *dict(builtins.factories()), *dict(builtins.element_factories())}

    assert declared - KEYS == set()


def test_a_function_is_strict_where_the_catalog_says_so() -> None:
    differ = {key for key, operation in OPERATIONS.items() if (key, not operation.strict) in STRICT}

    assert differ == set()


@pytest.mark.parametrize("major", [14, 15, 16, 17, 18])
def test_what_holds_for_any_version_is_there_for_each(major: int) -> None:
    assert {operation.name for operation in builtins.operations(major)} >= OPERATIONS.keys()


def test_types_are_named_as_in_the_catalog() -> None:
    names = [name for name, _ in builtins.parsers()]
    names += [name for name, _ in builtins.lengths()]
    names += [name for step, _ in builtins.steps() for name in step]

    assert set(names) <= TYPES.keys()
    assert Counter(name for name, _ in builtins.parsers()).most_common(1)[0][1] == 1


def test_what_a_comparison_is_seen_through_is_strict_and_never_raises() -> None:
    adapters = [
        adapter
        for operation in OPERATIONS.values()
        for adapter in operation.adapters
        if adapter is not None
    ]

    assert all(a.strict and not a.nullable and not a.can_raise for a in adapters)


def test_an_infix_operator_is_of_a_strict_function_of_two_arguments() -> None:
    infix = [operation for operation in OPERATIONS.values() if operation.infix is not None]

    assert all(operation.strict and not operation.nullable for operation in infix)
    assert all(operation.function(1, 1) is not None for operation in infix if operation.infix in
               ("==", "!=", "<", "<=", ">", ">="))  # fmt: skip
