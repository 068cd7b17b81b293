"""Feed usual, odd and mutated changes to both row paths: ``python -m tools.fuzz_rows``.

Tables, keys, filters and values are drawn; what a server would never send is among them. Both
forms must give the same records, byte for byte, or raise the same error.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from bench.fixed import FixedCatalog, OneId
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Collation,
    Column,
    FilterClause,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
)
from gateway.errors import ProtocolError, UnfitKind
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.records import Record
from gateway.routing import Router, RoutingSettings
from gateway.routing.compiled import INTERPRETED, why_not_built
from gateway.routing.routes import RelationRoutes
from gateway.transactions import Assembler, Transaction

__all__ = ["RowFuzzer"]

_OID: Final = 16384
_C: Final = Collation('pg_catalog."C"', deterministic=True, c_order=True)
_SCENE_CHANGES: Final = 400
_NOTHING: Final[frozenset[UnfitKind]] = frozenset()
_EVERYTHING: Final[frozenset[UnfitKind]] = frozenset({"filter", "value", "size"})
_ODD: Final = (
    *(b"", b"-", b"+5", b" 7", b"1_0", b"007", b"-0", b"NaN", b"Infinity", b"-Infinity", b"inf"),
    *(
        b"infinity",
        b"-infinity",
        b"1e400",
        b"1e39",
        b"1e-400",
        b"-0.0",
        b"0x10",
        b"t",
        b"f",
        b"yes",
    ),
    *(b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"9" * 40),
    *(b"0044-03-15 BC", b"10000-01-01", b"2024-02-30", b"2023-02-29", b"0000-01-01", b"2024-1-1"),
    *(b"2024-02-29 24:00:00", b"2024-02-29 23:59:60", b"2024-02-29 12:00:00.1234567"),
    *(b"2024-02-29 12:00:00+01", b"2024-02-29 12:00:00.5+05:30", b"294276-12-31 23:59:59.999999"),
    *(b"0001-01-01 00:00:00+00 BC", b"2024-02-29T12:00:00", b"2024-02-29 12:00:00.+00"),
    *(b"\\x", b"\\xABCD", b"\\x0", b"\\xzz", b"x00", b"\xff\xfe", b"a" * 300, b"1.", b".5", b"1.5"),
    *(b"-1.", b"12345678901234567890123456789012345678.00", b"0.00", b"-0.00", b"1.2.3"),
)


def _date(pick: random.Random) -> bytes:
    year = pick.choice((pick.randint(1970, 2030), pick.randint(1, 9999)))
    return b"%04d-%02d-%02d" % (year, pick.randint(1, 12), pick.randint(1, 28))


def _stamp(pick: random.Random) -> bytes:
    text = _date(pick) + b" %02d:%02d:%02d" % (
        pick.randrange(24), pick.randrange(60), pick.randrange(60)
    )  # fmt: skip
    size = pick.choice((0, 1, 2, 3, 4, 5, 6, 6, 6))
    return text + (b"." + b"%0*d" % (size, pick.randrange(10**size)) if size else b"")


def _decimal(pick: random.Random) -> bytes:
    return b"%d.%02d" % (pick.randint(-(10 ** pick.randint(0, 8)), 10**6), pick.randrange(100))


_KINDS: Final[Mapping[str, tuple[int, int, Callable[[random.Random], bytes]]]] = {
    "bool": (16, -1, lambda pick: pick.choice((b"t", b"f"))),
    "int4": (23, -1, lambda pick: b"%d" % pick.randint(-(10 ** pick.randint(0, 9)), 20)),
    "int8": (20, -1, lambda pick: b"%d" % pick.randint(-5, 10 ** pick.randint(0, 18))),
    "float4": (700, -1, lambda pick: repr(round(pick.uniform(-9, 9), 3)).encode()),
    "float8": (
        701,
        -1,
        lambda pick: repr(pick.uniform(-1, 1) * 10 ** pick.randint(-30, 30)).encode(),
    ),
    "numeric2": (1700, (10 << 16 | 2) + 4, _decimal),
    "numeric0": (1700, (38 << 16) + 4, lambda pick: b"%d" % pick.randint(-(10**30), 10**37)),
    "numeric": (1700, -1, _decimal),
    "bytea": (17, -1, lambda pick: b"\\x" + pick.randbytes(pick.randint(0, 9)).hex().encode()),
    "date": (1082, -1, _date),
    "timestamp": (1114, -1, _stamp),
    "timestamptz": (1184, -1, lambda pick: _stamp(pick) + b"+00"),
    "uuid": (2950, -1, lambda pick: b"00000000-0000-0000-0000-%012d" % pick.randrange(99)),
    "text": (25, -1, lambda pick: pick.choice((b"a", b"b", b"c", b"long " * 30))),
    "bpchar": (1042, -1, lambda pick: pick.choice((b"a", b"b")).ljust(pick.randint(1, 4))),
    "interval": (1186, -1, lambda pick: b"%d days" % pick.randrange(9)),
}
_FILTERS: Final = {
    "int4": ("({} > 5)", "((100 / {}) > 3)", "({} IS NULL)", "({} = 7)"),
    "int8": ("({} < 100)", "({} IS NOT NULL)"),
    "text": ("({} = 'a'::text)", "({} = ANY (ARRAY['a'::text, 'b'::text]))", "({} <> 'a'::text)"),
    "bool": ("{}", "(NOT {})"),
    "timestamptz": ("({} > '2000-01-01 00:00:00+00'::timestamp with time zone)",),
}


Outcome: TypeAlias = tuple[list[Record], str | None]
"""The records, and what ended them."""


@dataclass(slots=True)
class _Scene:
    """A table, who takes it, and a router in each form."""

    kinds: list[str]
    table: Table
    routers: list[Router]
    announced: bool = False


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

    # Scenes

    def _scene(self) -> _Scene:
        pick = self._pick
        kinds = [pick.choice(list(_KINDS)) for _ in range(pick.randint(1, 7))]
        columns = tuple(
            Column(
                f"c{n}", n + 1, oid, mod, kind, oid, mod, "b", False, "", _C if oid == 25 else None
            )
            for n, kind in enumerate(kinds)
            for oid, mod, _ in [_KINDS[kind]]
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
        plan = Plan({_OID: table}, definitions, publishes, (), ())
        partitions = pick.choice((1, 1, 7))
        topics = {f"{name}.public.t": partitions for name in subscriptions}
        settings = RoutingSettings(
            "gw",
            "db",
            "1",
            topics,
            tombstones=pick.random() < 0.7,
            quarantined=pick.choice((_NOTHING, _EVERYTHING)),
            most_bytes=pick.choice(({}, dict.fromkeys(topics, 300))),
        )
        return _Scene(kinds, table, [self._router(plan, settings, form) for form in ("1", "0")])

    def _router(self, plan: Plan, settings: RoutingSettings, form: str) -> Router:
        routes = RelationRoutes(plan, settings, FixedCatalog(), OneId())
        router = Router(routes, settings, now_ms=lambda: 1)
        (announcing,) = Assembler().push(_whole([_relation(plan.tables[_OID])], 0, None))
        assert isinstance(announcing, Transaction)
        list(router.route(announcing))
        before = os.environ.get(INTERPRETED)
        os.environ[INTERPRETED] = form
        try:
            self.outcomes["compiled"] += routes.by_oid[_OID].compiled is not None
        finally:
            del os.environ[INTERPRETED]
            if before is not None:
                os.environ[INTERPRETED] = before
        return router

    def _publish(
        self, name: str, kinds: Sequence[str], names: Sequence[str], identity: Sequence[str]
    ) -> Publish:
        pick = self._pick
        clauses: tuple[FilterClause, ...] = ()
        filterable = [n for n, kind in enumerate(kinds) if kind in _FILTERS]
        if filterable and pick.random() < 0.7:
            n = pick.choice(filterable)
            text = pick.choice(_FILTERS[kinds[n]]).format(names[n])
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
        return _whole(changes, pick.randrange(1 << pick.choice((20, 40, 62))), origin)

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
                text = pick.choice(_ODD) if drawn > 0.985 else _KINDS[kind][2](pick)
                data += (b"b" if drawn > 0.999 else b"t") + struct.pack(">I", len(text)) + text
        return data

    def _mutated(self, data: bytes) -> bytes:
        pick, mutated = self._pick, bytearray(data)
        at = pick.randrange(1, len(mutated))
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


def _difference(table: Table, frames: Sequence[bytes], *found: Outcome) -> str:
    (records, error), (others, another) = found
    at = next((n for n, pair in enumerate(zip(records, others)) if pair[0] != pair[1]), -1)  # noqa: B905
    shown = [f"{table}: {[column.type_name for column in table.columns]}"]
    shown += [frame.hex() for frame in frames]
    shown += [f"{len(records)} and {len(others)} records; {error}; {another}"]
    return "\n".join([*shown, f"{records[at]}", f"{others[at]}"] if at >= 0 else shown)


def _route(router: Router, transaction: Transaction) -> Outcome:
    records: list[Record] = []
    try:
        for piece in router.route(transaction):
            records += piece
    except Exception as error:  # of any kind, where the text is one that no server sends
        return records, f"{type(error).__name__}: {error}"
    return records, None


def _whole(changes: Sequence[bytes], lsn: int, origin: bytes | None) -> list[bytes]:
    header = b"w" + struct.pack(">QQq", lsn, lsn, 0)
    messages = [b"B" + struct.pack(">QqI", lsn, 0, 7)]
    if origin is not None:
        messages.append(b"O" + struct.pack(">Q", 1) + origin + b"\0")
    messages += [*changes, b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0)]
    return [header + message for message in messages]


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
