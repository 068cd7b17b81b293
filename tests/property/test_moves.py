"""Moves against a model of source, gateway and consumers; what runs is `gateway.subselects`.

The source commits, and its transactions become visible in another order; the gateway publishes,
reads slices and keys in chunks, places them, commits and is killed between commits; consumers
follow the topic's contract. Where nothing is unsettled, each table is the source's, filtered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.copy import Snapshot
from gateway.core.copy_progress import Key
from gateway.core.lsn import Lsn
from gateway.core.watermark import StatePartKind
from gateway.pgoutput.messages import UNCHANGED
from gateway.rowfilter import Selection, fill_unchanged
from gateway.subselects.following import Following, OuterTable
from gateway.subselects.formula import Formula, Plain, RowView, Subselect, Truth
from gateway.subselects.moves.decision import Decision, Sending
from gateway.subselects.moves.reads import MoveChunk, MoveRequest
from gateway.subselects.moves.state import Slice
from gateway.subselects.moves.table_moves import MovedRow, TableMoves
from gateway.subselects.moves.transaction import MoveTransaction
from gateway.subselects.sets.changes import SetChange
from tests.support.models.moves import OrderView, Source, TupleRow, as_tuple
from tests.support.models.subselect_tables import ORDERS, View, draw_tested, recounted

STEPS = (
    *("commit", "commit", "appear", "publish", "publish", "publish", "ask", "ask"),
    *("place", "place", "build", "lose", "forget", "flush", "die"),
)
DENSE = ("commit", "publish", "build", "ask", "place", "appear")
"""Steps that lead to more of what a rule is for."""
CASES = max(300, settings().max_examples)


class ReadSet(NamedTuple):
    """A read of a sub-select's table that waits to be placed."""

    table_oid: int
    snapshot: Snapshot
    rows: list[View]
    insert_lsn: int


def select(table: int, plain: Plain) -> Selection | None:
    """Rows of inner tables are found by the only column that plain filters read."""
    return Selection(plain.text, frozenset({b"t"}))


class Consumer:
    """Follows the topic: `rows` is all there is to it."""

    def __init__(self) -> None:
        self.rows: dict[Key, TupleRow] = {}

    def receive(self, sent: Decision, old_key: Key, new_key: Key, new: TupleRow) -> None:
        match sent.sending:
            case Sending.DELETE | Sending.REMOVE:
                self.rows.pop(old_key, None)
            case Sending.INSERT | Sending.REPLACE:
                if sent.sending is Sending.REPLACE:
                    self.rows.pop(old_key, None)
                assert UNCHANGED not in new
                self.rows[new_key] = new
            case Sending.UPDATE:
                row = self.rows.pop(old_key, None)
                if row is not None:
                    self.rows[new_key] = tuple(fill_unchanged(row, new))


