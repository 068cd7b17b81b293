"""What routing costs a row, compiled beside interpreted: ``python -m bench.rows``.

From frames to records, in this process: assembling, routing, END markers. The table has seven
columns, the changes are those of `bench.load` (83 inserts, 12 updates, 5 deletes in a hundred), in
transactions of 1, 10 and 1,000 changes; 50 columns, and arrays, beside it. Times are the best of
several rounds; only the ratios mean something on another machine.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.encode import COLUMNS, make_rows
from bench.fixed import FixedCatalog, OneId
from gateway._speedups.loader import INTERPRETED
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Collation,
    Column,
    Element,
    FilterClause,
    Masks,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
)
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.routing import Router, RoutingSettings
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.native import why_not_built
from gateway.transactions import Assembler, Event, Series, Transaction
from schemas.settings.masks import Mask
from schemas.settings.tables import EnvelopeTable, TypeMode, TypesTable

__all__ = ["run"]

ROUNDS = 5
_AT_ONCE = 2_000  # frames, as the gateway takes them
CHANGES = 20_000
SIZES = (1, 10, 1_000)
_OID = 16384
_TYPES = TypesTable()
_ENVELOPE = EnvelopeTable()
_C = Collation('pg_catalog."C"', deterministic=True, c_order=True)


def run() -> None:
    """Measure and print."""
    print(f"\nCPU us a change, frames to records; load average {os.getloadavg()[0]:.1f}\n")
    print(f"{'':46}{'interpreted':>12}{'compiled':>10}{'ratio':>8}")
    everything = _router(COLUMNS, None)
    for size in SIZES:
        title = f"7 columns, transactions of {size:,}"
        _report(title, everything, _load(COLUMNS, make_rows(), size))
    frames = _load(COLUMNS, make_rows(), 1_000)
    _report("7 columns, a filter that passes 10 %", _router(COLUMNS, "(quantity < 100)"), frames)
    _report("7 columns, a filter that passes none", _router(COLUMNS, "(quantity < 0)"), frames)
    masks = (("name", Mask("hash")), ("note", Mask("null")))
    _report("7 columns, one hashed, one null", _router(COLUMNS, None, masks), frames)
    debezium, alone = EnvelopeTable(format="debezium"), EnvelopeTable(format="row")
    _report(
        "7 columns, for Debezium's consumers", _router(COLUMNS, None, envelope=debezium), frames
    )
    _report("7 columns, without an envelope", _router(COLUMNS, None, envelope=alone), frames)
    wide = [("id", 20, -1, "bigint"), *((f"c{n}", 25, -1, "text") for n in range(49))]
    rows = [(b"%d" % n, *(b"value %d" % (n * c) for c in range(49))) for n in range(1000)]
    _report("50 columns, transactions of 1,000", _router(wide, None), _load(wide, rows, 1_000))
    lists = [*wide[:15], *((f"a{n}", 1007, -1, "integer[]") for n in range(5))]
    rows = [
        (*row[:15], *(b"{%d,NULL,%d}" % (n, n * c) for c in range(5))) for n, row in enumerate(rows)
    ]
    modes: tuple[TypeMode, ...] = ("text", "native")
    for mode in modes:
        types = TypesTable(arrays=mode)
        title = f"20 columns, five of them arrays ({mode})"
        _report(title, _router(lists, None, types=types), _load(lists, rows, 1_000))


def _report(title: str, make: Any, frames: Sequence[bytes]) -> None:
    times: dict[str, float] = {}
    before = os.environ.get(INTERPRETED, "0")
    for form in ("1", "0"):
        os.environ[INTERPRETED] = form
        times[form] = _measure(make(), frames)
    os.environ[INTERPRETED] = before
    if (why := why_not_built()) is not None:
        print(f"{title:46}{times['1']:12.2f}  {why}")
        return
    print(
        f"{title:46}{times['1']:12.2f}{times['0']:10.2f}{times['1'] / times['0']:8.1f}", flush=True
    )


def _measure(router: Router, frames: Sequence[bytes]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        assembler = Assembler(series=True)
        for first in range(0, len(frames), _AT_ONCE):
            for event in assembler.push(frames[first : first + _AT_ONCE]):
                _route(router, event)
        best = min(best, time.process_time() - started)
    return best / CHANGES * 1e6


def _route(router: Router, event: Event) -> None:
    while isinstance(event, Series) and event:
        if router.route_series(event, 5_000) is None:
            _route(router, event.pop())
    if isinstance(event, Transaction):
        for _records in router.route(event):
            pass


def _router(
    columns: Sequence[tuple[str, int, int, str]],
    where: str | None,
    masks: Masks = (),
    types: TypesTable = _TYPES,
    envelope: EnvelopeTable = _ENVELOPE,
) -> Any:
    described = tuple(
        Column(
            *(n, i, oid, mod, text, oid, mod, "b", False, "", _C if oid == 25 else None),
            element=Element(23, -1, "integer", "b") if text == "integer[]" else None,
        )
        for i, (n, oid, mod, text) in enumerate(columns, 1)
    )
    table = Table(
        _OID, "public", "orders", "r", described, ReplicaIdentity.DEFAULT, ("id",), ("id",)
    )
    clauses = () if where is None else (FilterClause("p", _OID, where),)
    filters: dict[Operation, tuple[FilterClause, ...]] = {
        o: clauses for o in ALL_OPERATIONS if o is not Operation.TRUNCATE
    }
    plan = Plan(
        {_OID: table},
        (SubscriptionDefinition("s", ("p",)),),
        (Publish("s", _OID, _OID, ALL_OPERATIONS, filters, None, masks=masks),),
        (),
        (),
    )
    topics = {"s.public.orders": 1}
    settings = RoutingSettings(
        *("bench", "bench", "1", topics), types=types, envelope=envelope, hash_key=b"k" * 32
    )

    def make() -> Router:
        return Router(RelationRoutes(plan, settings, FixedCatalog(), OneId()), settings)

    return make


def _load(
    columns: Sequence[tuple[str, int, int, str]], rows: Sequence[tuple[bytes, ...]], size: int
) -> list[bytes]:
    frames = []
    announced = _relation(columns)
    for first in range(0, CHANGES, size):
        lsn = 1_000_000 + first * 100
        header = b"w" + struct.pack(">QQq", lsn, lsn, 0)
        frames.append(header + b"B" + struct.pack(">QqI", lsn, 0, 7))
        if first == 0:
            frames.append(header + announced)
        frames += [header + change for change in _changes(rows, first, size)]
        frames.append(header + b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0))
    return frames


def _relation(columns: Sequence[tuple[str, int, int, str]]) -> bytes:
    relation = b"R" + struct.pack(">I", _OID) + b"public\0orders\0d"
    relation += struct.pack(">H", len(columns))
    for name, oid, modifier, _ in columns:
        relation += struct.pack(">B", name == "id") + name.encode() + b"\0"
        relation += struct.pack(">Ii", oid, modifier)
    return relation


def _changes(rows: Sequence[tuple[bytes, ...]], first: int, size: int) -> Iterator[bytes]:
    oid = struct.pack(">I", _OID)
    for number in range(first, first + size):
        row = rows[number % len(rows)]
        match number % 100:
            case n if n < 83:
                yield b"I" + oid + b"N" + _tuple(row)
            case n if n < 95:
                yield b"U" + oid + b"N" + _tuple(row)
            case _:
                yield b"D" + oid + b"K" + _tuple((row[0], *[None] * (len(row) - 1)))


def _tuple(row: Sequence[bytes | None]) -> bytes:
    data = struct.pack(">H", len(row))
    for value in row:
        data += b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value
    return data


if __name__ == "__main__":
    run()
