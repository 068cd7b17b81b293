"""Three tables for filters with sub-selects, as the catalog has them."""

from __future__ import annotations

from dataclasses import replace

from gateway.definitions.model import Table
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.subselects.text.scope import InnerTable
from tests.unit.rowfilter.columns import LOOSE, UNORDERED, column


def table(oid: int, name: str, /, **kinds: str) -> Table:
    columns = tuple(
        column(each, kind, LOOSE if each == "loose" else UNORDERED if kind == "text" else None)
        for each, kind in kinds.items()
    )
    names = tuple(kinds)
    return Table(oid, "public", name, "r", columns, ReplicaIdentity.FULL, names, names[:1])


CITIES = table(1, "cities", id="int4", country="text", size="int2", loose="text")
CUSTOMERS = table(2, "customers", id="int8", city="int4", tenant="int4", name="text", day="date")
ORDERS = table(
    3, "orders", id="int4", customer="int4", tenant="int4", code="text", city="int4", doc="json"
)
SECRET = replace(CITIES, oid=4, name="secret")
PARENT = replace(CITIES, oid=5, name="parent")
TREE = replace(CITIES, oid=6, name="tree", kind="p")
ALL = {each.oid: each for each in (CITIES, CUSTOMERS, ORDERS, SECRET, PARENT, TREE)}


def lookup(schema: str | None, name: str) -> InnerTable | str:
    found = next((each for each in ALL.values() if each.name == name), None)
    if found is None or schema not in (None, "public"):
        return f'relation "{name}" does not exist'
    return InnerTable(found, row_security=found is SECRET, inherited=found is PARENT)