class Gateway:
    def __init__(
        self,
        source: Source,
        random: Random,
        key: tuple[int, ...],
        moves: type[TableMoves],
        transaction: type[MoveTransaction],
    ) -> None:
        self.source, self.random, self.key = source, random, key
        self.kind, self.transaction = moves, transaction
        self.size = random.choice((1, 1, 3))
        self.formulas: dict[str, Formula] = {
            f"s{number}": draw_tested(random) for number in range(random.randint(1, 3))
        }
        self.consumers = {name: Consumer() for name in self.formulas}
        self.published = 0
        self.parts: dict[StatePartKind, dict[str, bytes]] = {"set": {}, "moves": {}}
        self.start()
        if random.random() < 0.7:  # mostly from where everything is known
            while self.following.unbuilt:
                self.build()
            self.recopy()
        self.flush()

    def start(self) -> None:
        table = OuterTable(ORDERS, self.key, self.formulas, OrderView)
        self.following = Following([table], select, self.parts, most=2)
        assert not self.following.faults
        self.moves = self.following.moves[ORDERS]
        self.moves.__class__ = self.kind  # a rule is left out
        self.asked: list[MoveRequest] = []
        self.waiting: list[MoveChunk] = []
        self.read_sets: list[ReadSet] = []
        self.sure = self.source.next_xid  # all before are visible before the first read

    def die(self) -> None:
        self.published, rows = self.committed
        for name, found in rows.items():
            self.consumers[name].rows = dict(found)
        self.start()

    def flush(self) -> None:
        rows = {name: dict(each.rows) for name, each in self.consumers.items()}
        self.committed = self.published, rows
        for kind, name, value in self.following.pop_parts():
            if value is None:
                self.parts[kind].pop(name, None)
            else:
                self.parts[kind][name] = value

    def copy(self, name: str) -> None:
        """A copy at this position, exact by itself."""
        self.moves.begin_copy(name)
        rows = map(as_tuple, self.source.rows_at(self.published)[ORDERS].values())
        wanted = [row for row in rows if self.moves.wants(name, OrderView(row))]
        self.consumers[name].rows = {self.moves.key_of(row): row for row in wanted}

    def publish(self) -> None:
        if self.published == len(self.source.log):
            return
        transaction = self.source.log[self.published]
        followed = self.following.begin(transaction.xid & 0xFFFFFFFF)
        for table, old, new in transaction.changes:
            if not self.following.all_sets_of(table):
                continue
            if old is None and new is None:
                followed.inner_truncate(table)
            else:
                views = [None if row is None else View(row) for row in (old, new)]
                followed.inner(table, *views)
        followed.apply()
        for change in transaction.changes:
            if change.table == ORDERS:
                judged = followed.outer(ORDERS)
                judged.__class__ = self.transaction
                self.send(judged, followed.changes, *self.source.logged(change))
        followed.end()
        self.published += 1
        self.judge()

    def send(
        self,
        judged: MoveTransaction,
        changes: Mapping[Subselect, SetChange],
        op: str,
        old: TupleRow | None,
        new: TupleRow | None,
    ) -> None:
        if op == "t":
            judged.truncate()
            for each in self.consumers.values():
                each.rows.clear()
            return
        if new is None:
            assert old is not None
            change, row = judged.delete(old), old
        elif op == "i":
            change, row = judged.insert(new), new
        else:
            row = new if old is None else tuple(fill_unchanged(old, new))
            change = judged.update(old, row)
        old_key = self.moves.key_of(row if old is None else old)
        names = set(change.must_judge)
        for view in change.views:
            names |= self.following.candidates(ORDERS, view, changes)
        for name in sorted(names):
            found = change.judge(name)
            self.consumers[name].receive(found, old_key, self.moves.key_of(row), row)

    # Reads

    def build(self) -> None:
        """Read the table of a set, or place what was read."""
        snapshot, rows = self.source.snapshot()
        reading = {each.table_oid for each in self.read_sets}
        unbuilt = [each for each in self.following.unbuilt if each.table_oid not in reading]
        if unbuilt and snapshot.xmin >= self.sure:
            found = self.random.choice(unbuilt)
            views = [View(row) for row in rows[found.table_oid].values()]
            self.read_sets.append(ReadSet(found.table_oid, snapshot, views, self.source.insert_lsn))
        for each in self.read_sets:
            if each.insert_lsn > self.published:
                continue
            if self.following.may_place(each.table_oid, each.snapshot):  # if not, it is read again
                placed = self.following.place_table(each.table_oid, each.snapshot, each.rows)
                assert not list(placed)
                self.following.finish_table(each.table_oid)
        self.read_sets = [each for each in self.read_sets if each.insert_lsn > self.published]

    def ask(self) -> None:
        """Ask for a read; often read it at once."""
        snapshot, _ = self.source.snapshot()
        if len(self.asked) + len(self.waiting) < 3 and snapshot.xmin >= self.sure:
            request = self.moves.request()
            if request is not None:
                self.asked.append(request)
        if self.random.random() < 0.7:
            self.read()

    def read(self) -> None:
        if not self.asked:
            return
        request = self.asked.pop(self.random.randrange(len(self.asked)))
        snapshot, found_rows = self.source.snapshot()
        rows = sorted(map(as_tuple, found_rows[ORDERS].values()), key=self.moves.key_of)
        if request.keys:
            found = [row for row in rows if self.moves.key_of(row) in request.keys]
            end = True
        else:
            found = [
                row
                for row in rows
                if OrderView(row).value(request.columns) in request.values
                and (request.after is None or self.moves.key_of(row) > request.after)
            ]
            end = request.whole or len(found) <= self.size
            found = found if end else found[: self.size]
        chunk = MoveChunk(request, found, snapshot, Lsn(self.source.insert_lsn), end)
        self.waiting.append(chunk)

    def lose(self) -> None:
        if self.asked:
            self.moves.release(self.asked.pop())

    def place(self) -> None:
        due = [chunk for chunk in self.waiting if chunk.insert_lsn <= self.published]
        if not due:
            return
        chunk = self.random.choice(due)
        self.waiting.remove(chunk)
        for name, copied, key, wanted in self.moves.place(chunk):
            assert not isinstance(copied, bytes)
            assert UNCHANGED not in copied
            self.consumers[name].rows.pop(key, None)
            if wanted:
                self.consumers[name].rows[key] = tuple(copied)
        self.judge()

    def forget(self) -> None:
        snapshot, _ = self.source.snapshot()
        self.moves.forget([snapshot, *(chunk.snapshot for chunk in self.waiting)])
        if not self.read_sets:
            self.following.forget(snapshot)

    def recopy(self) -> None:
        for name in list(self.moves.whole):
            if self.following.is_built(self.formulas[name]):
                self.copy(name)

    # Judgement

    def judge(self) -> None:
        rows = self.source.rows_at(self.published)
        source = recounted(rows)
        orders = {self.moves.key_of(as_tuple(row)): row for row in rows[ORDERS].values()}
        for name, consumer in self.consumers.items():
            if name in self.moves.whole:
                continue
            for key in orders.keys() | consumer.rows.keys():
                row = orders.get(key)
                if name in self.moves.listed(key) or (
                    row is not None and self.is_unsettled(name, as_tuple(row))
                ):
                    continue
                is_wanted = row is not None and source.wants(ORDERS, self.formulas[name], row)
                expected = as_tuple(row) if is_wanted and row is not None else None
                assert consumer.rows.get(key) == expected

    def is_unsettled(self, name: str, row: TupleRow) -> bool:
        view = OrderView(row)
        return any(
            self.moves.is_unsettled(Slice(test.columns, view.value(test.columns)), name)
            for test in self.moves.tests[name]
        )


