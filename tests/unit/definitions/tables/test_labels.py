"""Labels of enums that schemas show, and other ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.definitions.model import Column, Plan, Table, TableCopy
from gateway.definitions.tables.labels import MOST_BYTES, bounded, has_new_labels, shown_labels
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.masks import Mask

FEW, MORE = ("sad", "ok"), ("sad", "ok", "glad")
MANY = ("x" * 60,) * 1024
ID = Column("id", 1, 23, -1, "integer", 23, -1, "b", False, "", None)
MOOD = Column("mood", 2, 65_000, -1, "mood", 65_000, -1, "e", False, "", None, labels=FEW)
OTHER = replace(MOOD, name="other", attnum=3)


def plan_of(*columns: Column, published: tuple[str, ...] = (), mask: Mask | None = None) -> Plan:
    table = Table(1, "public", "t", "r", (ID, *columns), ReplicaIdentity.DEFAULT, (), ())
    names = published or tuple(column.name for column in table.columns)
    masks = () if mask is None else (("mood", mask),)
    return Plan({1: table}, (), (), (TableCopy("s", 1, (), names, masks),), ())


BEFORE = plan_of(MOOD).tables
NEW = replace(MOOD, labels=MORE)


@pytest.mark.parametrize(
    ("plan", "new"),
    [
        pytest.param(plan_of(MOOD), False, id="the same"),
        pytest.param(plan_of(NEW), True, id="one more"),
        pytest.param(plan_of(replace(MOOD, labels=())), False, id="unknown"),
        pytest.param(plan_of(NEW, published=("id",)), False, id="not published"),
        pytest.param(plan_of(NEW, mask=Mask("null")), False, id="masked"),
        pytest.param(plan_of(MOOD, OTHER), False, id="of a column that is new itself"),
        pytest.param(plan_of(replace(MOOD, labels=MANY)), True, id="too large by now"),
    ],
)
def test_labels_are_new_where_a_schema_shows_others(plan: Plan, new: bool) -> None:
    assert has_new_labels(BEFORE, plan) is new


def test_labels_that_are_too_large_for_a_schema_are_not_new() -> None:
    large = replace(MOOD, labels=MANY)
    before = plan_of(large, OTHER).tables

    assert shown_labels([large, OTHER]) == {}
    assert not has_new_labels(before, plan_of(large, replace(OTHER, labels=MORE)))
    assert has_new_labels(before, plan_of(MOOD, OTHER))


def test_labels_of_an_enum_that_no_schema_shows_are_not_kept() -> None:
    size = (MOST_BYTES - len('[""]')) // 2

    assert bounded(["\\" * size]) == ("\\" * size,)
    assert bounded(["\\" * (size + 1)]) == ()
