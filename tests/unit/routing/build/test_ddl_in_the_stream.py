"""Definitions that the stream tells count from their place on, for each change by its position."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.lsn import Lsn
from gateway.definitions.ddl.alterations import PREFIX
from gateway.pgoutput.messages import Insert, LogicalMessage
from gateway.transactions import Transaction
from tests.support.gateway.routing_scene import T1, T1_TABLE, Gateway, data, publish, relation_of


def row(number: int) -> Insert:
    return Insert(T1, (b"%d" % number, b"1"))


class DdlState(Gateway):
    """A gateway whose table has the filter ``a > 5`` until it is told another."""

    def __init__(self) -> None:
        super().__init__([T1_TABLE], [publish(where="(a > 5)")])
        self.commit(relation_of(T1_TABLE))

    def message(self, where: str) -> LogicalMessage:
        self.told[where.encode()] = replace(self.plan, publishes=(publish(where=where),))
        return LogicalMessage(True, Lsn(1), PREFIX, where.encode())

    def numbers(self, transaction: Transaction) -> list[int]:
        seen = [self.see(r) for piece in self.router.route(transaction) for r in piece]
        return [s.value["after"]["a"] for s in data(seen) if s.value]


def test_a_transaction_that_tells_is_taken_by_both_definitions() -> None:
    gateway = DdlState()
    alters = gateway.transaction(row(3), row(7), gateway.message("(a < 5)"), row(4), row(8))
    assert gateway.numbers(alters) == [7, 4]
    assert gateway.numbers(gateway.transaction(row(4), row(8))) == [4]


def test_what_was_changed_before_the_commit_is_taken_by_the_definition_before() -> None:
    gateway = DdlState()
    open_before = gateway.transaction(row(4), row(8))
    alters = gateway.transaction(gateway.message("(a < 5)"))
    open_between = gateway.transaction(row(4), row(8))
    again = gateway.transaction(gateway.message("(a = 8)"))
    assert gateway.numbers(alters) == []
    assert gateway.numbers(again) == []
    assert gateway.numbers(open_before) == [8]
    assert gateway.numbers(open_between) == [4]
    assert gateway.numbers(gateway.transaction(row(4), row(8), row(9))) == [8]
    assert gateway.numbers(open_before) == [8]


def test_short_transactions_are_routed_together_again_behind_the_last_alteration(
    row_path: str,
) -> None:
    gateway = DdlState()
    first = gateway.frames(row(4), row(8))
    open_before = gateway.frames(row(4), row(8))
    gateway.route([*first, *gateway.frames(gateway.message("(a < 5)"))])
    behind = [gateway.frames(row(4), row(8)) for _ in range(3)]
    before = gateway.in_series

    seen = [
        gateway.see(r) for r in gateway.route([*behind[0], *open_before, *behind[1], *behind[2]])
    ]

    assert [s.value["after"]["a"] for s in data(seen) if s.value] == [4, 8, 4, 4]
    # Each first one after a change of definitions is routed alone, which makes its route again.
    assert gateway.in_series - before == (1 if row_path == "compiled" else 0)


def test_one_transaction_is_cut_where_definitions_change() -> None:
    gateway = DdlState()
    first = gateway.transaction(gateway.message("(a < 5)"))
    second = gateway.transaction(gateway.message("(a = 8)"))
    assert gateway.numbers(first) == gateway.numbers(second) == []
    positions = [first.commit_lsn - 2, first.commit_lsn - 1, first.commit_lsn + 1]
    positions += [second.commit_lsn - 1, second.commit_lsn, second.commit_lsn + 1]
    rows = [row(number) for number in (4, 7, 8, 3, 8, 4)]
    long = gateway.transaction(*rows, positions=positions)
    assert gateway.numbers(long) == [7, 3, 8]


def test_the_message_is_no_change_and_has_no_number() -> None:
    gateway = DdlState()
    seen = gateway.commit(row(7), gateway.message("(a > 5)"), row(8))
    assert [s.headers["seq"] for s in data(seen)] == ["1", "2"]
