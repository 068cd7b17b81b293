"""What the file names may be a slip of the pen; what comes in by itself is a fault of its own."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.errors import DefinitionError
from gateway.definitions.model import Catalog, Publication, PublishedRelation
from gateway.definitions.sql.parser import parse_definitions
from gateway.definitions.tables.listed import Listed
from tests.unit.definitions.test_changes import TABLE

DEFINITIONS = parse_definitions(
    "CREATE PUBLICATION p FOR TABLE t, broken; CREATE PUBLICATION q FOR ALL TABLES;"
    "CREATE SUBSCRIPTION named CONNECTION '' PUBLICATION p, q;"
    "CREATE SUBSCRIPTION all_of_them CONNECTION '' PUBLICATION q;"
    "CREATE SUBSCRIPTION of_database CONNECTION '' PUBLICATION theirs;"
)
BROKEN = replace(TABLE, oid=2, name="broken")
LEAF = replace(TABLE, oid=3, name="leaf", ancestors=(1,))
OTHER = replace(TABLE, oid=4, name="other")


def publication(name: str, *oids: int, all_tables: bool = False) -> Publication:
    relations = tuple(PublishedRelation(oid, None, None, None) for oid in oids)
    return Publication(name, frozenset(), False, all_tables, (), relations)


CATALOG = Catalog(
    {table.oid: table for table in (TABLE, BROKEN, LEAF, OTHER)},
    {
        "p": publication("p", 1),
        "q": publication("q", all_tables=True),
        "theirs": publication("theirs", 1),
    },
    broken={("p", 2): DefinitionError("its column is gone")},
)


def test_a_table_is_listed_where_a_clause_of_the_file_names_it_or_its_tree() -> None:
    listed = Listed(DEFINITIONS, CATALOG)

    assert [listed.has("named", t) for t in (TABLE, BROKEN, LEAF)] == [True, True, True]
    assert not listed.has("named", OTHER)
    assert not any(listed.has("all_of_them", t) for t in (TABLE, BROKEN, LEAF, OTHER))
    assert not listed.has("of_database", TABLE)
