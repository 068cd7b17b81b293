"""Look-ups by one text or one value, where there are many subscriptions."""

from __future__ import annotations

from gateway.rowfilter import Selection, compile_filter, selection_of
from gateway.subselects.formula import AllOf, Plain, SetTest, SetTestKind, Subselect, Value
from gateway.subselects.sets.changes import SetDelta
from gateway.subselects.sets.entries import pack
from gateway.subselects.sets.member_index import MemberIndex
from gateway.subselects.sets.network import SetNetwork
from gateway.subselects.sets.set_selection import SetSelection
from tests.unit.subselects.tables import CUSTOMERS

TENANTS = 1000


class Customer:
    """A row of which only the tenant is looked at."""

    def __init__(self, tenant: bytes | None) -> None:
        self.tenant = tenant

    def text(self, column: str) -> bytes | None:
        assert column == "tenant"
        return self.tenant

    def plain(self, plain: Plain) -> bool:
        raise AssertionError(plain)

    def value(self, columns: tuple[str, ...]) -> Value:
        raise AssertionError(columns)


def tenants() -> SetNetwork:
    return SetNetwork(
        SetTest(SetTestKind.IN, ("customer",), Subselect(CUSTOMERS.oid, ("id",), plain))
        for plain in (Plain(f"tenant = {number}") for number in range(TENANTS))
    )


def select(plain: Plain) -> Selection | None:
    return selection_of([compile_filter(plain.text, CUSTOMERS.columns)])


def test_an_inner_row_reaches_the_sets_that_may_count_it() -> None:
    sets = list(tenants())
    selection = SetSelection(sets, select)

    assert selection.of(Customer(b"17")) == [sets[17]]
    assert selection.of(Customer(b"5000")) == []
    assert selection.of(Customer(None)) == []


def test_an_inner_row_reaches_sets_without_a_selection_as_well() -> None:
    every = Subselect(CUSTOMERS.oid, ("id",), None)
    other = Subselect(CUSTOMERS.oid, ("id",), Plain("tenant > 3"))
    both = AllOf((Plain("tenant = 4"), Plain("tenant > 3")))
    may_fail = Subselect(CUSTOMERS.oid, ("id",), Plain("tenant = 4 AND 1 / city = 1"))
    network = SetNetwork(
        SetTest(SetTestKind.IN, ("customer",), each)
        for each in (every, other, Subselect(CUSTOMERS.oid, ("id",), both), may_fail)
    )
    selection = SetSelection(network, select)

    def found(tenant: bytes | None) -> list[int]:
        sets = list(network)
        return sorted(sets.index(each) for each in selection.of(Customer(tenant)))

    assert found(b"1") == [0, 1]
    assert found(b"4") == [0, 1, 2, 3]
    assert found(None) == [0, 1, 3], "NULL = 4 is not false, so the division is reached"


def test_a_value_leads_to_the_sets_that_have_it() -> None:
    sets = tenants()
    index = MemberIndex(sets)
    first, second = list(sets)[7], list(sets)[8]
    for each, number in ((first, 1), (second, 1), (second, 2)):
        delta = SetDelta()
        delta.change(None, pack((b"%d" % number, b"")))
        index.apply(sets.apply({each.subselect: delta}))

    assert set(index.having((b"1",))) == {first.subselect, second.subselect}
    assert index.having((b"2",)) == [second.subselect]
    assert index.having((b"3",)) == []
    truncated = SetDelta()
    truncated.truncate()
    index.apply(sets.apply({second.subselect: truncated}))
    assert index.having((b"1",)) == [first.subselect]
