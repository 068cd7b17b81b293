"""Which type a column has that the stream and the catalog show differently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.definitions.model import Column, Element, Plan, Table
from gateway.pgoutput.messages import Type
from gateway.pgtypes.binary import TypeInfo
from gateway.routing.build.projections import Projections
from tests.support.gateway.routing_scene import T1, column, publish, relation_of, table

INT4, INT8, TEXT, FLOAT8, NUMERIC = 23, 20, 25, 701, 1700
DATE, TIMESTAMP, UUID, BYTEA, JSONB = 1082, 1114, 2950, 17, 3802
LEAF = T1 + 1


class CatalogOfNow:
    """What the source says now: of t1, and of every type."""

    def __init__(self, now: Table | None) -> None:
        self._now = now

    def table(self, oid: int) -> Table | None:
        assert oid == T1
        return self._now

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column | None:
        return column(name, 0, type_oid)

    def type_info(self, oid: int) -> TypeInfo:
        raise AssertionError(oid)


def _t1(type_oid: int) -> Table:
    columns = (column("a", 1), column("n", 2, type_oid))
    return table(T1, "t1", columns)


@pytest.mark.parametrize("through_a_leaf", [False, True])
@pytest.mark.parametrize(
    ("planned", "now", "announced", "published"),
    [
        (INT4, INT8, INT4, INT8),  # it got wider since: the rows are to have that type
        (INT8, INT4, INT8, INT8),  # it got narrower since: the rows do not fit into it
        (INT4, TEXT, INT4, TEXT),
        (INT4, FLOAT8, INT8, FLOAT8),  # neither is the wider one of the other
        (NUMERIC, UUID, NUMERIC, NUMERIC),  # the text of the one is no value of the other
        (DATE, TIMESTAMP, DATE, DATE),
        (INT4, DATE, INT4, INT4),
        (BYTEA, JSONB, BYTEA, BYTEA),
        (TIMESTAMP, TEXT, TIMESTAMP, TEXT),
        (INT4, None, INT8, INT8),
        (INT8, None, INT4, INT8),
        (INT4, None, NUMERIC, NUMERIC),
        (INT4, None, INT4, INT4),
    ],
)
def test_a_column_has_the_type_of_the_catalog_unless_its_rows_do_not_fit(
    planned: int, now: int | None, announced: int, published: int, through_a_leaf: bool
) -> None:
    shown = _t1(planned if now is None else now)
    plan = Plan({T1: shown}, (), (), (), ())
    projections = Projections(plan, CatalogOfNow(None if now is None else _t1(now)))
    relation = relation_of(_t1(announced), LEAF if through_a_leaf else T1)
    taken = publish(relation=LEAF, target=T1) if through_a_leaf else publish()

    found = projections.of_relation(taken, relation)

    assert [c.name for c in found.columns] == ["a", "n"]
    assert found.columns[1].base_type_oid == published


class WithoutTypes(CatalogOfNow):
    """A source whose types were dropped."""

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column | None:
        return None


def test_an_array_whose_column_and_type_were_dropped_is_text() -> None:
    moods = replace(column("m", 3, 65_001, "mood[]"), element=Element(65_000, -1, "mood", "e"))
    now = _t1(INT4)
    projections = Projections(Plan({T1: now}, (), (), (), ()), WithoutTypes(now))
    projections.name_type(Type(65_001, "public", "_mood"))

    found = projections.of_relation(publish(), relation_of(table(T1, "t1", (*now.columns, moods))))

    gone = found.columns[2]
    assert (gone.name, gone.type_name, gone.base_type_oid) == ("m", "public._mood", TEXT)
    assert gone.element is None


@pytest.mark.parametrize("name", ["geometry", "hstore", "vector"])
def test_a_type_that_is_gone_is_text_whatever_its_name_was(name: str) -> None:
    now = _t1(INT4)
    projections = Projections(Plan({T1: now}, (), (), (), ()), WithoutTypes(now))
    projections.name_type(Type(65_000, "public", name))
    sent = table(T1, "t1", (*now.columns, column("g", 3, 65_000, name)))

    gone = projections.of_relation(publish(), relation_of(sent)).columns[2]

    assert (gone.type_name, gone.base_name) == (f"public.{name}", "")


@pytest.mark.parametrize(
    ("now", "announced", "published"),
    [((10, 2), (10, 4), (10, 4)), ((12, 4), (10, 2), (12, 4)), ((12, 4), (12, 2), (12, 2))],
)
def test_a_number_of_more_digits_than_the_column_has_now_keeps_them(
    now: tuple[int, int], announced: tuple[int, int], published: tuple[int, int]
) -> None:
    def modifier(digits: tuple[int, int]) -> int:
        return (digits[0] << 16 | digits[1]) + 4

    def of(digits: tuple[int, int]) -> Column:
        made = column("n", 2, NUMERIC, "numeric")
        return replace(made, type_modifier=modifier(digits), base_type_modifier=modifier(digits))

    class Catalog(CatalogOfNow):
        def column(self, name: str, type_oid: int, type_modifier: int) -> Column | None:
            return of(announced)

    current = table(T1, "t1", (column("a", 1), of(now)))
    projections = Projections(Plan({T1: current}, (), (), (), ()), Catalog(current))

    found = projections.of_relation(
        publish(), relation_of(table(T1, "t1", (column("a", 1), of(announced))))
    )

    assert found.columns[1].type_modifier == modifier(published)
