"""A plan of many tables: the work grows with them, not with their square."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from gateway.definitions.combine import make_plan
from gateway.definitions.model import ALL_OPERATIONS, Catalog, Column, Publication, Table
from gateway.definitions.sql.parser import parse_definitions
from gateway.pgoutput.messages import ReplicaIdentity

ID = Column("id", 1, 23, -1, "integer", 23, -1, "b", False, "", None, None)


@pytest.mark.parametrize("schemas", [(), ("public",)], ids=["all-tables", "schema"])
def test_calls_grow_with_the_tables(schemas: tuple[str, ...]) -> None:
    few, many = (_calls(count, schemas) for count in (100, 400))

    assert many < 5 * few


def _calls(count: int, schemas: tuple[str, ...]) -> int:
    """How many Python functions are called to make a plan of `count` tables."""
    tables = {
        oid: Table(oid, "public", f"t{oid}", "r", (ID,), ReplicaIdentity.DEFAULT, ("id",), ("id",))
        for oid in range(1, count + 1)
    }
    published = Publication("p", ALL_OPERATIONS, False, not schemas, schemas, ())
    definitions = parse_definitions("CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;")
    calls = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(see)
    try:
        plan = make_plan(
            definitions, Catalog(tables, {"p": published}), prefix="s", missing_identity="refuse"
        )
    finally:
        sys.setprofile(None)
    assert len(plan.copies) == count
    return calls
