"""Filters with sub-selects as written: what they become, and what is refused where and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.errors import FilterError
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.subselects.formula import (
    AllOf,
    AnyOf,
    Formula,
    Plain,
    SetTest,
    SetTestKind,
    Subselect,
    columns_of,
    subselects_of,
)
from gateway.subselects.text.identity import check_identities
from gateway.subselects.text.normalise import has_subselect, normalise
from tests.unit.subselects.tables import ALL, CITIES, CUSTOMERS, ORDERS, lookup

IN, NOT_IN, NOT_EXISTS = SetTestKind.IN, SetTestKind.NOT_IN, SetTestKind.NOT_EXISTS
EU = Subselect(CITIES.oid, ("id",), Plain("country = 'EU'"))
EVERY_CUSTOMER = Subselect(CUSTOMERS.oid, ("id",), None)


def formula(where: str) -> Formula:
    return normalise(where, ORDERS, lookup)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("city IN (SELECT id FROM cities WHERE country = 'EU')", SetTest(IN, ("city",), EU)),
        (
            "NOT orders.city IN (SELECT DISTINCT c.id FROM public.cities c WHERE c.country = 'EU')",
            SetTest(NOT_IN, ("city",), EU),
        ),
        (
            "city <> ALL (SELECT id FROM cities WHERE country = 'EU')",
            SetTest(NOT_IN, ("city",), EU),
        ),
        (
            "EXISTS (SELECT FROM cities WHERE orders.city = id AND country = 'EU')"
            " AND NOT EXISTS (SELECT * FROM customers WHERE id = customer)",
            AllOf((SetTest(IN, ("city",), EU), SetTest(NOT_EXISTS, ("customer",), EVERY_CUSTOMER))),
        ),
        (
            "NOT (tenant = 1 AND code LIKE 'a' AND customer IN (SELECT id FROM customers))",
            AnyOf(
                (
                    Plain("NOT (tenant = 1 AND code LIKE 'a')"),
                    SetTest(NOT_IN, ("customer",), EVERY_CUSTOMER),
                )
            ),
        ),
        (
            "(tenant, customer) IN (SELECT tenant, id FROM customers)",
            SetTest(IN, ("customer", "tenant"), Subselect(CUSTOMERS.oid, ("id", "tenant"), None)),
        ),
        (
            "customer IN (SELECT id FROM customers WHERE tenant = orders.tenant)",
            SetTest(IN, ("customer", "tenant"), Subselect(CUSTOMERS.oid, ("id", "tenant"), None)),
        ),
    ],
)
def test_a_filter_becomes_tests_of_columns_against_sets(where: str, expected: Formula) -> None:
    assert formula(where) == expected
    assert has_subselect(where)


def test_equal_sub_selects_have_one_name_and_others_have_another() -> None:
    one, two = (
        next(subselects_of(formula(where)))
        for where in (
            "customer IN (SELECT id FROM customers WHERE tenant=1)",
            "code = 'x' OR EXISTS"
            " (SELECT 1 FROM customers k WHERE k.id = customer AND k.tenant = 1)",
        )
    )
    other = next(subselects_of(formula("customer IN (SELECT id FROM customers WHERE tenant = 2)")))

    assert one == two
    assert one.name == two.name != other.name


def test_nested_sub_selects_come_before_those_that_test_them() -> None:
    where = (
        "customer IN (SELECT id FROM customers WHERE name <> 'a' AND city IN"
        " (SELECT id FROM cities WHERE country = 'EU'))"
    )

    assert [each.table_oid for each in subselects_of(formula(where))] == [CITIES.oid, CUSTOMERS.oid]
    assert columns_of(formula(f"{where} AND code = 'a'")) == {"customer", "code"}


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("city IN (SELECT id FROM cities LIMIT §3)", "LIMIT"),
        ("city IN (SELECT id FROM cities OFFSET §1)", "OFFSET"),
        ("city IN (SELECT id FROM cities GROUP BY §id)", "GROUP BY"),
        ("city IN (SELECT id FROM cities HAVING §true)", "HAVING"),
        ("city IN (SELECT id FROM cities ORDER BY §id)", "ORDER BY"),
        ("city IN (SELECT DISTINCT ON (§country) id FROM cities)", "DISTINCT ON"),
        ("city IN (SELECT §max(id) FROM cities)", "aggregates"),
        ("EXISTS (SELECT §count(*) FROM cities WHERE id = city)", "aggregates"),
        ("city IN (SELECT §id + 1 FROM cities)", "only columns"),
        ("city IN (SELECT §c.id FROM cities c JOIN customers k ON true)", "joins"),
        ("city IN (SELECT id FROM cities, §customers)", "joins"),
        ("city IN (SELECT §id FROM cities UNION SELECT 1)", "UNION"),
        ("city IN (VALUES (§1))", "VALUES"),
        ("city IN (SELECT §1)", "no table"),
        ("§city IN (SELECT id FROM cities FOR UPDATE)", "FOR UPDATE"),
        ("city IN (§WITH w AS (SELECT 1) SELECT id FROM cities)", "WITH"),
        ("city IN (SELECT id FROM §nowhere)", 'relation "nowhere" does not exist'),
        ("city IN (SELECT id FROM §secret)", "row-level security"),
        ("city IN (SELECT id FROM §parent)", "inherit"),
        ("city IN (SELECT id FROM ONLY §tree)", "ONLY"),
        ("city IN (SELECT x FROM §cities AS c (x))", "alias"),
        ("city IN (SELECT §customer FROM cities)", "column customer is not of public.cities"),
        ("city IN (SELECT id FROM cities WHERE §orders.id > 3)", "outside the sub-select"),
        (
            "EXISTS (SELECT FROM cities WHERE id = city AND size < §tenant)",
            "outside the sub-select",
        ),
        ("EXISTS (SELECT FROM cities WHERE id = §city OR size = 1)", "outside the sub-select"),
        ("§EXISTS (SELECT FROM cities WHERE size = 1)", "does not depend on the row"),
        ("EXISTS (SELECT §nonsense FROM cities WHERE id = city)", "no table here"),
        ("city IN (SELECT id FROM cities c WHERE §cities.size = 1)", "no table here"),
        ("city IN (SELECT id FROM cities WHERE §cities IS NULL)", "whole row"),
        ("city IN (SELECT id FROM cities WHERE §xmin IS NULL)", "system column"),
        ("city = §(SELECT id FROM cities)", "operand of AND, OR and NOT"),
        ("(§city IN (SELECT id FROM cities)) IS NULL", "operand of AND, OR and NOT"),
        ("§city > ANY (SELECT id FROM cities)", "only IN"),
        ("§city + 1 IN (SELECT id FROM cities)", "only columns"),
        ("§(city, id) IN (SELECT id FROM cities)", "too few columns"),
        ("§(city, id) NOT IN (SELECT id, size FROM cities)", "NOT IN of several columns"),
        (
            "§customer NOT IN (SELECT id FROM customers WHERE tenant = orders.tenant)",
            "write NOT EXISTS",
        ),
        ("§code IN (SELECT id FROM cities)", "column code is text and column id is int4"),
        ("§code IN (SELECT loose FROM cities)", "not deterministic"),
        ("§doc IN (SELECT doc FROM orders)", "type json"),
        (
            "city IN (SELECT id FROM cities WHERE id IN (SELECT city FROM customers WHERE city IN"
            " (SELECT id FROM cities WHERE §id IN (SELECT id FROM cities))))",
            "more than 3 deep",
        ),
        (
            "city IN (SELECT id FROM cities WHERE EXISTS (SELECT FROM customers k"
            " WHERE k.city = cities.id AND k.id = §orders.customer))",
            "outside the sub-select",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_position(where: str, reason: str) -> None:
    before, after = where.split("§")
    definitions = f"-- é\nCREATE PUBLICATION p FOR TABLE orders WHERE ({before}{after});"

    with pytest.raises(FilterError) as refused:
        normalise(
            before + after,
            ORDERS,
            lookup,
            text=definitions,
            offset=definitions.index(before + after),
        )

    assert reason in refused.value.reason
    assert refused.value.position is not None
    place = refused.value.position - definitions.index(before + after)
    assert (before + after)[place:] == after


@pytest.mark.parametrize(
    ("outside", "inside", "reason"),
    [
        (("id",), ("id", "country"), "column city of public.orders"),
        (("id", "city"), ("id",), "column country of public.cities"),
        (("id", "city"), ("country",), "column id of public.cities"),
        (("id", "city"), (), "does not have a replica identity"),
        (("id", "city"), ("country", "id"), None),
    ],
)
def test_columns_that_decide_belong_to_the_replica_identity(
    outside: tuple[str, ...], inside: tuple[str, ...], reason: str | None
) -> None:
    where = "city IN (SELECT id FROM cities WHERE country = 'EU')"
    identity = ReplicaIdentity.DEFAULT
    orders = replace(ORDERS, replica_identity=identity, identity=outside)
    cities = replace(CITIES, replica_identity=identity, identity=inside)
    tables = {**ALL, cities.oid: cities}
    if reason is None:
        check_identities(formula(where), orders, tables, where)
        return

    with pytest.raises(FilterError) as refused:
        check_identities(formula(where), orders, tables, where)

    assert reason in refused.value.message


def test_a_table_without_a_key_is_refused() -> None:
    with pytest.raises(FilterError, match="has no key"):
        check_identities(
            formula("city IN (SELECT id FROM cities)"), replace(ORDERS, primary_key=()), ALL, None
        )
