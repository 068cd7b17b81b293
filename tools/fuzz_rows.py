"""Feed usual, odd and mutated changes to both row paths: ``python -m tools.fuzz_rows``.

Tables, keys, filters and values are drawn, for changes and for the lines of a copy; what a server
would never send is among them. Both forms must give the same records, byte for byte, or raise the
same error.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from bench.fixed import FixedCatalog, OneId
from gateway._speedups.loader import INTERPRETED
from gateway.copy import CopiedRow
from gateway.core.errors import ProtocolError, UnfitKind
from gateway.core.records import Record
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Collation,
    Column,
    Element,
    FilterClause,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
    TableCopy,
)
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.routing import Router, RoutingSettings
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.copied_rows import CopyRoute
from gateway.routing.row.native import why_not_built
from gateway.routing.row.transaction_state import TransactionState
from gateway.transactions import Assembler, Event, Series, Transaction
from schemas.settings.tables import EnvelopeTable, TopicsTable, TypesTable
from tools.fuzz_values import KINDS, ODD

__all__ = ["RowFuzzer"]

_OID: Final = 16384
_C: Final = Collation('pg_catalog."C"', deterministic=True, c_order=True)
_SCENE_CHANGES: Final = 400
_BEFORE_1970: Final = -946_684_800_000_001
"""The last moment before 1970, as PostgreSQL counts."""

_NATIVE: Final = TypesTable(
    time="native", arrays="native", interval="native", ranges="native", geometry="native"
)
_ENVELOPES: Final = (
    EnvelopeTable(),
    EnvelopeTable(format="debezium"),
    EnvelopeTable(subscriptions={"s1": "debezium"}),
)
_NOTHING: Final[frozenset[UnfitKind]] = frozenset()
_EVERYTHING: Final[frozenset[UnfitKind]] = frozenset({"filter", "value", "size"})
_FILTERS: Final = {
    "int4": (
        *("({} > 5)", "((100 / {}) > 3)", "({} IS NULL)", "({} = 7)", "(({})::numeric > 5.5)"),
        *("({} = ANY (ARRAY[1, 7, 9]))", "({} <> ALL (ARRAY[1, NULL::integer, 9]))"),
        *("(({} >= 1) AND ({} <= 9))", "(({} IS NOT NULL) OR ({} > 5))"),
        "(({} IS DISTINCT FROM 7) OR ({} IS NULL))",
    ),
    "int8": ("({} < 100)", "({} IS NOT NULL)", "({} <> '9223372036854775807'::bigint)"),
    "text": (
        *("({} = 'a'::text)", "({} = ANY (ARRAY['a'::text, 'b'::text]))", "({} <> 'a'::text)"),
        *(
            "({} >= 'b'::text)",
            "(substr({}, 1, 1) = 'a'::text)",
            "({} <> ALL (ARRAY['a'::text, 'c'::text]))",
        ),
    ),
    "bpchar": ("({} = 'a'::bpchar)", "({} = ANY (ARRAY['a'::bpchar, 'c '::bpchar]))"),
    "bool": ("{}", "(NOT {})", "({} IS NOT TRUE)", "({} = false)"),
    "float4": ("({} > (1.5)::double precision)", "({} <= '-3'::real)"),
    "float8": ("({} < (0)::double precision)", "({} <> '1e-5'::double precision)"),
    "numeric": (
        *("({} > 5.5)", "({} = (0)::numeric)", "({} <= '-100'::numeric)", "(({} * 2) > 3.0)"),
        "({} = ANY (ARRAY[1.5, 0.00]))",
    ),
    "numeric2": ("({} >= 0.01)", "({} < 12345678901234567890.5)"),
    "date": ("({} >= '2001-01-01'::date)", "({} = 'infinity'::date)", "({} < 'infinity'::date)"),
    "timestamp": (
        "({} < '2001-02-03 04:05:06.7'::timestamp without time zone)",
        "({} > '-infinity'::timestamp without time zone)",
    ),
    "timestamptz": (
        "({} > '2000-01-01 00:00:00+00'::timestamp with time zone)",
        "({} IS DISTINCT FROM 'infinity'::timestamp with time zone)",
    ),
    "uuid": ("({} > '00000000-0000-0000-0000-000000000050'::uuid)",),
}


Outcome: TypeAlias = tuple[list[Record], str | None]
"""The records, and what ended them."""


@dataclass(slots=True)
class _Scene:
    """A table, who takes it, and a router in each form."""

    kinds: list[str]
    table: Table
    routers: list[Router]
    copies: list[CopyRoute]
    routes: list[RelationRoutes]


class RowFuzzer:
    """Makes changes of a seed and routes them twice.

    Attributes:
        outcomes: How often what happened, to show that both forms were reached.
    """

    def __init__(self, seed: int) -> None:
        self._pick = random.Random(seed)
        self.outcomes: Counter[str] = Counter()

    def run(self, changes: int) -> None:
        """Try so many changes.

        Raises:
            AssertionError: the forms differ; with the frames.
        """
        done = 0
        while done < changes:
            scene = self._scene()
            for _ in range(_SCENE_CHANGES // 4):
                size = self._pick.randint(1, 8)
                done += size
                self._try(scene, size)
                self._try_copy(scene, size)
                self._try_series(scene, size)

    def _try(self, scene: _Scene, size: int) -> None:
        frames = self._frames(scene, size)
        try:
            (transaction,) = Assembler().push(frames)
        except (ProtocolError, ValueError):
            self.outcomes["no transaction"] += 1
            return
        assert isinstance(transaction, Transaction)
        found = [_route(router, transaction) for router in scene.routers]
        if found[0] != found[1]:
            raise AssertionError(_difference(scene.table, frames, *found))
        tallies = [router.tally() for router in scene.routers]
        assert tallies[0] == tallies[1], f"{tallies}\n{[frame.hex() for frame in frames]}"
        records, error = found[0]
        self.outcomes["records"] += len(records)
        self.outcomes["failed" if error else "routed"] += 1

    def _try_series(self, scene: _Scene, size: int) -> None:
        frames: list[bytes] = []
        for _ in range(size):
            frames += self._frames(scene, self._pick.choice((1, 1, 2, 5)))
        one, other = scene.routers
        for routes in scene.routes:
            for counter in routes.addresses.counters.values():
                counter.end_copy(rows=False)  # of a transaction that has failed
        transactions, pushed = (_pushed(Assembler(series=each), frames) for each in (False, True))
        if isinstance(transactions, str) or isinstance(pushed, str):
            assert transactions == pushed, f"{[frame.hex() for frame in frames]}"
            self.outcomes["no series"] += 1
            return
        found = self._route_all(one, transactions), self._route_all(other, pushed)
        if found[0] != found[1]:
            raise AssertionError(_difference(scene.table, frames, *found))
        assert one.tally() == other.tally(), f"{[frame.hex() for frame in frames]}"
        assert one.ended == other.ended, f"{[frame.hex() for frame in frames]}"
        self.outcomes["series failed" if found[0][1] else "series"] += 1

    def _route_all(self, router: Router, events: Sequence[Event]) -> Outcome:
        records: list[Record] = []
        for event in events:
            while isinstance(event, Series) and event:
                if (
                    routed := router.route_series(event, self._pick.choice((1, 20, 1_000)))
                ) is not None:
                    records += routed.records
                    self.outcomes["transactions in series"] += routed.transactions
                    continue
                made, error = _route(router, event.pop())
                records += made
                if error is not None:
                    return records, error
            if isinstance(event, Transaction):
                made, error = _route(router, event)
                records += made
                if error is not None:
                    return records, error
        return records, None

    def _try_copy(self, scene: _Scene, size: int) -> None:
        pick = self._pick
        lsn = pick.randrange(1, 1 << pick.choice((20, 40, 62)))
        rows = [self._copied(scene, scene.copies[0].columns) for _ in range(size)]
        found = [_copy(route, rows, lsn) for route in scene.copies]
        if found[0] != found[1]:
            raise AssertionError(_difference(scene.table, rows, *found))
        tallies = [router.tally() for router in scene.routers]
        assert tallies[0] == tallies[1], f"{tallies}\n{rows}"
        records, error = found[0]
        self.outcomes["copied records"] += len(records)
        self.outcomes["copy failed" if error else "copied"] += 1

    # Scenes

    def _scene(self) -> _Scene:
        pick = self._pick
        kinds = [pick.choice(list(KINDS)) for _ in range(pick.randint(1, 7))]
        columns = tuple(
            Column(
                f"c{n}",
                n + 1,
                oid,
                mod,
                kind,
                oid,
                mod,
                "b",
                False,
                "",
                _C if oid in (25, 1042) else None,
                element=None if item is None else Element(*KINDS[item][:2], item, "b"),
            )
            for n, kind in enumerate(kinds)
            for oid, mod, _ in [KINDS[kind]]
            for item in [kind.removesuffix("[]") if kind.endswith("[]") else None]
        )
        names = [column.name for column in columns]
        identity = tuple(sorted(pick.sample(names, pick.randint(1, min(2, len(names))))))
        replica = pick.choice((ReplicaIdentity.DEFAULT,) * 3 + (ReplicaIdentity.FULL,))
        primary = identity if replica is ReplicaIdentity.DEFAULT or pick.random() < 0.5 else ()
        if replica is ReplicaIdentity.FULL:
            identity = tuple(names)
        table = Table(_OID, "public", "t", "r", columns, replica, identity, primary)
        subscriptions = [f"s{n}" for n in range(pick.choice((1, 1, 2, 4)))]
        publishes = tuple(self._publish(name, kinds, names, identity) for name in subscriptions)
        definitions = tuple(
            SubscriptionDefinition(name, ("p",), origin=pick.choice(("any", "any", "none")))
            for name in subscriptions
        )
        copies = tuple(
            TableCopy(p.subscription, _OID, p.filters[Operation.INSERT], p.columns or tuple(names))
            for p in publishes
        )
        plan = Plan(
            *({_OID: table}, definitions, publishes, copies, ()), topics=self._topics(identity)
        )
        partitions = pick.choice((1, 1, 7))
        topics = {f"{name}.public.t": partitions for name in subscriptions}
        settings = RoutingSettings(
            "gw",
            "db",
            "1",
            topics,
            tombstones=pick.random() < 0.7,
            types=pick.choice((TypesTable(), _NATIVE)),
            envelope=pick.choice(_ENVELOPES),
            quarantined=pick.choice((_NOTHING, _EVERYTHING)),
            most_bytes=pick.choice(({}, dict.fromkeys(topics, 300))),
        )
        routes = [RelationRoutes(plan, settings, FixedCatalog(), OneId()) for _ in range(2)]
        forms = [
            self._router(each, plan, settings, form)
            for each, form in zip(routes, ("1", "0"), strict=True)
        ]
        routers, copied = [router for router, _ in forms], [route for _, route in forms]
        return _Scene(kinds, table, routers, copied, routes)

    def _topics(self, logged: Sequence[str]) -> TopicsTable:
        """Return the columns chosen for key and partition, of those whose old values are logged."""
        pick = self._pick
        keys, partition_by = (
            {"public.t": tuple(pick.sample(logged, pick.randint(1, len(logged))))}
            if pick.random() < 0.3
            else {}
            for _ in range(2)
        )
        return TopicsTable(keys=keys, partition_by=partition_by)

    def _router(
        self, routes: RelationRoutes, plan: Plan, settings: RoutingSettings, form: str
    ) -> tuple[Router, CopyRoute]:
        before = os.environ.get(INTERPRETED)
        os.environ[INTERPRETED] = form
        try:
            router = Router(routes, settings, now_ms=lambda: 1)
            (announcing,) = Assembler().push(_whole([_relation(plan.tables[_OID])], 0, None))
            assert isinstance(announcing, Transaction)
            list(router.route(announcing))
            self.outcomes["compiled"] += routes.by_oid[_OID].compiled is not None
            table = plan.tables[_OID]
            route = routes.copy_route(plan.copies, table.primary_key or table.identity)
            self.outcomes["copies compiled"] += route.compiled is not None
        finally:
            del os.environ[INTERPRETED]
            if before is not None:
                os.environ[INTERPRETED] = before
        return router, route

    def _publish(
        self, name: str, kinds: Sequence[str], names: Sequence[str], identity: Sequence[str]
    ) -> Publish:
        pick = self._pick
        clauses: tuple[FilterClause, ...] = ()
        filterable = [n for n, kind in enumerate(kinds) if kind in _FILTERS]
        if filterable and pick.random() < 0.7:
            n = pick.choice(filterable)
            text = pick.choice(_FILTERS[kinds[n]]).replace("{}", names[n])
            clauses = (FilterClause("p", _OID, text),)
        filters: dict[Operation, tuple[FilterClause, ...]] = {
            o: clauses for o in ALL_OPERATIONS if o is not Operation.TRUNCATE
        }
        columns = None
        if pick.random() < 0.2:
            columns = tuple(n for n in names if n in identity or pick.random() < 0.5)
        return Publish(name, _OID, _OID, ALL_OPERATIONS, filters, columns)

    # Frames

    def _frames(self, scene: _Scene, size: int) -> list[bytes]:
        pick = self._pick
        changes = [self._change(scene) for _ in range(size)]
        origin = b"o1" if pick.random() < 0.1 else None
        lsn = pick.randrange(1 << pick.choice((20, 40, 62)))
        starts = [pick.randrange(lsn + 1) for _ in changes]
        times = (0, 1, 999, _BEFORE_1970, _BEFORE_1970 + 1, pick.randrange(1 << 59))
        return _whole(changes, lsn, origin, pick.randrange(1 << 32), pick.choice(times), starts)

    def _change(self, scene: _Scene) -> bytes:
        pick = self._pick
        oid = struct.pack(">I", _OID)
        full = scene.table.replica_identity is ReplicaIdentity.FULL
        old = b"O" if full else b"K"
        match pick.randrange(6):
            case 0 | 1:
                data = b"I" + oid + b"N" + self._tuple(scene, key_only=False, unsent=0.002)
            case 2:
                data = b"U" + oid + b"N" + self._tuple(scene, key_only=False, unsent=0.1)
            case 3 | 4:
                before = old + self._tuple(scene, key_only=not full, unsent=0.002)
                data = b"U" + oid + before + b"N" + self._tuple(scene, key_only=False, unsent=0.1)
            case _:
                data = b"D" + oid + old + self._tuple(scene, key_only=not full, unsent=0.002)
        return self._mutated(data) if pick.random() < 0.03 else data

    def _tuple(self, scene: _Scene, *, key_only: bool, unsent: float) -> bytes:
        pick = self._pick
        data = struct.pack(">H", len(scene.kinds))
        for n, kind in enumerate(scene.kinds):
            drawn = pick.random()
            if key_only and f"c{n}" not in scene.table.identity:
                data += b"n"
            elif drawn < unsent:
                data += b"u"
            elif drawn < unsent + 0.04:
                data += b"n"
            else:
                text = pick.choice(ODD) if drawn > 0.985 else KINDS[kind][2](pick)
                data += (b"b" if drawn > 0.999 else b"t") + struct.pack(">I", len(text)) + text
        return data

    def _copied(self, scene: _Scene, columns: Sequence[str]) -> CopiedRow:
        pick = self._pick
        row: list[bytes | None] = []
        for name in columns:
            drawn = pick.random()
            text = KINDS[scene.kinds[int(name[1:])]][2](pick)
            row.append(None if drawn < 0.04 else pick.choice(ODD) if drawn > 0.985 else text)
        if pick.random() < 0.1:
            return row
        line = b"\t".join(rb"\N" if text is None else _escaped(text) for text in row) + b"\n"
        return self._mutated(line) if pick.random() < 0.03 else line

    def _mutated(self, data: bytes) -> bytes:
        pick, mutated = self._pick, bytearray(data)
        at = pick.randrange(1, max(2, len(mutated)))
        match pick.randrange(5):
            case 0:
                mutated[at : at + 1] = pick.randbytes(1)
            case 1:
                del mutated[at:]
            case 2:
                mutated[at:at] = pick.randbytes(pick.randint(1, 8))
            case 3:
                mutated[at : at + 4] = pick.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
            case _:
                del mutated[at : at + pick.randint(1, 8)]
        return bytes(mutated)


def _difference(table: Table, inputs: Sequence[CopiedRow], *found: Outcome) -> str:
    (records, error), (others, another) = found
    at = next((n for n, pair in enumerate(zip(records, others)) if pair[0] != pair[1]), -1)  # noqa: B905
    shown = [f"{table}: {[column.type_name for column in table.columns]}"]
    shown += [each.hex() if isinstance(each, bytes) else repr(each) for each in inputs]
    shown += [f"{len(records)} and {len(others)} records; {error}; {another}"]
    return "\n".join([*shown, f"{records[at]}", f"{others[at]}"] if at >= 0 else shown)


def _pushed(assembler: Assembler, frames: Sequence[bytes]) -> list[Event] | str:
    try:
        return assembler.push(frames)
    except (ProtocolError, ValueError) as error:
        return str(error)


def _route(router: Router, transaction: Transaction) -> Outcome:
    records: list[Record] = []
    try:
        for piece in router.route(transaction):
            records += piece
    except Exception as error:  # of any kind, where the text is one that no server sends
        return records, f"{type(error).__name__}: {error}"
    return records, None


def _copy(route: CopyRoute, rows: Sequence[CopiedRow], lsn: int) -> Outcome:
    context = TransactionContext("gw", "db", "1", None, lsn, 0, None, "true", 1)
    tx = TransactionState(context, HeaderMaker(lsn, None))
    records: list[Record] = []
    try:
        for piece in route.publish(rows, lsn, tx):
            records += piece
    except Exception as error:
        return records, f"{type(error).__name__}: {error}"
    return records, None


def _escaped(text: bytes) -> bytes:
    for letter, code in zip(b"\\\b\f\n\r\t\v", b"\\bfnrtv", strict=True):
        text = text.replace(bytes((letter,)), b"\\" + bytes((code,)))
    return text


def _whole(
    changes: Sequence[bytes],
    lsn: int,
    origin: bytes | None,
    xid: int = 7,
    time: int = 0,
    starts: Sequence[int] = (0,),
) -> list[bytes]:
    """Make the frames of a transaction; `starts` are the positions of its changes."""
    header = b"w" + struct.pack(">QQq", lsn, lsn, 0)
    frames = [header + b"B" + struct.pack(">QqI", lsn, time, xid)]
    if origin is not None:
        frames.append(header + b"O" + struct.pack(">Q", 1) + origin + b"\0")
    for start, change in zip(starts, changes, strict=True):
        frames.append(b"w" + struct.pack(">QQq", start, start, 0) + change)
    frames.append(header + b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, time))
    return frames


def _relation(table: Table) -> bytes:
    data = b"R" + struct.pack(">I", _OID) + b"public\0t\0" + table.replica_identity.value.encode()
    data += struct.pack(">H", len(table.columns))
    for column in table.columns:
        data += struct.pack(">B", column.name in table.identity) + column.name.encode() + b"\0"
        data += struct.pack(">Ii", column.type_oid, column.type_modifier)
    return data


def main() -> int:
    """Try inputs of one seed; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if (why := why_not_built()) is not None:
        print(f"fuzz_rows: nothing is compiled here: {why}", file=sys.stderr)
        return 1
    fuzzer, started = RowFuzzer(arguments.seed), time.monotonic()
    fuzzer.run(arguments.inputs)
    print(f"{arguments.inputs:,} changes in {time.monotonic() - started:.0f} s")
    for outcome, count in fuzzer.outcomes.most_common():
        print(f"  {outcome:16} {count:12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
