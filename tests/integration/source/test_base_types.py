"""Names of base types under domains, as the catalog has them."""

from __future__ import annotations

import pytest

from gateway.source.catalog.tables import read_tables_by_oid
from tests.support.backends.servers import Database

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("postgres_major", [17], indirect=True)
def test_a_domain_has_the_name_of_the_base_type_under_it(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            """CREATE SCHEMA "Ext.x"; CREATE EXTENSION citext SCHEMA "Ext.x";
               CREATE EXTENSION hstore; CREATE DOMAIN code AS "Ext.x".citext;
               CREATE DOMAIN short AS code CHECK (value <> '');
               CREATE DOMAIN pairs AS hstore; CREATE DOMAIN price AS numeric(10,2);
               CREATE DOMAIN prices AS price[]; CREATE TYPE citext AS (a text);
               CREATE DOMAIN fake AS public.citext; CREATE TYPE mood AS ENUM ('ok');
               CREATE DOMAIN moods AS mood;
               CREATE TABLE of_domains(code code, short short, pairs pairs, price price,
                   codes short[], prices prices, all_pairs pairs[], fake fake, moods moods,
                   plain "Ext.x".citext, plain_array numeric(10,2)[], own citext);"""
        )
        (oid,) = connection.execute("SELECT 'of_domains'::regclass::oid").fetchone() or (0,)
        (table,) = read_tables_by_oid(connection, [oid]).values()

    assert {column.name: column.base_type_name for column in table.columns} == {
        "code": '"Ext.x".citext',
        "short": '"Ext.x".citext',
        "pairs": "public.hstore",
        "price": "numeric(10,2)",
        "codes": '"Ext.x".citext[]',
        "prices": "numeric(10,2)[]",
        "all_pairs": "public.hstore[]",
        **dict.fromkeys(("fake", "moods", "plain", "plain_array", "own"), ""),
    }
    named = {column.name: column.base_name for column in table.columns}
    assert (named["plain"], named["own"], named["fake"]) == ('"Ext.x".citext', "", "")
    elements = {column.name: column.element for column in table.columns}
    assert elements["all_pairs"] is not None
    assert (elements["all_pairs"].type_name, elements["all_pairs"].type_kind) == (
        "public.hstore",
        "b",
    )
