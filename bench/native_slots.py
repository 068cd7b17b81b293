"""What many native subscriptions cost the source: a slot and a walsender for each, with a filter.

One table, one load, and as many publications ``WHERE (region = '...')`` as there are slots, all of
them made before the load; so each slot reads all of it. The slots are drained one after another by
the replication connection of the gateway, which keeps nothing. CPU is user and system time of each
walsender from the start of its stream to its end, in the kernel's ticks of usually 10 ms; a count
of slots that is too small for them is drained several times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import psycopg

from bench.processes import BenchError, cpu_s
from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.descriptors import wait_readable
from gateway.core.lsn import ZERO_LSN, Lsn, parse_lsn
from gateway.source.stream.connection import ReplicationConnection

__all__ = ["REGIONS", "Drain", "NativeSlots", "region_of"]

REGIONS: Final = 100
"""Different ones, so that a subscription takes 1 % of the rows."""

_UNFILTERED: Final = "unfiltered"
_ROWS_PER_TRANSACTION: Final = 100
_LEAST_DRAINS: Final = 10
_TIMEOUT_S: Final = 120.0
_KEEPALIVE: Final = ord("k")


def region_of(number: int) -> str:
    """The region that subscription `number` takes; from `REGIONS` on they are taken again."""
    return f"region {number % REGIONS}"


@dataclass(frozen=True, slots=True)
class Drain:
    """CPU in microseconds per row of the table: of the walsenders, and of who receives."""

    walsenders: float
    receiving: float


class NativeSlots:
    """A server with one slot without a filter, and `slots` with one each.

    Args:
        slots: How many; the server is set up for them.
        rows: Of the table, in each load.
    """

    def __init__(self, slots: int, rows: int) -> None:
        self._slots = slots
        self._rows = rows
        self._numbers = count()
        senders = {"max_replication_slots": str(slots + 10), "max_wal_senders": str(slots + 10)}
        self._postgres = EmbeddedPostgres(18, config=senders)

    @contextmanager
    def loaded(self, *, taken: bool) -> Iterator[None]:
        """Start the server, make the slots, write the rows; each of a subscription's or nobody's.

        Raises:
            ServerError: the server did not start.
        """
        with self._postgres, self._postgres.connect() as connection:
            connection.execute(
                'CREATE TABLE orders (id bigint, region text COLLATE "C", note text,'
                " PRIMARY KEY (id, region))"
            )
            connection.execute(f"CREATE PUBLICATION {_UNFILTERED} FOR TABLE orders".encode())
            self._make_slot(connection, _UNFILTERED)
            for number in range(self._slots):
                connection.execute(
                    f"CREATE PUBLICATION native_{number} FOR TABLE orders"
                    f" WHERE (region = '{region_of(number)}')".encode()
                )
                self._make_slot(connection, f"native_{number}")
            region = f"'region ' || (i % {REGIONS})" if taken else "'nowhere'"
            connection.execute(
                "DO $$BEGIN FOR i IN 1.."
                f"{self._rows} LOOP INSERT INTO orders VALUES"
                f" (i, {region}, 'some text that nobody reads');"
                f" IF i % {_ROWS_PER_TRANSACTION} = 0 THEN COMMIT; END IF;"
                " END LOOP; END$$".encode()
            )
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            self._end = parse_lsn(str(row[0]))
            self._connection = connection
            yield

    def unfiltered(self) -> Drain:
        """Drain the slot that has everything, as the gateway's would be."""
        return self._drained([_UNFILTERED])

    def filtered(self, slots: int) -> Drain:
        """Drain the first `slots` slots; the sum of all."""
        return self._drained([f"native_{number}" for number in range(slots)])

    def _drained(self, names: list[str]) -> Drain:
        times = -(-_LEAST_DRAINS // len(names))
        walsenders = receiving = 0.0
        for _ in range(times):
            for name in names:
                one = self._drain(name)
                walsenders += one.walsenders
                receiving += one.receiving
        per_row = 1e6 / times / self._rows
        return Drain(walsenders * per_row, receiving * per_row)

    def _drain(self, name: str) -> Drain:
        """Read one slot to the end without confirming anything; in seconds."""
        self._wait_until_free(name)
        own_name = f"drain {next(self._numbers)}"
        with ReplicationConnection(self._postgres.dsn(), application_name=own_name) as source:
            pid = self._walsender(own_name)
            before, own = cpu_s(pid), time.process_time()
            source.start(name, [name], version=4, streaming="parallel")
            self._read_to_end(source)
            return Drain(cpu_s(pid) - before, time.process_time() - own)

    def _read_to_end(self, source: ReplicationConnection) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            frames = source.receive(2_000)
            if any(f[0] == _KEEPALIVE and int.from_bytes(f[1:9]) >= self._end for f in frames[-5:]):
                return
            if not frames and not wait_readable([source.fileno()], 0.1):
                source.send_feedback(ZERO_LSN, write_lsn=Lsn(0), reply_requested=True)
        raise BenchError(f"a slot was not drained within {_TIMEOUT_S:.0f} s")

    def _wait_until_free(self, slot: str) -> None:
        """The walsender of the drain before may still be there."""
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        deadline = time.monotonic() + _TIMEOUT_S
        while self._connection.execute(query, [slot]).fetchone() == (True,):
            if time.monotonic() > deadline:
                raise BenchError(f"slot {slot} is still in use")
            time.sleep(0.01)

    def _walsender(self, name: str) -> int:
        row = self._connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [name]
        ).fetchone()
        if row is None:
            raise BenchError(f"there is no walsender {name}")
        pid: Any = row[0]
        return int(pid)

    @staticmethod
    def _make_slot(connection: psycopg.Connection[Any], name: str) -> None:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
