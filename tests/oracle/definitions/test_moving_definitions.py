"""Definitions with filters over other tables: what is planned for them, and what is refused."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from gateway.core.errors import DefinitionError, FilterError, TransientError
from gateway.definitions.combine import make_plan
from gateway.definitions.masks import with_masks
from gateway.definitions.model import ALL_OPERATIONS, Plan
from gateway.definitions.sql.parser import parse_definitions
from gateway.routing.build.followed_tables import FollowedTables, MaskedSinceError, unfollowed
from gateway.routing.build.moving_tables import hidden_parts
from gateway.source.catalog.catalog import read_catalog
from gateway.source.catalog.resolver import DefinitionLookup
from tests.support.backends.servers import Connection, Database

pytestmark = pytest.mark.postgres
TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, tenant int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, note text);
CREATE TABLE tree (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF tree DEFAULT; ALTER TABLE leaf REPLICA IDENTITY NOTHING;
ALTER TABLE customers REPLICA IDENTITY FULL; ALTER TABLE orders REPLICA IDENTITY FULL;
"""
IN = "(customer IN (SELECT id FROM customers WHERE tenant = 1))"


def planned(connection: Connection, text: str, masks: Collection[str] = ()) -> Plan:
    definitions = with_masks(
        parse_definitions(text), dict.fromkeys(masks, "null"), None, defined=["s", "t"]
    )
    catalog = read_catalog(connection, definitions)
    plan = make_plan(definitions, catalog, prefix="gw", missing_identity="refuse")
    for error in unfollowed(plan).values():
        raise error
    return plan


def test_inner_tables_are_read_and_not_published_and_the_rest_is_refused_by_name(
    database: Database,
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        plan = planned(
            connection,
            f"CREATE PUBLICATION p FOR TABLE orders WHERE {IN};"
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;",
        )
        names = {plan.tables[oid].name: oid for oid in plan.tables}
        (publication,) = plan.server_publications
        assert set(publication.table_oids) == {names["customers"], names["orders"]}
        assert publication.operations == ALL_OPERATIONS
        assert {p.relation_oid for p in plan.publishes} == {names["orders"]}
        assert plan.copies[0].filters[0].text == (
            "(customer IN (SELECT id FROM ONLY public.customers WHERE ((tenant = 1))))"
        )

        for publications, options, reason in (
            (f"p FOR TABLE orders WHERE {IN}", "copy_data = false", "it needs copy_data = true"),
            (f"p FOR TABLE orders WHERE {IN}", "origin = none", "with origin = none"),
            (f"p FOR TABLE orders WHERE {IN}", "binary = true", "with binary = true"),
            (
                f"p FOR TABLE orders WHERE {IN} WITH (publish = 'insert, update, delete')",
                "",
                "must publish insert, update, delete and truncate",
            ),
            ("p FOR TABLE orders (customer, note) WHERE " + IN, "", "its key is not published"),
            (
                "p FOR TABLE orders WHERE (customer IN (SELECT id FROM tree))",
                "",
                "column id is not part of the replica identity of public.leaf, a partition of",
            ),
            (
                "p FOR TABLE orders WHERE (customer IN (SELECT id FROM customers WHERE 1 / tenant"
                " > 0))",
                "",
                "can fail on a row",
            ),
        ):
            options = f" WITH ({options})" if options else ""
            text = (
                f"CREATE PUBLICATION {publications};"
                f"CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p{options};"
            )
            with pytest.raises((DefinitionError, FilterError)) as found:
                planned(connection, text)
            assert reason in str(found.value), publications


def test_what_any_subscription_masks_of_a_partition_is_masked_in_its_tree(
    database: Database,
) -> None:
    with database.connect() as connection:
        connection.execute(
            f"{TABLES} CREATE TABLE bills (id int PRIMARY KEY, customer int, note text)"
            " PARTITION BY RANGE (id);"
            "CREATE TABLE low PARTITION OF bills FOR VALUES FROM (1) TO (9);"
            "ALTER TABLE bills REPLICA IDENTITY FULL;"
            "ALTER TABLE low REPLICA IDENTITY FULL".encode()
        )
        text = (
            f"CREATE PUBLICATION p FOR TABLE bills WHERE {IN} WITH (publish_via_partition_root);"
            "CREATE PUBLICATION q FOR TABLE low;"
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION t CONNECTION '' PUBLICATION q;"
        )
        for name, is_hidden in (("customer", True), ("note", False)):
            plan = planned(connection, text, [f"t.public.low.{name}"])
            bills, customers = (
                next(oid for oid, table in plan.tables.items() if table.name == each)
                for each in ("bills", "customers")
            )
            assert plan.masked_columns == {(bills, name)}
            hidden = hidden_parts(plan)
            assert {each.table_oid for each in hidden.sets} == ({customers} if is_hidden else set())
            assert hidden.outer == ({bills} if is_hidden else set())
            followed = FollowedTables(planned(connection, text), {})
            if is_hidden:  # nothing may be stored any more of what was stored until now
                with pytest.raises(MaskedSinceError):
                    followed.moving.note_plan(plan)
            else:
                followed.moving.note_plan(plan)


def test_a_tree_that_is_a_partition_is_read_again_when_the_one_above_it_is_altered(
    database: Database,
) -> None:
    """DDL messages name the tree above a partition, also where that is a tree itself."""
    with database.connect() as connection:
        connection.execute(
            b"CREATE TABLE world (id int, area text, PRIMARY KEY (id, area))"
            b" PARTITION BY LIST (area);"
            b"CREATE TABLE eu PARTITION OF world FOR VALUES IN ('eu') PARTITION BY RANGE (id);"
            b"CREATE TABLE low PARTITION OF eu FOR VALUES FROM (1) TO (9);"
            b"CREATE TABLE orders (id int PRIMARY KEY, customer int);"
            b"ALTER TABLE orders REPLICA IDENTITY FULL"
        )
        plan = planned(
            connection,
            "CREATE PUBLICATION p FOR TABLE orders WHERE (customer IN (SELECT id FROM eu));"
            "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p",
        )
        (eu,) = (table for table in plan.tables.values() if table.name == "eu")
        followed = FollowedTables(plan, {})
        followed.following.unread.begin_reads()

        followed.moving.note_trees([eu.oid + 100_000])
        assert not followed.following.unread.awaits(eu.oid)
        followed.moving.note_trees(eu.ancestors)
        assert followed.following.unread.awaits(eu.oid)


@pytest.mark.parametrize(
    "meanwhile",
    [
        "ALTER TABLE orders RENAME customer TO client",
        "ALTER TABLE customers ALTER tenant TYPE bigint",
        "DROP TABLE customers",
    ],
)
def test_a_table_that_is_altered_while_the_catalog_is_read_has_it_read_again(
    database: Database, meanwhile: str
) -> None:
    definitions = parse_definitions(f"CREATE PUBLICATION p FOR TABLE orders WHERE {IN}")
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        lookup = DefinitionLookup(connection, definitions, {})
        with connection.transaction(force_rollback=True):
            publications = [lookup.define(each) for each in definitions.publications]
            assert lookup.tables(publications, ())
        connection.execute(meanwhile.encode())
        with pytest.raises(TransientError, match="while the catalog was read"):
            lookup.tables(publications, ())
