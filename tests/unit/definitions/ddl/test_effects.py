"""What the stream tells of publications, message by message, and the catalog that follows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.lsn import Lsn
from gateway.definitions.ddl.alterations import read_alteration
from gateway.definitions.ddl.authentication import UntrustedMessageError
from gateway.definitions.ddl.effects import DdlState, apply_ddl, catalog_at, concerns, untouched
from gateway.definitions.model import (
    Catalog,
    FilterClause,
    Operation,
    Plan,
    Publication,
    Publish,
    PublishedRelation,
    Shape,
    SubscriptionDefinition,
    Table,
)
from gateway.pgoutput.messages import ReplicaIdentity
from tests.unit.definitions.test_changes import column

OF_P: list[list[Any]] = [[1, "(a > 5)", None], [2, None, ["a"]]]
NAMES = ("p", "q")
SINCE = Lsn(16)
LATE, EARLY = "0/10", "0/F"


def message(
    altered: dict[str, list[Any]] | None = None,
    parents: list[list[int]] | None = None,
    as_of: str | None = LATE,
    **tables: list[list[Any]],
) -> dict[str, Any]:
    nothing: dict[str, list[Any]] = {
        **{"publications": [], "tables": [], "trees": [], "types": [], "collated": []}
    }
    return {
        "altered": {**nothing, **(altered or {})},
        "as_of": as_of,
        "unsaid": False,
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


def heard(*messages: dict[str, Any]) -> DdlState:
    ddl_state = DdlState()
    for said in messages:
        ddl_state = apply_ddl(ddl_state, read_alteration(json.dumps(said).encode(), NAMES), SINCE)
    return ddl_state


def filters(publication: Publication) -> dict[int, str | None]:
    return {relation.table_oid: relation.where for relation in publication.relations}


def all_filters(ddl_state: DdlState) -> dict[str, dict[int, str | None]]:
    return {name: filters(publication) for name, publication in ddl_state.publications.items()}


def test_a_message_that_has_seen_all_before_the_stream_says_everything() -> None:
    ddl_state = heard(message(p=OF_P, parents=[[1, 9]]))
    assert ddl_state.has_base
    assert ddl_state.parents == {1: 9}
    assert ddl_state.publications["p"] == Publication(
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
    assert heard(message(other=OF_P)).publications == {}


@pytest.mark.parametrize("as_of", [EARLY, None])
def test_one_that_has_not_says_what_it_has_altered(as_of: str | None) -> None:
    old = message(
        {"publications": ["q"], "trees": [8]},
        [[1, 8], [2, 9]],
        as_of,
        p=[[1, "(a > 1)", None]],
        q=[[1, "(a > 2)", None]],
    )
    assert all_filters(heard(old)) == {"q": {1: "(a > 2)"}}
    assert heard(old).parents == {1: 8}
    # The first that has seen all is the base, but for what messages before were about.
    base = message({}, [[3, 8], [2, 9]], p=[[1, "(a > 3)", None]], q=[])
    assert all_filters(heard(old, base)) == {"p": {1: "(a > 3)"}, "q": {1: "(a > 2)"}}
    assert heard(old, base).parents == {1: 8, 2: 9}


def test_those_that_follow_say_only_what_they_have_altered() -> None:
    first = message(p=OF_P, q=[[1, "(a > 5)", None]])
    # Of a transaction that has not seen how q was altered meanwhile.
    second = message({"publications": ["q"]}, p=OF_P, q=[[1, "(a > 6)", None]])
    third = message({"publications": ["p"]}, p=[], q=[[1, "(a > 5)", None]])
    assert all_filters(heard(first, second, third)) == {"p": {}, "q": {1: "(a > 6)"}}
    dropped = heard(first, second, third, message({"publications": ["p"]}))
    assert dropped.publications.keys() == {"q"}


def test_what_is_not_said_is_as_in_the_catalog() -> None:
    base = message({}, [[1, 8], [2, 9]], p=OF_P, q=[[3, None, None]])
    unsaid = message({"publications": ["q"], "trees": [9]}, as_of=None) | {"unsaid": True}
    ddl_state = heard(base, unsaid)
    assert ddl_state.publications.keys() == {"p"}
    assert (ddl_state.parents, ddl_state.knows(8), ddl_state.knows(9)) == ({1: 8}, True, False)
    of_a_table = message({"tables": [2]}, as_of=None) | {"unsaid": True}
    assert heard(base, of_a_table).publications.keys() == {"q"}


def test_a_column_that_is_renamed_is_called_otherwise_in_the_filters_of_its_table_alone() -> None:
    first = message(p=[[1, "(a > 5)", None], [2, "(a > 7)", None]])
    renamed = message({"tables": [1]}, p=[[1, "(b > 5)", None], [2, "(c > 7)", None]])
    assert all_filters(heard(first, renamed)) == {"p": {1: "(b > 5)", 2: "(a > 7)"}}


def test_a_table_that_has_lost_its_place_with_a_column_is_not_in_the_publication() -> None:
    first = message(p=[[1, "(a > 5)", None], [2, None, None]], q=[[1, None, None]])
    dropped = message({"tables": [1]}, as_of=None, q=[[1, None, None]])
    assert all_filters(heard(first, dropped)) == {"p": {2: None}, "q": {1: None}}


def test_trees_are_told_by_their_parents() -> None:
    first = message(parents=[[1, 8], [2, 9]])
    assert heard(first, message({"trees": [8]}, [[3, 9]])).parents == {2: 9}
    moved = heard(first, message({"trees": [9]}, [[1, 9], [2, 9]]))
    assert moved.parents == {1: 9, 2: 9}


def table(oid: int, kind: str = "r", ancestors: tuple[int, ...] = ()) -> Table:
    default = ReplicaIdentity.DEFAULT
    return Table(oid, "public", f"t{oid}", kind, (column("a", 1),), default, (), (), ancestors)


def test_the_catalog_is_as_it_was_told_and_has_the_tables_that_are_gone() -> None:
    now = Publication("p", frozenset(Operation), False, True, (), ())
    catalog = Catalog({8: table(8, "p"), 1: table(1), 2: table(2, ancestors=(8,))}, {"p": now})
    ddl_state = heard(message({}, [[1, 8]], p=[*OF_P, [3, None, None], [4, None, None]]))
    found = catalog_at(catalog, ddl_state, {3: table(3)})
    assert filters(found.publications["p"]) == {1: "(a > 5)", 2: None, 3: None}
    assert {oid: t.ancestors for oid, t in found.tables.items()} == {1: (8,), 2: (), 3: (), 8: ()}
    assert found.tables[8].leaves == (1,)


def test_without_a_base_the_catalog_says_what_no_message_has_said() -> None:
    now = Publication("p", frozenset(Operation), False, True, (), ())
    catalog = Catalog(
        {8: table(8, "p"), 1: table(1), 2: table(2, ancestors=(8,)), 5: table(5, ancestors=(9,))},
        {"p": now, "q": now},
    )
    said = message({"publications": ["p"], "trees": [8]}, [[1, 8]], EARLY, p=OF_P)
    found = catalog_at(catalog, heard(said), {9: table(9, "p")})
    assert filters(found.publications["p"]) == {1: "(a > 5)", 2: None}
    assert found.publications["q"] == now
    assert {oid: t.ancestors for oid, t in found.tables.items()} == {
        **{1: (8,), 2: (), 5: (9,), 8: (), 9: ()}
    }


@pytest.mark.parametrize(
    ("where", "refused"), [("(gone > 5)", frozenset()), ("(a > 5)", frozenset({"(a > 5)"}))]
)
def test_a_filter_that_is_refused_or_has_a_column_no_more_is_as_of_now(
    where: str, refused: frozenset[str]
) -> None:
    relation = PublishedRelation(1, "(a < 9)", None, None)
    now = Publication("p", frozenset(Operation), False, False, (), (relation,))
    ddl_state = replace(heard(message(p=[[1, where, None], [2, "(a > 1)", None]])), refused=refused)
    found = catalog_at(Catalog({1: table(1), 2: table(2)}, {"p": now}), ddl_state, {})
    assert filters(found.publications["p"]) == {1: "(a < 9)", 2: "(a > 1)"}


def publish(
    where: str | None, publication: str = "p", oid: int = 1, subscription: str = "s"
) -> Publish:
    clauses = () if where is None else (FilterClause(publication, oid, where),)
    insert = frozenset({Operation.INSERT})
    return Publish(subscription, oid, oid, insert, {Operation.INSERT: clauses}, None)


def plan(*publishes: Publish) -> Plan:
    tables = {p.relation_oid: table(p.relation_oid) for p in publishes}
    subscriptions = (SubscriptionDefinition("s", ("p", "q")), SubscriptionDefinition("r", ("q",)))
    return Plan(tables, subscriptions, publishes, (), ())


@pytest.mark.parametrize(
    ("altered", "now", "stays"),
    [
        pytest.param({}, publish("(a > 6)"), True, id="nothing of these"),
        pytest.param({"publications": ["q"]}, publish("(a > 6)"), True, id="one without the table"),
        pytest.param({"publications": ["p"]}, publish("(a > 6)"), False, id="its own"),
        pytest.param({"publications": ["q"]}, publish("(a > 6)", "q"), False, id="one with it now"),
        pytest.param({"publications": ["q"]}, publish(None), False, id="nobody knows whose"),
        pytest.param({"tables": [1]}, publish("(a > 6)"), False, id="its table"),
        pytest.param({"tables": [2]}, publish("(a > 6)"), True, id="another table"),
        pytest.param({}, None, True, id="taken out"),
        pytest.param({"publications": ["p"]}, None, False, id="taken out of its own"),
        pytest.param({"publications": ["p", "q"]}, publish("(a > 6)"), False, id="all of them"),
        pytest.param({}, publish("(a > 5)"), False, id="as it was"),
    ],
)
def test_without_a_base_what_no_message_was_about_stays_as_it_was(
    altered: dict[str, list[Any]], now: Publish | None, stays: bool
) -> None:
    before = plan(publish("(a > 5)"))
    after = plan(*([] if now is None else [now]))
    ddl_state = heard(message(altered, as_of=EARLY))
    assert untouched(before, after, ddl_state, ()) == ({("s", 1)} if stays else set())
    assert untouched(before, after, heard(message(altered)), ()) == set()


def test_a_table_stays_in_one_subscription_while_it_is_altered_in_another() -> None:
    before = plan(publish("(a > 5)"), publish("(a > 5)", "q", subscription="r"))
    after = plan(publish("(a > 6)"), publish("(a > 6)", "q", subscription="r"))
    ddl_state = heard(message({"publications": ["p"]}, as_of=EARLY))
    assert untouched(before, after, ddl_state, ()) == {("r", 1)}


def test_a_table_that_was_dropped_stays_until_the_publication_that_had_it_is_altered() -> None:
    before, after = plan(publish(None)), plan()
    ddl_state = heard(message({"publications": ["q"]}, as_of=EARLY))
    assert untouched(before, after, ddl_state, {1}) == {("s", 1)}
    ddl_state = heard(message({"publications": ["p", "q"]}, as_of=EARLY))
    assert untouched(before, after, ddl_state, {1}) == set()


@pytest.mark.parametrize(
    ("altered", "concerned"),
    [
        ({"publications": ["p"]}, True),
        ({"publications": ["other"]}, False),
        ({"tables": [1]}, True),
        ({"tables": [7]}, False),
        ({"collated": [1]}, True),
        ({"trees": [1]}, True),
        ({"trees": [3]}, True),
        ({"trees": [7]}, False),
        ({"types": [23]}, True),
        ({"types": [16999]}, True),
        ({"types": [17000]}, False),
        ({}, False),
    ],
)
def test_what_concerns_no_subscription_is_not_looked_at(
    altered: dict[str, list[Any]], concerned: bool
) -> None:
    now = plan(publish("(a > 5)"))
    shape = Shape({}, {}, {1: {"16999": ("red",), "collation": ("1",)}})
    now = replace(now, tables={1: replace(now.tables[1], shape=shape)})
    said = message(altered, [[2, 1], [3, 2], [7, 6]])
    last = read_alteration(json.dumps(said).encode(), NAMES)
    assert concerns(now, last, heard(said)) is concerned
    # Nobody knows what a tree is part of, or what a type that is not described is made of.
    assert concerns(now, last, DdlState()) is (concerned or "trees" in altered)
    plain = replace(now.tables[1], shape=None, columns=(replace(column("a", 1), type_oid=16400),))
    unknown = replace(now, tables={1: plain})
    assert concerns(unknown, last, heard(said)) is (concerned or "types" in altered)


def test_messages_of_an_earlier_release_say_what_they_have_altered() -> None:
    said = message({"publications": ["p"]}, p=OF_P, q=OF_P)
    del said["as_of"], said["unsaid"], said["altered"]["types"], said["altered"]["collated"]
    assert heard(said).publications.keys() == {"p"}
    said["altered"]["publications"] = []
    earlier = read_alteration(json.dumps(said).encode(), NAMES)
    assert concerns(plan(), earlier, DdlState())


GOOD = message({"tables": [1], "types": [2], "trees": [3]}, [[1, 2]], p=OF_P)
WRONG = ("[1e400]", "[NaN]", "[-1]", "[4294967296]", "[true]", '["x"]', "null")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"publications": 1}', b"\xff", b"[" * 200_000, b"1e400"),
        *(
            json.dumps(GOOD).replace(old, new, 1).encode()
            for old in ("[1]", "[2]", "[3]", "[[1, 2]]", "[[1, ")
            for new in WRONG
            if (old, new) != ("[2]", "null")
        ),
        json.dumps(GOOD | {"unsaid": 1}).encode(),
        json.dumps(GOOD | {"as_of": 1}).encode(),
        json.dumps(GOOD | {"as_of": "x"}).encode(),
        json.dumps(GOOD).replace("(a > 5)", "\\ud800").encode(),
        b'{"altered": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_message_that_does_not_read_is_an_error(content: bytes) -> None:
    with pytest.raises(UntrustedMessageError, match="cannot be parsed"):
        read_alteration(content, NAMES)