def run(
    random: Random,
    steps: list[str],
    *,
    moves: type[TableMoves] = TableMoves,
    transaction: type[MoveTransaction] = MoveTransaction,
) -> None:
    # The key of the topic is the primary key, or has a column that decides as well.
    key = random.choice(((0,), (0, 1)))
    full, standby = random.random() < 0.3, random.random() < 0.2
    source = Source(random, key, full=full, standby=standby)
    gateway = Gateway(source, random, key, moves, transaction)
    for step in steps:
        getattr(source if step in ("commit", "appear") else gateway, step)()
        if random.random() < 0.1:
            gateway.recopy()
    while source.hidden:
        source.appear()
    for _ in range(200):  # it must come to an end
        for step in ("publish", "build", "ask", "read", "place"):
            getattr(gateway, step)()
        gateway.recopy()
        if gateway.published == len(source.log) and gateway.moves.is_settled:
            break
    assert gateway.moves.is_settled
    gateway.judge()


# Drawn by hypothesis, which makes a case that fails small, or by a seed, which differs more.
randoms = st.randoms(use_true_random=False) | st.integers(0, 1 << 32).map(Random)
many_steps = st.lists(st.sampled_from(STEPS), max_size=80)


@settings(max_examples=CASES)
@given(randoms, many_steps)
def test_what_is_not_unsettled_is_the_source_filtered_at_every_position(
    random: Random, steps: list[str]
) -> None:
    run(random, steps)


class AlwaysSure(MoveTransaction):
    """Believes that the subscriber has what the sets say, also of unsettled slices."""

    def has(self, subscription: str, view: RowView) -> Truth:
        found = super().has(subscription, view)
        return Truth.NO if found is Truth.MAYBE else found


class JudgesAllByTheEnd(MoveTransaction):
    """Asks what the subscriber has by the sets as of the transaction's end."""

    def has(self, subscription: str, view: RowView) -> Truth:
        self._changes, kept = {}, self._changes
        found = super().has(subscription, view)
        self._changes = kept
        return found


class SettlesAtOnce(TableMoves):
    """Reads nothing when a set changes."""

    def unsettle(self, changes: Mapping[Subselect, SetChange]) -> None:
        pass


class ListsNoKeys(TableMoves):
    """Does not read rows that lack values."""

    def list_key(self, key: Key, subscription: str, xid: int | None) -> None:
        pass


class WithoutMakingUp(TableMoves):
    """Places rows as they were read."""

    def forget(self, snapshots: Collection[Snapshot]) -> None:
        self.unseen.clear()

    def place(self, chunk: MoveChunk) -> Iterator[MovedRow]:
        self.unseen.clear()
        return super().place(chunk)


class VoidsNothing(TableMoves):
    """Settles a slice although it became unsettled again between its chunks."""

    def _unsettle(self, slice_: Slice, subscription: str) -> None:
        reads, self._reads = self._reads, {}
        super()._unsettle(slice_, subscription)
        self._reads = reads


@pytest.mark.parametrize("broken", [AlwaysSure, JudgesAllByTheEnd])
def test_the_model_notices_when_a_rule_of_judging_is_left_out(
    broken: type[MoveTransaction],
) -> None:
    assert notices(transaction=broken)


@pytest.mark.parametrize(
    "broken",
    [SettlesAtOnce, ListsNoKeys, WithoutMakingUp, VoidsNothing],
)
def test_the_model_notices_when_a_rule_of_reading_is_left_out(broken: type[TableMoves]) -> None:
    assert notices(moves=broken)


def notices(
    moves: type[TableMoves] = TableMoves, transaction: type[MoveTransaction] = MoveTransaction
) -> bool:
    def fails(seed: int) -> bool:
        random = Random(seed)
        try:
            steps = random.choices(DENSE, k=80)
            run(random, steps, moves=moves, transaction=transaction)
        except AssertionError:
            return True
        return False

    return any(fails(seed) for seed in range(2000))
