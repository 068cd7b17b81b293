"""Rows of slices, of keys and of sets, read beside a stream that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from gateway.config import CopyTable
from gateway.copy import ChunkRequest, CopiedRow, Snapshot, row_of
from gateway.core.lsn import Lsn, parse_lsn
from gateway.routing.build.followed_tables import InnerTable
from gateway.runtime.copy.move_readers import MoveReaders
from gateway.runtime.copy.set_reads import SetReads
from gateway.source.catalog.tables import read_tables
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.subselects.moves.reads import MoveChunk, MoveRequest
from gateway.subselects.views import TableViews
from tests.support.backends.servers import Connection, Database
from tests.support.gateway.scene import TIMEOUT_S, current_lsn, value_of
from tests.support.run.majors import alternating
from tests.support.run.waiting import wait_until

pytestmark = pytest.mark.postgres

TABLES = r"""
CREATE TABLE orders (id int PRIMARY KEY, "who's" text, n int);
INSERT INTO orders VALUES (1, 'a', 1), (2, 'b''\', 1), (3, NULL, 1), (4, 'a', NULL), (5, 'c', 2),
    (6, 'a', 2), (7, 'a', 2);
"""
END = Lsn((1 << 64) - 1)


@pytest.fixture
def readers(database: Database) -> Iterator[MoveReaders]:
    settings = CopyTable(chunk_rows=2)
    made = MoveReaders(
        settings,
        open_reader=lambda on_wait: ChunkReader(database.dsn, slot="moves", on_wait=on_wait),
        wake=lambda: None,
        retry_s=0.01,
    )
    yield made
    made.close()


def source_of(connection: Connection, name: str) -> ChunkSource:
    oid = value_of(connection, "SELECT %s::regclass::oid", name)
    table = read_tables(connection, [oid])[oid]
    return ChunkSource(table, tuple(column.name for column in table.columns), ("id",))


def chunk(readers: MoveReaders) -> MoveChunk:
    """The next answer, wherever its position is."""

    def answer() -> MoveChunk | None:
        assert not readers.pop_failures()
        due = readers.due(END)
        return None if due is None else due[1]

    found = wait_until(answer, TIMEOUT_S, "an answer")
    assert found is not None
    return found


def ids(rows: list[CopiedRow]) -> list[bytes]:
    return [bytes(row_of(row)[0] or b"") for row in rows]  # type: ignore[arg-type]


@alternating(__name__, 16, 18)
def test_slices_and_keys_are_read_once_older_transactions_have_ended(
    database: Database, readers: MoveReaders
) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute(TABLES.encode())
        source = source_of(connection, "orders")
        slices = MoveRequest(1, ("who's",), ((b"a",), (b"b'\\",), (None,)))
        with other.transaction():
            running = value_of(other, "SELECT pg_current_xact_id()::text::bigint")
            readers.ask(source, slices)
            shown = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name ~ %s)"
            wait_until(
                lambda: value_of(connection, shown, "copy<[0-9]+ moves"),
                TIMEOUT_S,
                "the reader to say for which transactions it waits",
            )
            assert readers.due(END) is None
        before = parse_lsn(current_lsn(connection))

        first = chunk(readers)
        assert first.snapshot.sees(running)
        read = ids(list(first.rows))
        request = slices
        last = first
        while not last.end:
            request = replace(request, after=(read[-1],))
            readers.ask(source, request)
            last = chunk(readers)
            read += ids(list(last.rows))
        assert read == [b"1", b"2", b"3", b"4", b"6", b"7"]
        assert len(first.rows) == 2
        assert first.insert_lsn >= before

        # A value that another table can have, and this column cannot.
        readers.ask(source, MoveRequest(5, ("n",), ((b"3000000000",), (b"2",))))
        assert ids(list(chunk(readers).rows)) == [b"5", b"6"]
        # Two columns, one of them NULL; all at once, and by keys of which one is of no row.
        both = MoveRequest(2, ("who's", "n"), ((b"a", b"2"), (b"a", None)), whole=True)
        readers.ask(source, both)
        whole = chunk(readers)
        assert (ids(list(whole.rows)), whole.end) == ([b"4", b"6", b"7"], True)
        readers.ask(source, MoveRequest(3, keys=((b"5",), (b"9",))))
        keyed = chunk(readers)
        assert (ids(list(keyed.rows)), keyed.end) == ([b"5"], True)


def test_an_answer_waits_for_its_position_and_keeps_what_its_snapshot_does_not_see(
    database: Database, readers: MoveReaders
) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute(TABLES.encode())
        source = source_of(connection, "orders")
        assert readers.floors() is None
        readers.ask(source, MoveRequest(1, keys=((b"1",),)))
        wait_until(lambda: readers.awaited() is not None, TIMEOUT_S, "an answer")
        awaited = readers.awaited()
        assert awaited is not None
        assert readers.due(Lsn(awaited - 1)) is None

        # The server is made to write out the WAL until there, and beyond it.
        written = "SELECT pg_current_wal_flush_lsn() > %s::pg_lsn"
        where = f"{awaited >> 32:X}/{awaited & 0xFFFFFFFF:X}"
        wait_until(lambda: value_of(connection, written, where), TIMEOUT_S, "the WAL")

        later = value_of(other, "SELECT pg_current_xact_id()::text::bigint")
        readers.want_snapshot()

        def floors() -> list[Snapshot]:
            found = readers.floors()
            assert found is not None
            return found

        wait_until(lambda: any(s.sees(later) for s in floors()), TIMEOUT_S, "a snapshot")
        assert not all(snapshot.sees(later) for snapshot in floors())
        assert readers.due(awaited) is not None
        assert all(snapshot.sees(later) for snapshot in floors())


def test_a_lost_connection_is_opened_again_and_a_table_that_is_gone_is_named(
    database: Database, readers: MoveReaders
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        source = source_of(connection, "orders")
        readers.ask(source, MoveRequest(1, keys=((b"1",),)))
        chunk(readers)
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name ~ 'moves' AND datname = current_database()"
        )
        for number in (2, 3):
            readers.ask(source, MoveRequest(number, keys=((b"1",),)))
        assert {chunk(readers).request.number for _ in range(2)} == {2, 3}

        connection.execute("ALTER TABLE orders ADD more int")
        asked = MoveRequest(4, keys=((b"1",),))
        readers.ask(source, asked)
        failures = []

        def has_failed() -> bool:
            failures.extend(readers.pop_failures())
            return bool(failures)

        wait_until(has_failed, TIMEOUT_S, "the failure")
        assert (failures[0].source, failures[0].request) == (source, asked)
        assert "its columns are not those of the plan" in failures[0].error.message
        assert readers.has_room


def test_a_condition_of_slices_is_not_looked_at_as_one_that_somebody_gives(
    database: Database,
) -> None:
    with database.connect() as connection, ChunkReader(database.dsn) as reader:
        connection.execute(TABLES.encode())
        source = replace(source_of(connection, "orders"), slices="n = 2")
        found = reader.read(source, ChunkRequest(True, None, ()), 10)
        assert ids(list(found.rows)) == [b"5", b"6", b"7"]


def test_a_locked_table_of_sub_selects_is_read_after_the_others(database: Database) -> None:
    with database.connect() as connection, database.connect() as owner:
        connection.execute(
            "CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c (id int)"
        )
        tables = [
            read_tables(connection, [oid])[oid]
            for oid in (value_of(connection, "SELECT %s::regclass::oid", name) for name in "abc")
        ]
        reads = SetReads(
            open_reader=lambda on_wait: ChunkReader(
                database.dsn, slot="sets", on_wait=on_wait, lock_timeout_s=0.1
            ),
            wake=lambda: None,
            retry_s=0.01,
        )

        def next_read() -> str:
            due = wait_until(lambda: reads.due(END), TIMEOUT_S, "the rows of a table")
            assert due is not None
            return due[0].table.name

        # Any of them is the first: a transaction of another session that runs at the first look
        # puts off the table that was looked at.
        reads.read(InnerTable(each, ("id",), (), TableViews(each, ("id",), ())) for each in tables)
        with closing(reads):
            first = next_read()
            locked, free = (name for name in "abc" if name != first)
            with owner.transaction():
                owner.execute(f"LOCK TABLE {locked}")
                reads.placed()
                assert next_read() == free
            reads.placed()
            assert next_read() == locked
