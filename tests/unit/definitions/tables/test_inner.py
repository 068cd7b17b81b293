"""A tree of a sub-select that is another one, though it has the same partitions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.definitions.model import Shape, Table
from gateway.definitions.tables.inner import (
    as_tree_of,
    describe_inner,
    has_other_partitions,
    is_other_tree,
    why_other,
)
from tests.unit.definitions.test_changes import TABLE

NAMED, FOREIGN = 2, 3


def tree(*, named: int = 20, foreign: int = 30, by_tree: tuple[int, ...] = (FOREIGN,)) -> Table:
    """A tree of two leaves that have these files."""
    shape = Shape({NAMED: named, FOREIGN: foreign}, {}, {})
    return replace(
        TABLE, kind="p", leaves=(NAMED, FOREIGN), tree_digest="x", by_tree=by_tree, shape=shape
    )


@pytest.mark.parametrize(
    ("before", "now", "is_other"),
    [
        (tree(), tree(), False),
        (tree(), tree(foreign=31), True),
        (tree(), tree(named=21), False),  # PostgreSQL refuses SET UNLOGGED: a TRUNCATE or the like
        (tree(), tree(by_tree=()), False),
        (tree(), tree(foreign=31, by_tree=()), True),  # the owner has added it since
        (tree(by_tree=()), tree(foreign=31), True),
        (tree(), replace(tree(), leaves=(NAMED,)), True),
        (tree(), replace(tree(), tree_digest="y"), True),
    ],
)
def test_a_leaf_with_another_file_makes_another_tree_unless_a_publication_names_it(
    before: Table, now: Table, is_other: bool
) -> None:
    text = describe_inner(before, ["a"])

    assert why_other(text, now, ["a"]) is None
    assert has_other_partitions(before, now) == is_other == is_other_tree(text, now)
    assert not has_other_partitions(as_tree_of(before, now), now), "it is read once"
    assert not is_other_tree(describe_inner(as_tree_of(before, now), ["a"]), now)


def partition(*, file: int = 30, by_tree: tuple[int, ...] = (FOREIGN,), digest: str = "x") -> Table:
    """A leaf that a sub-select names itself."""
    return replace(
        TABLE,
        oid=FOREIGN,
        ancestors=(1,),
        tree_digest=digest,
        by_tree=by_tree,
        shape=Shape({FOREIGN: file}, {}, {}),
    )


@pytest.mark.parametrize(
    ("before", "now", "is_other"),
    [
        (partition(), partition(), False),
        (partition(), partition(file=31), True),
        (partition(by_tree=()), partition(by_tree=(), file=31), False),
        (partition(), partition(digest="y"), True),
    ],
)
def test_a_partition_that_is_read_by_its_own_name_is_another_one_likewise(
    before: Table, now: Table, is_other: bool
) -> None:
    text = describe_inner(before, ["a"])

    assert why_other(text, now, ["a"]) is None
    assert has_other_partitions(before, now) == is_other == is_other_tree(text, now)
    assert not is_other_tree(describe_inner(as_tree_of(before, now), ["a"]), now)
    assert is_other_tree(json.dumps(json.loads(text)[:3]), now), "by another version"


@pytest.mark.parametrize("rest", [[], [[NAMED, FOREIGN], "x"], [1, "x", []], [[NAMED], "x", [[]]]])
def test_a_description_by_another_version_is_one_of_another_tree(rest: list[object]) -> None:
    columns, shape, ancestors, *_ = json.loads(describe_inner(tree(), ["a"]))

    assert is_other_tree(json.dumps([columns, shape, ancestors, *rest]), tree())
