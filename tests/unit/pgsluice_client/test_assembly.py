"""Whole transactions from records that come in any order over partitions, from any position."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pgsluice_client import LostRecordsError, Position, ReadError, TableRows, Transaction
from pgsluice_client.assembly import Assembly
from pgsluice_client.decoding import Decoder
from tests.support.models.topics import TEXTS, Partition, Topics, Written, lsn

PARTITIONS = (0, 1, 2)
TABLES = ("t0", "t1")
State = dict[str, dict[int, int | None]]
"""Column b by column a, by table."""


class Gateway:
    """Writes random transactions and copies, and what a subscriber has after each transaction."""

    def __init__(self, random: Random) -> None:
        self.topics = Topics()
        self.after: list[tuple[str, State]] = []
        self.copies_ready = 0
        self._random = random
        self._state: State = {table: {} for table in TABLES}
        self._lsn = 100
        self._value = 0

    def kafka_transaction(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._copies() if self._random.random() < 0.4 else self._transaction()
        if self._random.random() < 0.3:
            state = {"schema": "public", "table": "t0", "state": "ready"}
            self.topics.marker("COPY", self._lsn, copy=state)
            self.copies_ready += 1
            move = {"schema": "public", "table": "t1", "state": "begun"}
            self.topics.marker("MOVE", self._lsn, move=move)  # passed over
        self.topics.commit(self._lsn)
        if self._random.random() < 0.2:
            self.topics.commit(self._lsn)

    def _transaction(self) -> None:
        xid, seq = self._lsn * 7, 0
        for _ in range(self._random.randint(1, 6)):
            seq += self._random.randint(1, 3)
            table = self._random.choice(TABLES)
            rows, key = self._state[table], self._random.randrange(20)
            match self._random.choice("cccuuddkkkkt"):
                case "t":
                    rows.clear()
                    self._write(table, Written("t", None, PARTITIONS), seq, xid)
                case "k":
                    old = rows.pop(key, None)
                    self._write(table, self._written("d", key, rekey="old"), seq, xid)
                    seq += 1
                    self._write(table, self._update(rows, key + 50, old, rekey="new"), seq, xid)
                case "u":
                    self._write(table, self._update(rows, key, rows.get(key)), seq, xid)
                case "d":
                    rows.pop(key, None)
                    self._write(table, self._written("d", key), seq, xid)
                case _:
                    self._write(table, self._put(rows, "c", key), seq, xid)
        self.topics.marker("END", self._lsn + 8, commit_lsn=self._lsn, xid=xid)
        self.after.append((lsn(self._lsn), copy.deepcopy(self._state)))
        self._lsn += 10

    def _copies(self) -> None:
        """Copied rows before the next transaction, perhaps at its commit_lsn."""
        table = self._random.choice(TABLES)
        rows = self._state[table]
        for _ in range(self._random.randint(1, 3)):
            if self._random.random() < 0.5:
                rows.clear()
                self._write(table, Written("t", None, PARTITIONS, first=True), 0, None)
            for key in self._random.sample(range(20), self._random.randint(0, 5)):
                self._write(table, self._put(rows, "r", key), 0, None)
        self._lsn += self._random.randrange(2)

    def _put(self, rows: dict[int, int | None], op: str, key: int) -> Written:
        self._value += 1
        rows[key] = self._value
        return self._written(op, key, b=self._value)

    def _update(
        self, rows: dict[int, int | None], key: int, old: int | None, rekey: str | None = None
    ) -> Written:
        """An update, one that did not send column b in half of all cases."""
        self._value += 1
        sent = self._random.random() < 0.5
        if old is not None:
            rows[key] = self._value if sent else old
        unchanged = () if sent else ("b",)
        op, b = "c" if rekey else "u", self._value if sent else None
        return self._written(op, key, b=b, unchanged=unchanged, rekey=rekey)

    def _written(self, op: str, key: int, b: int | None = None, **fields: Any) -> Written:
        row = {"a": key, "b": b, "c": "c"}
        before, after = (row, None) if op == "d" else (None, row)
        return Written(op, key, (key % len(PARTITIONS),), before=before, after=after, **fields)

    def _write(self, table: str, written: Written, seq: int, xid: int | None) -> None:
        self.topics.change(table, written, self._lsn, seq, xid)


def assembly(start: Position | None = None, **arguments: Any) -> Assembly:
    given: dict[str, Any] = {"topics": None, "whole": True, **arguments}
    return Assembly(Decoder(TEXTS.__getitem__), start or Position("s"), **given)


def read(made: Assembly, topics: Topics, random: Random | None = None) -> list[Transaction]:
    """Give it all records, a few at a time from places at random, and what it returns."""
    random = random or Random(1)
    markers = [(at, one) for at, one in topics.markers if at >= made.position.marker]
    waiting: dict[Partition, list[Any]] = {}
    found: list[Transaction] = []
    while True:
        while (transaction := made.pop()) is not None:
            found.append(transaction)
        for partition, offset in made.pop_wanted().items():
            records = topics.partitions[partition]
            waiting[partition] = [one for one in records if one.offset >= offset]
        places: list[Partition | None] = [one for one, records in waiting.items() if records]
        places += [None] if markers else []
        if not places:
            return found
        place = random.choice(places)
        for _ in range(random.randint(1, 4)):
            if place is None and markers:
                made.receive_marker(*markers.pop(0))
            elif place is not None and waiting[place]:
                made.receive(waiting[place].pop(0))


def states(
    found: Sequence[Transaction], tables: dict[str, TableRows]
) -> list[tuple[str | None, State]]:
    """Rows of the tables after each transaction that is not of a copy."""
    made = []
    for transaction in found:
        for change in transaction.changes:
            tables[change.table].apply(change)
        if transaction.xid is not None:
            assert transaction.end_lsn == lsn(transaction.xid // 7 + 8)
            held = {name: {row["a"]: row["b"] for row in rows} for name, rows in tables.items()}
            made.append((transaction.commit_lsn, held))
    return made


@pytest.mark.parametrize("number", range(60))
def test_transactions_are_whole_and_in_order_and_go_on_from_any_position(
    number: int, seed: int
) -> None:
    random = Random(seed + number)
    gateway = Gateway(random)
    for _ in range(random.randint(1, 8)):
        gateway.kafka_transaction()

    stores: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    tables = {table: TableRows(store) for table, store in stores.items()}
    found = read(assembly(), gateway.topics, random)
    killed = random.randrange(len(found) + 1)
    before = states(found[:killed], tables)
    stored = copy.deepcopy(stores)

    assert before + states(found[killed:], tables) == gateway.after
    assert sum(len(one.copies) for one in found) == gateway.copies_ready
    position = found[killed - 1].position if killed else Position("s")
    again = read(assembly(Position.from_json(position.to_json())), gateway.topics, random)
    restored = {table: TableRows(store) for table, store in stored.items()}
    assert before + states(again, restored) == gateway.after
    assert sum(len(one.copies) for one in found[:killed] + again) == gateway.copies_ready


def written(topics: Topics, number: int, *, first: bool = False) -> None:
    """A Kafka transaction of one insert, or of the beginning of a copy and one row."""
    at = 100 * number
    if first:
        topics.change("t0", Written("t", None, PARTITIONS, first=True), at, 0, None)
    row = {"a": number, "b": number, "c": "c"}
    copied = 0 if first else 1
    insert = Written("r" if first else "c", number, (number % 3,), after=row)
    topics.change("t0", insert, at, copied, copied * number or None)
    topics.marker("END", at + 8, commit_lsn=at, xid=number)
    topics.commit(at + 8)


def keys(found: Sequence[Transaction]) -> list[Any]:
    return [change.key["a"] if change.key else change.op for one in found for change in one.changes]


def test_a_topic_waits_for_a_copy_that_begins_in_all_its_partitions() -> None:
    topics = Topics()
    written(topics, 1)
    written(topics, 2, first=True)
    written(topics, 3)
    written(topics, 4, first=True)
    written(topics, 5)
    made = assembly(whole=False)
    made.receive_marker(*topics.markers[3])  # of the first copy, whose records are partly gone
    made.pop()
    for partition, offset in made.pop_wanted().items():
        first = offset + 1 if partition[1] == 0 else offset
        if first > offset:
            made.skip_to(partition, first)
        for record in topics.partitions[partition]:
            if record.offset >= first:
                made.receive(record)
    for marker in topics.markers[4:]:
        made.receive_marker(*marker)

    found = []
    while (transaction := made.pop()) is not None:
        found.append(transaction)

    assert keys(found) == ["t", 4, 5]
    assert found[0].position.waiting == frozenset()


def test_records_before_those_that_are_gone_are_not_half_of_a_transaction() -> None:
    topics = Topics()
    topics.change("t0", Written("t", None, (0,), first=True), 100, 0, None)
    for number in (1, 2, 3):
        row = {"a": number, "b": number, "c": "c"}
        topics.change("t0", Written("r", number, (0,), after=row), 100, 0, None)
    topics.commit(100)
    made = assembly()
    made.receive_marker(*topics.markers[0])
    made.pop()
    made.pop_wanted()
    records = topics.partitions["t0", 0]
    made.receive(records[0])
    made.receive(records[1])
    made.skip_to(("t0", 0), 3)
    made.receive(records[3])

    assert made.pop() is None
    assert made.position.waiting == {"t0"}


def test_lost_and_foreign_records_are_named() -> None:
    topics = Topics()
    for number in range(1, 7):
        written(topics, number)
    found = read(assembly(), topics)
    start = found[1].position

    del topics.markers[4:6]  # of the third
    with pytest.raises(LostRecordsError, match="t0, partition 0: read up to offset 0"):
        read(assembly(start, whole=False), topics)

    topics = Topics()
    written(topics, 1)
    written(topics, 4)
    start = read(assembly(), topics)[0].position
    del topics.partitions["t0", 1][1]
    written(topics, 7)
    made = assembly(start)
    for _ in range(2):  # what follows is not read as if nothing had happened
        with pytest.raises(LostRecordsError, match="and their marker says 1"):
            read(made, topics)


def test_a_record_of_another_program_is_named() -> None:
    topics = Topics()
    written(topics, 1)
    written(topics, 2)
    (record,) = topics.partitions["t0", 1]
    topics.partitions["t0", 1] = [replace(record, headers={})]
    made = assembly()

    for _ in range(2):
        with pytest.raises(ReadError, match="topic t0, partition 1, offset 0: not a record of"):
            read(made, topics)


def made_again(before: int) -> Topics:
    """A topic of one partition that was deleted after so many records, and copied again."""
    topics = Topics()
    for number in range(before):
        row = {"a": number, "b": 1, "c": "c"}
        topics.change("t0", Written("c", number, (0,), after=row), 100, 1 + number, 1)
    topics.marker("END", 108, commit_lsn=100, xid=1)
    topics.commit(108)
    topics.delete("t0")
    for number in (2, 5):
        topics.change("t0", Written("t", None, (0, 1), first=True), 100 * number, 0, None)
        for key in range(number):
            row = {"a": key, "b": 2, "c": "c"}
            topics.change("t0", Written("r", key, (key % 2,), after=row), 100 * number, 0, None)
        topics.commit(100 * number)
    return topics


@pytest.mark.parametrize(
    ("before", "records_first"), [(100, False), (4, False), (1, False), (100, True), (4, True)]
)
def test_a_topic_that_was_made_again_begins_with_its_copy(before: int, records_first: bool) -> None:
    topics = made_again(before)
    made = assembly()
    if records_first:  # those of the new topic, at the offsets of the old one's
        made.receive_marker(*topics.markers[1])
        made.pop()
        assert made.pop_wanted() == {("t0", 0): 0}
        for record in topics.partitions["t0", 0]:
            made.receive(record)
        assert made.pop() is None

    found = read(made, topics)

    rows = TableRows()
    for transaction in found:
        for change in transaction.changes:
            rows.apply(change)
    assert sorted(row["a"] for row in rows) == [0, 1, 2, 3, 4]
    assert {row["b"] for row in rows} == {2}
    assert read(assembly(found[-1].position), topics) == []


def test_a_partition_that_ends_early_is_an_error_for_who_needs_it_and_else_waits() -> None:
    topics = Topics()
    written(topics, 1)
    written(topics, 4)
    written(topics, 2)
    start = read(assembly(), topics)[0].position
    topics.partitions["t0", 1].pop()
    made = assembly(start)
    assert read(made, topics) == []
    assert made.lacking() == {("t0", 1): 3}
    with pytest.raises(LostRecordsError, match="t0, partition 1: it ends at offset 1"):
        made.ends_at(("t0", 1), 1)

    topics.partitions["t0", 1].clear()
    made = assembly()
    assert read(made, topics) == []
    made.ends_at(("t0", 1), 0)
    assert made.pop() is None
    assert made.is_drained()
    topics.delete("t0")
    written(topics, 5, first=True)
    assert keys(read(made, topics)) == ["t", 5]


def test_a_topic_that_was_made_again_is_not_taken_for_the_rest_of_a_transaction() -> None:
    topics = Topics()
    written(topics, 3)
    written(topics, 6)
    start = read(assembly(), topics)[-1].position
    again = Topics()
    for number in (3, 6, 9, 12):
        again.change("t0", Written("c", number, (0,), after=None), number, 1, number)
    again.commit(200)
    other = Topics()
    other.change("t1", Written("c", 1, (0,), after=None), 100, 1, 1)
    other.commit(100)

    for made in (assembly(start), assembly(replace(start, inside=True))):
        made.receive_marker(100, other.markers[0][1])
        made.receive_marker(101, again.markers[0][1])

        with pytest.raises(LostRecordsError, match="continues from 0"):
            made.pop()


def test_markers_of_another_writer_do_not_count_unless_it_has_taken_over() -> None:
    topics = Topics()
    written(topics, 1)
    owner = {"system_identifier": "1", "database": "d", "slot": "slot", "gateway": "g"}
    for taken_from, name in ((None, "forger"), (owner, "successor")):
        topics.writer = name
        topics.marker("CLAIM", 0, taken_from=taken_from)
        if name == "forger":
            topics.marker("PROGRESS", 1 << 40)
    written(topics, 2)

    found = read(assembly(), topics)

    assert keys(found) == [1, 2]
    assert found[-1].position.end_lsn == lsn(208)
    assert found[-1].position.owner == ("1", "d", "successor")
    assert read(assembly(found[-1].position), topics) == []


@pytest.mark.parametrize("stored", ["before the claim", "after it", "in its transaction", "never"])
def test_a_new_owner_continues_from_the_end_of_partitions_that_it_does_not_know(
    stored: str,
) -> None:
    topics = Topics()
    written(topics, 1)
    written(topics, 2)
    topics.hand_over("successor")
    topics.change("t1", Written("c", 9, (0,), after={"a": 9, "b": 9, "c": "c"}), 250, 1, 2)
    topics.commit(250)
    written(topics, 3, first=True)
    written(topics, 4)
    read_until = {"before the claim": 2, "after it": 3, "in its transaction": 4, "never": 0}

    found = read(assembly(), topics)
    start = found[read_until[stored] - 1].position if stored != "never" else Position("s")
    rest = read(assembly(Position.from_json(start.to_json())), topics)

    assert keys(found) == [1, 2, 9, "t", 3, 4]
    assert keys(rest) == keys(found[read_until[stored] :])
    assert found[2].position.handed_over == {("t0", 1), ("t0", 2)}
    assert found[-1].position.handed_over == frozenset()


def test_records_of_nobody_before_those_of_a_new_owner_are_named() -> None:
    topics = Topics()
    written(topics, 3)
    topics.change("t0", Written("c", 6, (0,), after={"a": 6, "b": 6, "c": "c"}), 500, 1, 5)
    topics.hand_over("successor")
    written(topics, 6)

    with pytest.raises(LostRecordsError, match="2 records from offset"):
        read(assembly(), topics)


def test_partitions_and_markers_that_are_far_ahead_are_paused() -> None:
    topics = Topics()
    for number in range(1, 12_001):
        row = {"a": number, "b": 1, "c": "c"}
        topics.change("t0", Written("c", number, (0,), after=row), number, 1, number)
        if number in (1, 12_000):
            topics.commit(number)
    made = assembly()
    made.receive_marker(*topics.markers[0])
    made.pop()
    assert made.pop_wanted() == {("t0", 0): 0}
    for record in topics.partitions["t0", 0][:11_000]:
        made.receive(record)

    assert len(keys([one for one in [made.pop()] if one])) == 1
    assert made.paused() == {("t0", 0)}
    made.receive_marker(*topics.markers[1])
    assert made.pop() is None
    assert made.paused() == set()
    assert not made.has_enough_markers()
    assert not made.is_drained()
