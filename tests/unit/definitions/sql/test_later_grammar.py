"""Definitions in the grammar of PostgreSQL 19, which are refused by name."""

from __future__ import annotations

import pytest

from gateway.core.errors import DefinitionError
from gateway.definitions.membership import Membership
from gateway.definitions.model import ALL_OPERATIONS, Catalog, Publication, Table
from gateway.definitions.sql.parser import parse_definitions
from gateway.pgoutput.messages import ReplicaIdentity


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE t);", "FOR ALL TABLES EXCEPT"),
        ("CREATE PUBLICATION p FOR ALL SEQUENCES;", "not supported: FOR ALL SEQUENCES"),
        ("CREATE PUBLICATION p FOR ALL TABLES, ALL SEQUENCES;", "FOR ALL SEQUENCES"),
        ("CREATE PUBLICATION p FOR TABLE a, ;", 'syntax error at or near ";"'),
        (
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (wal_receiver_timeout = '1s')",
            'subscription parameter "wal_receiver_timeout" is not supported',
        ),
        (
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (retain_dead_tuples = true)",
            'subscription parameter "retain_dead_tuples" is not supported',
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(text: str, refusal: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        parse_definitions(text)

    assert refusal in refused.value.message


def table(oid: int, kind: str = "r", ancestors: tuple[int, ...] = ()) -> Table:
    return Table(
        oid=oid,
        schema="public",
        name=f"t{oid}",
        kind=kind,
        columns=(),
        replica_identity=ReplicaIdentity.DEFAULT,
        identity=(),
        primary_key=(),
        ancestors=ancestors,
        leaves=(3,) if kind == "p" else (),
        may_toast=frozenset(),
    )


def test_what_all_tables_excepts_is_not_published_nor_are_its_partitions() -> None:
    tables = {1: table(1), 2: table(2, "p"), 3: table(3, ancestors=(2,)), 4: table(4)}
    publication = Publication("p", ALL_OPERATIONS, False, True, (), (), excepted=frozenset({1, 2}))
    members = Membership(Catalog(tables, {"p": publication}))

    taken = {oid for oid in tables if members.entry([publication], tables[oid]) is not None}

    assert taken == {4}
    assert [one.oid for one in members.copied([publication])] == [4]
