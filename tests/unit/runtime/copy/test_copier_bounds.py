"""What a copier holds, and how it parts what it has read, while the loop is held up."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import is_
from threading import Event
from typing import ClassVar, cast

import pytest

from gateway.config import CopyTable
from gateway.copy import Chunk, ChunkRequest, Snapshot
from gateway.core.descriptors import wait_readable
from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.definitions.changes import copy_states
from gateway.definitions.model import FilterClause, Plan, SubscriptionDefinition, Table, TableCopy
from gateway.observe import Counters
from gateway.routing import RoutingSettings
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.runtime.copy.coordinator import TableCopier
from gateway.runtime.copy.workers import CopyWorkers
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.copy.errors import TableLocked
from tests.support.gateway.routing_scene import NoCatalog, Schemas, publish, table
from tests.support.run.waiting import wait_until
from tests.unit.runtime.copy.test_coordinator import OID, TABLE, Reader


def copier_of(
    conditions: list[str],
    reader: Callable[[], Reader],
    schemas: Schemas | None = None,
    settings: CopyTable | None = None,
    tables: Sequence[Table] = (TABLE,),
) -> TableCopier:
    """Return a copier of tables, for a subscription with each of these filters."""
    filters = [
        (f"s{number}", table.oid, condition)
        for number, condition in enumerate(conditions)
        for table in tables
    ]
    names = sorted({name for name, _, _ in filters})
    columns = tuple(c.name for c in TABLE.columns)
    plan = Plan(
        {table.oid: table for table in tables},
        tuple(SubscriptionDefinition(name, ("p",)) for name in names),
        tuple(publish(name, condition, relation=oid) for name, oid, condition in filters),
        tuple(
            TableCopy(name, oid, (FilterClause("p", oid, condition),), columns)
            for name, oid, condition in filters
        ),
        (),
    )
    topics = {f"{name}.public.{table.name}": 1 for name in names for table in tables}
    routing = RoutingSettings("gw", "db", "1", topics)
    return TableCopier(
        plan,
        copy_states(plan, (), reconcile=True),
        RelationRoutes(plan, routing, NoCatalog(), schemas or Schemas()),
        routing,
        settings or CopyTable(),
        Counters(),
        open_reader=lambda _: cast(ChunkReader, reader()),
        evaluator=None,
        report=lambda _: None,
    )


class Large(Reader):
    """Reads 4,000 rows, whose `b` says who takes them."""

    def __init__(self) -> None:
        pass

    def snapshot(self) -> Snapshot:
        return Snapshot(1, 1, frozenset())

    def narrows(self, source: ChunkSource) -> bool:
        return False

    def border(self, source: ChunkSource, request: ChunkRequest, limit: int) -> ChunkRequest:
        first = 0 if request.after is None else int(request.after[0]) + 1
        last = min(4_000, first + limit) - 1
        if last < first:
            return request
        return replace(request, last=(b"%d" % last,), rows=last + 1 - first)

    def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
        first = 0 if request.after is None else int(request.after[0]) + 1
        keys = range(first, min(4_000, first + limit))
        if request.last is not None:
            keys = range(first, int(request.last[0]) + 1)
        lines = [b"%d\t%d\ttext\n" % (key, key % 50) for key in keys]
        last = (b"%d" % keys[-1],) if keys else None
        end = request.last is None and first + limit > 3_999
        return Chunk(request, lines, self.snapshot(), Lsn(100), last, end, len(lines))


def test_a_chunk_of_which_each_subscription_takes_few_rows_is_placed_in_few_parts() -> None:
    copier = copier_of([f"(b = {number})" for number in range(50)], Large)
    parts: list[int] = []
    with copier:
        while copier.unfinished:
            wait_readable([copier.fileno()], 1.0 if copier.awaited() is None else 0.0)
            room = 1_000
            while room > 0 and (placement := copier.place(Lsn(1), Lsn(1_000), room)) is not None:
                parts.append(sum(map(len, placement.records)))
                room -= parts[-1]

    assert sum(parts) == 4_000 + 3 * 50  # each subscription has a beginning and two markers
    assert max(parts) <= 1_000 + 50
    assert len(parts) < 60


class Unsure(Large):
    """Sees a transaction that does not end."""

    looks = 0

    def snapshot(self) -> Snapshot:
        Unsure.looks += 1
        return Snapshot(1, 2, frozenset({1}))


def test_a_copier_that_is_not_asked_keeps_few_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.runtime.copy.first_snapshot.GATE_S", 0.0)
    copier = copier_of(["(b = 0)"], Unsure)

    def snapshots() -> int:
        return sum(isinstance(each, Snapshot) for each in gc.get_objects())

    gc.collect()  # what other tests have left in cycles would go meanwhile, or be counted
    before = snapshots()
    with copier:
        wait_until(lambda: Unsure.looks > 1_000, 60, "a thousand looks at the server")
        kept = snapshots() - before

    assert kept < 100


class Together(Large):
    """Reads a range only when two are being read, until that has been seen."""

    reading: ClassVar[set[bytes]] = set()
    met = Event()

    def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
        chunk = super().read(source, request, limit)
        if chunk.last is not None and request.last is not None:
            self.reading.add(chunk.last[0])
            if len(self.reading) > 1:
                self.met.set()
            assert self.met.wait(30), "nobody reads the range behind this one"
            self.reading.discard(chunk.last[0])
        return chunk


def test_ranges_of_one_table_are_read_at_once_and_placed_one_after_the_other() -> None:
    schemas = Schemas()
    copier = copier_of(["(a >= 0)"], Together, schemas, CopyTable(chunk_rows=50))
    keys: list[bytes] = []
    with copier:
        while copier.unfinished:
            wait_readable([copier.fileno()], 1.0 if copier.awaited() is None else 0.0)
            while (placement := copier.place(Lsn(1), Lsn(1_000), 300)) is not None:
                records = chain.from_iterable(placement.records)
                keys += [key for topic, _, key, _, _ in records if topic == "s0.public.t" and key]

    assert Together.met.is_set()
    assert [schemas.decode(key)["a"] for key in keys] == list(range(4_000))


OTHER = table(OID + 1, "u", TABLE.columns)


class Locked(Large):
    """Is kept from the first table until the other one has been read to its end."""

    free = Event()
    error: TransientError = TableLocked("somebody has locked it")

    def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
        if source.table.oid == OID and not self.free.is_set():
            raise self.error
        chunk = super().read(source, request, limit)
        if chunk.end:
            self.free.set()
        return chunk


class Rewritten(Locked):
    """Finds the first table rewritten each time, until the other one has been read to its end."""

    free = Event()
    error = TransientError("it was rewritten or truncated while a chunk was read")


@pytest.mark.parametrize("reader", [Locked, Rewritten])
def test_a_table_that_its_owner_keeps_from_being_read_is_read_after_the_others(
    reader: type[Locked], caplog: pytest.LogCaptureFixture
) -> None:
    settings = CopyTable(parallel=1)
    copier = copier_of(["(b = 0)"], reader, settings=settings, tables=(TABLE, OTHER))
    topics: list[str] = []
    with copier:
        while copier.unfinished:
            wait_readable([copier.fileno()], 1.0 if copier.awaited() is None else 0.0)
            while (placement := copier.place(Lsn(1), Lsn(1_000), 300)) is not None:
                records = chain.from_iterable(placement.records)
                topics += [topic for topic, _, key, _, _ in records if key]

    assert list(dict.fromkeys(topics)) == ["s0.public.u", "s0.public.t"]
    assert topics.count("s0.public.u") == topics.count("s0.public.t") == 80
    noted = "a table is locked: others are read until it is free" in caplog.text
    assert noted == (reader is Locked)


class Busy(Large):
    """Sees a transaction that runs when the first table is added, and for ever."""

    is_busy = True
    is_asked = Event()

    def snapshot(self) -> Snapshot:
        return Snapshot(1, 5 if self.is_busy else 1, frozenset())

    def wait_for(self, before: int | None) -> None:
        self.is_asked.set()


def test_a_table_that_is_added_waits_for_its_own_gate_and_keeps_no_thread() -> None:
    jobs = list(copier_of(["(b = 0)"], Busy, tables=(TABLE, OTHER))._jobs)
    workers = CopyWorkers(
        [],
        CopyTable(parallel=1),
        open_reader=lambda _: cast(ChunkReader, Busy()),
        retry_s=0.01,
    )
    workers.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Busy, "is_busy", False)
            workers.add(jobs[1:])  # the gate of the connection is open, too
            wait_until(partial(workers.due, Lsn(1_000)), 20, "a chunk of it")
        workers.end(jobs[1])
        workers.add(jobs[:1])
        assert Busy.is_asked.wait(20), "its gate is closed"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Busy, "is_busy", False)
            other = list(copier_of(["(b = 0)"], Busy, tables=(TABLE, OTHER))._jobs)[1]
            workers.add([other])
            wait_until(partial(workers.due, Lsn(1_000), partial(is_, other)), 20, "a chunk of it")
            assert workers.due(Lsn(1_000), partial(is_, jobs[0])) is None
    finally:
        workers.close()


def test_a_table_whose_sets_are_not_built_keeps_no_thread() -> None:
    copier = copier_of(["(b = 0)"], Large, tables=(TABLE, OTHER))
    jobs = list(copier._jobs)
    jobs[0].awaits_sets = True
    workers = CopyWorkers(
        jobs,
        CopyTable(parallel=1),
        open_reader=lambda _: cast(ChunkReader, Large()),
        retry_s=0.01,
    )
    workers.start()
    try:
        for job in (jobs[1], jobs[0]):
            wait_until(partial(workers.due, Lsn(1_000), partial(is_, job)), 20, "a chunk of it")
            workers.end(job)
            jobs[0].awaits_sets = False
            workers.go_on()
    finally:
        workers.close()


def test_a_note_of_another_thread_keeps_the_loop_awake_only_until_it_is_popped() -> None:
    workers = CopyWorkers(
        [], CopyTable(), open_reader=lambda _: cast(ChunkReader, Large()), retry_s=0.01
    )
    workers.start()
    try:
        for _ in range(2):
            workers.pop_notes()  # all tables are copied
            for _ in range(5_000):  # as while Kafka is down
                workers.wake()
            assert wait_readable([workers.fileno()], 0.0)
            workers.pop_notes()
            assert not wait_readable([workers.fileno()], 0.0)
    finally:
        workers.close()


def test_a_table_that_is_held_while_it_waits_to_be_copied_again_gets_another_plan() -> None:
    copier = copier_of(["(b = 0)"], Large)
    copier.states()
    assert not copier.needs_successor
    (copy,) = copier._plan.copies
    copier._copy_again([copy])
    copier.states()
    assert not copier.needs_successor

    copier._routes.held.hold({(copy.subscription, copy.target_oid): "it was altered"})
    copier.states()

    assert copier.needs_successor


def test_a_table_that_was_put_back_and_waits_for_its_sets_is_read_when_they_are_built() -> None:
    class Lost(Large):
        lost = Event()

        def estimate_rows(self, table: Table) -> int:
            return 10  # too few for a second thread

        def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
            if not self.lost.is_set():
                jobs[0].awaits_sets = True
                self.lost.set()
                raise TransientError("the connection was lost")
            return super().read(source, request, limit)

    opened: list[Lost] = []

    def open_reader(_: object) -> ChunkReader:
        opened.append(Lost())
        return cast(ChunkReader, opened[-1])

    jobs = list(copier_of(["(b = 0)"], Lost)._jobs)
    workers = CopyWorkers(jobs, CopyTable(parallel=1), open_reader=open_reader, retry_s=0.01)
    workers.start()
    try:
        wait_until(lambda: len(opened) == 2, 20, "another connection after the lost one")
        assert workers.due(Lsn(1_000)) is None
        jobs[0].awaits_sets = False
        workers.go_on()
        wait_until(partial(workers.due, Lsn(1_000)), 20, "a chunk of it")
    finally:
        workers.close()
