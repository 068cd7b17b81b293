"""Which tables are pushed down, and when two filters are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.definitions.model import (
    ALL_OPERATIONS,
    FilterClause,
    Operation,
    Plan,
    Publish,
    ServerPublication,
    Table,
    TableCopy,
)
from gateway.definitions.sql.parser import parse_definitions
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.rowfilter.server.pushdown import LIMIT, adds_to, is_exact_on, push_down, pushed
from tests.unit.rowfilter.columns import COLUMNS

ROWS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
TABLE = Table(
    oid=1,
    schema="public",
    name="t",
    kind="r",
    columns=COLUMNS,
    replica_identity=ReplicaIdentity.DEFAULT,
    identity=("a", "c", "virtual"),
    primary_key=("a",),
)
DEFINED = parse_definitions(
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION s2 CONNECTION '' PUBLICATION p;"
)
NAMED = parse_definitions("CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION elsewhere;")


def take(name: str, *filters: str, operations: frozenset[Operation] = ALL_OPERATIONS) -> Publish:
    clauses = tuple(FilterClause("p", 1, text) for text in filters)
    return Publish(name, 1, 1, operations, {o: clauses for o in ROWS if o in operations}, None)


def plan(
    *publishes: Publish, table: Table = TABLE, copied: Sequence[Publish] | None = None
) -> Plan:
    copies = tuple(
        TableCopy(publish.subscription, 1, publish.filters[Operation.INSERT], ("a",))
        for publish in (publishes if copied is None else copied)
    )
    own = ServerPublication("gw_leaf", (1,), ALL_OPERATIONS, via_root=False)
    return Plan({1: table}, (), publishes, copies, (own,))


def test_the_union_has_each_filter_once() -> None:
    both = plan(take("s", "(a > 5)", "(c = 'x'::text)"), take("s2", "(a > 5)"))

    (own,) = push_down(both, DEFINED).server_publications

    assert own.filters == {1: ("(a > 5)", "(c = 'x'::text)")}


def test_a_table_without_filters_is_not_spoken_of() -> None:
    assert pushed(plan(take("s")), DEFINED) == {}


WITHOUT_DELETES = ALL_OPERATIONS - {Operation.DELETE}
S = take("s", "(a > 5)")
OTHERWISE = replace(
    S, filters={**S.filters, Operation.DELETE: take("s", "(a > 6)").filters[ROWS[2]]}
)


@pytest.mark.parametrize(
    ("planned", "because"),
    [
        (plan(S, take("s2")), "subscription s2 receives all its rows"),
        (plan(S, take("s2", "(a > 1)"), copied=[S]), "subscription s2 does not copy it"),
        (plan(S, copied=[take("s", "(a > 1)")]), "differently"),
        (plan(OTHERWISE, copied=[S]), "differently"),
        (
            plan(replace(take("s", "(a > 5)", operations=WITHOUT_DELETES))),
            "does not publish inserts",
        ),
        (plan(take("s", "(b > 5)")), "columns outside the replica identity"),
        (plan(take("s", "((10 / a) > 5)")), "can fail on a row"),
        (plan(take("s", "(c ~ 'x'::text)")), "not evaluated by the gateway"),
        (plan(S, table=replace(TABLE, ancestors=(2,))), "it is a partition"),
        (plan(take("s", *(f"(a = {n})" for n in range(LIMIT + 1)))), f"more than {LIMIT}"),
    ],
)
def test_what_could_make_a_difference_is_not_pushed_down(planned: Plan, because: str) -> None:
    found = pushed(planned, DEFINED)[1]

    assert isinstance(found, str)
    assert because in found
    assert push_down(planned, DEFINED).server_publications[0].filters == {}


def test_a_publication_of_the_database_is_not_pushed_down() -> None:
    assert pushed(plan(S), NAMED) == {1: "its publication can be altered in the database"}


def test_under_replica_identity_full_any_column_counts() -> None:
    full = replace(
        TABLE, replica_identity=ReplicaIdentity.FULL, identity=tuple(c.name for c in COLUMNS)
    )

    assert pushed(plan(take("s", "(b > 5)"), table=full), DEFINED) == {1: ("(b > 5)",)}


@pytest.mark.parametrize(
    ("text", "filters", "adds", "differs"),
    [
        ("((a > 5) OR (a < 1))", ["(a < 1)", "(a > 5)"], False, False),
        ("(((a > 5) OR (a < 1)) OR (a = 3))", ["((a < 1) OR (a = 3))"], False, True),
        ("(a > 5)", ["(a > 5)", "(a < 1)"], True, True),
        (
            "(c = ANY (ARRAY[('x'::character varying)::text, ('y'::character varying)::text]))",
            ["(c = ANY ((ARRAY['x'::character varying, 'y'::character varying])::text[]))"],
            False,
            False,
        ),
        ("(j IS DOCUMENT)", ["(a > 5)"], True, True),
    ],
    ids=["same", "more there", "more wanted", "another print", "not understood"],
)
def test_filters_are_compared_by_what_they_say(
    text: str, filters: list[str], adds: bool, differs: bool
) -> None:
    assert adds_to(text, filters, COLUMNS, or_leaves=False) is adds
    assert adds_to(text, filters, COLUMNS, or_leaves=True) is differs


@pytest.mark.parametrize(
    ("version", "exact"),
    [(140024, False), (150012, False), (150013, True), (160008, False), (160009, True),
     (170004, False), (170005, True), (180000, True), (190000, True)],
)  # fmt: skip
def test_releases_that_lose_rows_at_an_alteration_are_left_alone(version: int, exact: bool) -> None:
    assert is_exact_on(version) is exact
