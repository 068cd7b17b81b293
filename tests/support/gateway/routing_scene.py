"""Tables, publications and a router for the tests of routing: messages in, decoded records out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro

from gateway.core.errors import UnfitKind
from gateway.core.lsn import Lsn
from gateway.core.records import Record
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Column,
    FilterClause,
    Masks,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
    TableCopy,
    TableId,
)
from gateway.pgoutput.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Message,
    OldTuple,
    OldTupleKind,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Update,
)
from gateway.pgtypes.binary import TypeInfo
from gateway.routing import Router, RoutingSettings
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.ports import CatalogReader, Evaluator
from gateway.routing.row.inner_changes import InnerChanges
from gateway.transactions import Assembler, Series, Transaction
from schemas.headers import DEBEZIUM_HEADERS
from schemas.settings.tables import EnvelopeTable, TopicsTable, TypesTable
from tests.support.models.pgoutput_encode import xlogdata

T1 = 16384
PARENT, CHILD, OTHER_CHILD = 16400, 16401, 16402


def column(name: str, attnum: int, type_oid: int = 23, type_name: str = "integer") -> Column:
    return Column(name, attnum, type_oid, -1, type_name, type_oid, -1, "b", False, "", None)


def table(
    oid: int,
    name: str,
    columns: Sequence[Column],
    *,
    identity: tuple[str, ...] = ("a",),
    replica_identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
    primary_key: tuple[str, ...] = ("a",),
    kind: str = "r",
    ancestors: tuple[int, ...] = (),
    leaves: tuple[int, ...] = (),
) -> Table:
    return Table(
        oid,
        "public",
        name,
        kind,
        tuple(columns),
        replica_identity,
        identity,
        primary_key,
        ancestors,
        leaves,
    )


TWO_COLUMNS = (column("a", 1), column("b", 2))
T1_TABLE = table(T1, "t1", TWO_COLUMNS)


def publish(
    subscription: str = "s",
    where: str | None = None,
    *,
    relation: int = T1,
    target: int | None = None,
    operations: frozenset[Operation] = ALL_OPERATIONS,
    columns: tuple[str, ...] | None = None,
    masks: Masks = (),
) -> Publish:
    target = relation if target is None else target
    clauses: tuple[FilterClause, ...] = ()
    if where is not None:
        clauses = (FilterClause("p", target, where),)
    filters: dict[Operation, tuple[FilterClause, ...]] = {
        o: clauses for o in operations if o is not Operation.TRUNCATE
    }
    return Publish(subscription, relation, target, operations, filters, columns, masks=masks)


def relation_of(shown: Table, oid: int | None = None) -> Relation:
    full = shown.replica_identity is ReplicaIdentity.FULL
    return Relation(
        oid or shown.oid,
        shown.schema,
        shown.name,
        shown.replica_identity,
        tuple(
            RelationColumn(full or c.name in shown.identity, c.name, c.type_oid, c.type_modifier)
            for c in shown.columns
        ),
    )


class Schemas:
    """A registry in memory: one id per schema, as Confluent's gives."""

    def __init__(self) -> None:
        self.by_id: list[Mapping[str, Any]] = []

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        if schema not in self.by_id:
            self.by_id.append(schema)
        return self.by_id.index(schema)

    def decode(self, wire: bytes) -> dict[str, Any]:
        assert wire[0] == 0
        schema = fastavro.parse_schema(dict(self.by_id[int.from_bytes(wire[1:5])]))
        datum = fastavro.schemaless_reader(BytesIO(wire[5:]), schema, schema)
        assert isinstance(datum, dict)
        return datum


class NoCatalog:
    """The catalog of a test in which nothing changes."""

    def table(self, oid: int) -> Table | None:
        return None

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column:
        raise AssertionError(name)

    def type_info(self, oid: int) -> TypeInfo:
        raise AssertionError(oid)


@dataclass
class Seen:
    """A record, decoded."""

    topic: str
    partition: int
    key: dict[str, Any] | None
    value: dict[str, Any] | None
    headers: dict[str, str] = field(default_factory=dict)
    other_key: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Keys in the headers of Debezium's key changes."""

    @property
    def op(self) -> str | None:
        names = ("op", "kind", "__op")
        return next((self.value[n] for n in names if n in self.value), None) if self.value else None


