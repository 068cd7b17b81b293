"""What the stream tells of publications, message by message, and the catalog that follows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.definitions.ddl_messages import UnbelievedError
from gateway.definitions.model import Catalog, Operation, Publication, PublishedRelation, Table
from gateway.definitions.told import as_told, hear
from gateway.pgoutput.messages import ReplicaIdentity
from tests.unit.definitions.test_changes import column

OF_P: list[list[Any]] = [[1, "(a > 5)", None], [2, None, ["a"]]]


def message(
    altered: dict[str, list[Any]] | None = None,
    parents: list[list[int]] | None = None,
    **tables: list[list[Any]],
) -> bytes:
    said = {
        "altered": {"publications": [], "tables": [], "trees": [], **(altered or {})},
        "publications": {
            name: {
                "operations": ["insert", "delete"],
                "all_tables": False,
                "via_root": True,
                "generated": False,
                "schemas": [],
                "tables": listed,
            }
            for name, listed in tables.items()
        },
        "parents": parents or [],
    }
    return json.dumps(said).encode()


def filters(publication: Publication) -> dict[int, str | None]:
    return {relation.table_oid: relation.where for relation in publication.relations}


def test_the_first_message_says_everything() -> None:
    told = hear(None, message(p=OF_P, parents=[[1, 9]]))
    assert told.parents == {1: 9}
    assert told.publications["p"] == Publication(
        name="p",
        operations=frozenset({Operation.INSERT, Operation.DELETE}),
        via_root=True,
        all_tables=False,
        schemas=(),
        relations=(
            PublishedRelation(1, "(a > 5)", None, None),
            PublishedRelation(2, None, ("a",), None),
        ),
    )


def test_those_that_follow_say_only_what_they_have_altered() -> None:
    first = hear(None, message(p=OF_P, q=[[1, "(a > 5)", None]]))
    # Of a transaction that has not seen how q was altered meanwhile.
    second = hear(first, message({"publications": ["q"]}, p=OF_P, q=[[1, "(a > 6)", None]]))
    third = hear(second, message({"publications": ["p"]}, p=[], q=[[1, "(a > 5)", None]]))
    assert filters(third.publications["p"]) == {}
    assert filters(third.publications["q"]) == {1: "(a > 6)"}
    assert "p" not in hear(third, message({"publications": ["p"]})).publications


def test_a_column_that_is_renamed_is_called_otherwise_in_the_filters_of_its_table_alone() -> None:
    first = hear(None, message(p=[[1, "(a > 5)", None], [2, "(a > 7)", None]]))
    renamed = message({"tables": [1]}, p=[[1, "(b > 5)", None], [2, "(c > 7)", None]])
    assert filters(hear(first, renamed).publications["p"]) == {1: "(b > 5)", 2: "(a > 7)"}


def test_trees_are_told_by_their_parents() -> None:
    first = hear(None, message(parents=[[1, 8], [2, 9]]))
    assert hear(first, message({"trees": [8]}, parents=[[3, 9]])).parents == {2: 9}
    moved = hear(first, message({"trees": [9]}, parents=[[1, 9], [2, 9]]))
    assert moved.parents == {1: 9, 2: 9}


def table(oid: int, kind: str = "r", ancestors: tuple[int, ...] = ()) -> Table:
    default = ReplicaIdentity.DEFAULT
    return Table(oid, "public", f"t{oid}", kind, (column("a", 1),), default, (), (), ancestors)


def test_the_catalog_is_as_it_was_told_and_has_the_tables_that_are_gone() -> None:
    now = Publication("p", frozenset(Operation), False, True, (), ())
    catalog = Catalog({8: table(8, "p"), 1: table(1), 2: table(2, ancestors=(8,))}, {"p": now})
    told = hear(None, message(p=[*OF_P, [3, None, None], [4, None, None]], parents=[[1, 8]]))
    found = as_told(catalog, told, {3: table(3)})
    assert filters(found.publications["p"]) == {1: "(a > 5)", 2: None, 3: None}
    assert {oid: t.ancestors for oid, t in found.tables.items()} == {1: (8,), 2: (), 3: (), 8: ()}
    assert found.tables[8].leaves == (1,)


def test_a_filter_on_a_column_that_is_gone_is_as_of_now() -> None:
    relation = PublishedRelation(1, "(a < 9)", None, None)
    now = Publication("p", frozenset(Operation), False, False, (), (relation,))
    told = hear(None, message(p=[[1, "(gone > 5)", None]]))
    found = as_told(Catalog({1: table(1)}, {"p": now}), told, {})
    assert filters(found.publications["p"]) == {1: "(a < 9)"}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"publications": 1}', b"\xff"])
def test_a_message_that_does_not_read_is_an_error(content: bytes) -> None:
    with pytest.raises(UnbelievedError, match="does not read"):
        hear(None, content)