class Gateway:
    """A router over a plan, fed with messages."""

    def __init__(
        self,
        tables: Sequence[Table],
        publishes: Sequence[Publish],
        *,
        partitions: int = 1,
        origin_none: frozenset[str] = frozenset(),
        prefixes: frozenset[str] = frozenset(),
        binary: CatalogReader | None = None,
        quarantined: Collection[UnfitKind] = (),
        most_bytes: Mapping[str, int] | None = None,
        evaluator: Evaluator | None = None,
        schemas: Schemas | None = None,
        copies: Sequence[TableCopy] = (),
        types: TypesTable | None = None,
        envelope: EnvelopeTable | None = None,
        topics: TopicsTable | None = None,
        hash_key: bytes = b"",
        has_masks: bool = False,
        retired: frozenset[TableId] = frozenset(),
        moving: MovingTables | None = None,
        inner: InnerChanges | None = None,
        answering: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.schemas = schemas or Schemas()
        names = dict.fromkeys(p.subscription for p in publishes)
        plan = Plan(
            {t.oid: t for t in tables},
            tuple(
                SubscriptionDefinition(n, ("p",), origin="none" if n in origin_none else "any")
                for n in names
            ),
            tuple(publishes),
            tuple(copies),
            (),
            topics=topics or TopicsTable(),
            retired=retired,
        )
        by_oid = {t.oid: t for t in tables}
        counts = {
            f"{p.subscription}.public.{by_oid[p.target_oid].name}": partitions for p in publishes
        }
        settings = RoutingSettings(
            "gw",
            "db",
            "1",
            counts,
            message_prefixes=prefixes,
            binary=binary is not None,
            quarantined=frozenset(quarantined),
            most_bytes=most_bytes or {},
            types=types or TypesTable(),
            envelope=envelope or EnvelopeTable(),
            hash_key=hash_key,
            has_masks=has_masks,
        )
        catalog = binary or NoCatalog()
        self.plan = plan
        self.replanned: list[Plan] = []  # what the catalog says when it is asked next
        self.asked_for: list[int | None] = []  # the transactions for which it was asked
        self.told: dict[bytes, Plan] = {}  # what the stream says
        self.routes = RelationRoutes(
            plan,
            settings,
            catalog,
            self.schemas,
            reader=self,
            evaluator=evaluator,
            moving=moving,
        )
        self.router = Router(
            self.routes, settings, inner=inner, now_ms=lambda: 1, answering=answering
        )
        self._assembler = Assembler(series=True)
        self._lsn = 1000
        self.in_series = 0  # transactions that were not routed one by one
        self.room = 1_000

    def current_plan(self, repeated: int | None, xid: int | None) -> Plan | None:
        """See `gateway.routing.ports.Replanner`."""
        self.asked_for.append(xid)
        return self.replanned.pop() if self.replanned else None

    refused_filters = 0
    altered_trees: frozenset[int] = frozenset()

    def authenticate(self, message: LogicalMessage, xid: int | None) -> bytes:
        """See `gateway.routing.ports.Replanner`."""
        return message.content

    def apply_ddl(self, content: bytes, xid: int) -> Plan | None:
        """See `gateway.routing.ports.Replanner`."""
        return self.told.pop(content, None)

    def commit(self, *messages: Message, origin: str | None = None) -> list[Seen]:
        """Run one transaction through; return its records."""
        return [self.see(r) for r in self.route(self.frames(*messages, origin=origin))]

    def route(self, frames: Sequence[bytes]) -> list[Record]:
        """Run whole transactions through, short ones in series; return their records."""
        records: list[Record] = []
        for event in self._assembler.push(frames):
            if isinstance(event, Series):
                while event:
                    routed = self.router.route_series(event, self.room)
                    if routed is None:
                        records += self._routed(event.pop())
                    else:
                        records += routed.records
                        self.in_series += routed.transactions
            else:
                assert isinstance(event, Transaction)
                records += self._routed(event)
        return records

    def _routed(self, transaction: Transaction) -> list[Record]:
        return [r for piece in self.router.route(transaction) for r in piece]

    def transaction(
        self, *messages: Message, origin: str | None = None, positions: Sequence[int] = ()
    ) -> Transaction:
        """Assemble one transaction; `positions` are those of its messages, where it matters."""
        frames = self.frames(*messages, origin=origin, positions=positions)
        (transaction,) = Assembler().push(frames)
        assert isinstance(transaction, Transaction)
        return transaction

    def frames(
        self, *messages: Message, origin: str | None = None, positions: Sequence[int] = ()
    ) -> list[bytes]:
        """Make the frames of one transaction; `positions` as for `transaction`."""
        self._lsn += 1000
        first: list[Message] = [Begin(Lsn(self._lsn), 0, 7)]
        if origin is not None:
            first.append(Origin(Lsn(1), origin))
        last = Commit(0, Lsn(self._lsn), Lsn(self._lsn + 8), 0)
        frames = [
            xlogdata(m, wal_start=self._lsn - 500 + i)
            for i, m in enumerate([*first, *messages, last])
        ]
        for place, (message, lsn) in enumerate(zip(messages, positions, strict=False), len(first)):
            frames[place] = xlogdata(message, wal_start=lsn)
        return frames

    def see(self, record: Record) -> Seen:
        topic, partition, key, value, headers = record
        return Seen(
            topic,
            partition,
            None if key is None else self.schemas.decode(key),
            None if value is None else self.schemas.decode(value),
            {name: text.decode() for name, text in headers if name not in DEBEZIUM_HEADERS},
            {name: self.schemas.decode(k) for name, k in headers if name in DEBEZIUM_HEADERS},
        )


def data(seen: Sequence[Seen]) -> list[Seen]:
    return [s for s in seen if not s.topic.endswith(".transaction")]


def ops(seen: Sequence[Seen]) -> list[str | None]:
    return [s.op for s in data(seen)]


def update(old: OldTuple | None, *new: bytes | None, oid: int = T1) -> Update:
    return Update(oid, old, tuple(new))


def key_tuple(*columns: bytes | None) -> OldTuple:
    return OldTuple(OldTupleKind.KEY, columns)


def full_tuple(*columns: bytes | None) -> OldTuple:
    return OldTuple(OldTupleKind.FULL, columns)
