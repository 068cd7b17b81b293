"""What each subscription is sent for each change: records decoded back with fastavro."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import fastavro
import pytest

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
    TableCopy,
)
from gateway.errors import ProtocolError, UnfitKind
from gateway.lsn import Lsn
from gateway.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldTuple,
    OldTupleKind,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Truncate,
    TupleData,
    Update,
)
from gateway.pgtypes.binary import TypeInfo
from gateway.records import Record
from gateway.routing import Router, RoutingSettings
from gateway.routing.ports import CatalogReader, Evaluator
from gateway.routing.routes import RelationRoutes
from gateway.rowfilter import FilterEvaluationError
from gateway.transactions import Assembler, Transaction
from tests.support.pgoutput_encode import xlogdata

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
) -> Publish:
    target = relation if target is None else target
    clauses: tuple[FilterClause, ...] = ()
    if where is not None:
        clauses = (FilterClause("p", target, where),)
    filters: dict[Operation, tuple[FilterClause, ...]] = {
        o: clauses for o in operations if o is not Operation.TRUNCATE
    }
    return Publish(subscription, relation, target, operations, filters, columns)


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

    @property
    def op(self) -> str | None:
        return None if self.value is None else self.value.get("op", self.value.get("kind"))


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
        )
        by_oid = {t.oid: t for t in tables}
        topics = {
            f"{p.subscription}.public.{by_oid[p.target_oid].name}": partitions for p in publishes
        }
        settings = RoutingSettings(
            "gw",
            "db",
            "1",
            topics,
            message_prefixes=prefixes,
            binary=binary is not None,
            quarantined=frozenset(quarantined),
            most_bytes=most_bytes or {},
        )
        catalog = binary or NoCatalog()
        self.plan = plan
        self.replanned: list[Plan] = []  # what the catalog says when it is asked next
        self.routes = RelationRoutes(
            plan,
            settings,
            catalog,
            self.schemas,
            replan=lambda _: self.replanned.pop() if self.replanned else None,
            evaluator=evaluator,
        )
        self.router = Router(self.routes, settings, now_ms=lambda: 1)
        self._assembler = Assembler()
        self._lsn = 1000

    def commit(self, *messages: Message, origin: str | None = None) -> list[Seen]:
        """Run one transaction through; return its records."""
        transaction = self.transaction(*messages, origin=origin)
        return [self.see(r) for piece in self.router.route(transaction) for r in piece]

    def transaction(self, *messages: Message, origin: str | None = None) -> Transaction:
        """Assemble one transaction."""
        self._lsn += 1000
        first: list[Message] = [Begin(Lsn(self._lsn), 0, 7)]
        if origin is not None:
            first.append(Origin(Lsn(1), origin))
        last = Commit(0, Lsn(self._lsn), Lsn(self._lsn + 8), 0)
        frames = [
            xlogdata(m, wal_start=self._lsn - 500 + i)
            for i, m in enumerate([*first, *messages, last])
        ]
        (transaction,) = self._assembler.push(frames)
        assert isinstance(transaction, Transaction)
        return transaction

    def see(self, record: Record) -> Seen:
        topic, partition, key, value, headers = record
        return Seen(
            topic,
            partition,
            None if key is None else self.schemas.decode(key),
            None if value is None else self.schemas.decode(value),
            {name: text.decode() for name, text in headers},
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


def test_an_insert_carries_key_value_headers_and_an_end_marker() -> None:
    gateway = Gateway([T1_TABLE], [publish()])

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"2")))

    row, end = seen
    assert (row.topic, row.partition, row.key) == ("s.public.t1", 0, {"a": 1})
    assert row.value is not None
    assert (row.value["before"], row.value["after"]) == (None, {"a": 1, "b": 2})
    assert row.value["source"]["identity"] == "d"
    assert row.value["transaction"] == {
        "id": "7:2000",
        "total_order": 1,
        "data_collection_order": 1,
    }
    assert row.headers == {
        "lsn": "00000000/000005DE",
        "commit_lsn": "00000000/000007D0",
        "xid": "7",
        "seq": "1",
        "op": "c",
    }
    assert end.topic == "s.transaction"
    assert end.value is not None
    assert (end.value["kind"], end.value["end_lsn"]) == ("END", 2008)
    assert end.value["topics"] == [{"topic": "s.public.t1", "records": 1}]


@pytest.mark.parametrize(
    ("old_b", "new_b", "expected"),
    [
        pytest.param(b"1", b"2", [], id="no match, no match: nothing"),
        pytest.param(b"1", b"10", ["c"], id="no match, match: insert"),
        pytest.param(b"10", b"1", ["d", None], id="match, no match: delete"),
        pytest.param(b"10", b"11", ["u"], id="match, match: update"),
    ],
)
def test_an_update_becomes_what_the_manuals_table_says(
    old_b: bytes, new_b: bytes, expected: list[str | None]
) -> None:
    full = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish(where="(b > 5)")])

    seen = gateway.commit(relation_of(full), update(full_tuple(b"1", old_b), b"1", new_b))

    assert ops(seen) == expected


def test_an_update_of_the_key_is_two_halves_that_say_so() -> None:
    gateway = Gateway([T1_TABLE], [publish()])

    seen = data(gateway.commit(relation_of(T1_TABLE), update(key_tuple(b"1", None), b"9", b"2")))

    old, tombstone, new = seen
    assert (old.op, old.key, old.headers["rekey"], old.headers["seq"]) == (
        "d",
        {"a": 1},
        "old",
        "1",
    )
    assert (tombstone.value, tombstone.key, tombstone.headers) == (None, {"a": 1}, old.headers)
    assert (new.op, new.key, new.headers["rekey"], new.headers["seq"]) == (
        "c",
        {"a": 9},
        "new",
        "2",
    )
    assert new.value is not None
    assert new.value["before"] == {"a": 1, "b": None}


def test_an_insert_made_by_the_filter_has_no_rekey_header() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])

    (row,) = data(gateway.commit(relation_of(T1_TABLE), update(key_tuple(b"1", None), b"9", b"2")))

    assert (row.op, row.key, row.headers["seq"]) == ("c", {"a": 9}, "2")
    assert "rekey" not in row.headers


def test_unchanged_columns_are_named_and_null() -> None:
    gateway = Gateway([T1_TABLE], [publish()])
    new: TupleData = (b"1", UNCHANGED)

    (row,) = data(gateway.commit(relation_of(T1_TABLE), Update(T1, None, new)))

    assert row.value is not None
    assert (row.value["after"], row.value["unchanged"]) == ({"a": 1, "b": None}, ["b"])


def test_under_full_unchanged_columns_are_taken_from_the_old_row() -> None:
    full = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish(where="(b > 5)")])
    change = Update(T1, full_tuple(b"1", b"77"), (b"2", UNCHANGED))

    seen = data(gateway.commit(relation_of(full), change))

    assert seen[-1].value is not None
    assert (seen[-1].value["after"], seen[-1].value["unchanged"]) == ({"a": 2, "b": 77}, [])


def test_without_a_primary_key_full_makes_the_whole_row_the_key() -> None:
    bag = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL, primary_key=())
    gateway = Gateway([bag], [publish()])

    seen = gateway.commit(
        relation_of(bag), Insert(T1, (b"1", None)), Delete(T1, full_tuple(b"1", None))
    )

    # No tombstone: another row with the same key may live on.
    assert ops(seen) == ["c", "d"]
    assert data(seen)[0].key == {"a": 1, "b": None}


def test_numbers_are_assigned_before_filtering() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])

    seen = data(
        gateway.commit(
            relation_of(T1_TABLE),
            Insert(T1, (b"1", b"0")),
            update(None, b"1", b"1"),
            Insert(T1, (b"6", b"0")),
            Delete(T1, key_tuple(b"6", None)),
        )
    )

    assert [s.headers["seq"] for s in seen] == ["4", "5", "5"]
    assert seen[0].value is not None
    assert seen[0].value["transaction"]["total_order"] == 3


def test_operations_that_are_not_published_are_left_out() -> None:
    only_update = frozenset({Operation.UPDATE})
    full = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish(where="(b > 5)", operations=only_update)])

    seen = gateway.commit(
        relation_of(full),
        Insert(T1, (b"1", b"9")),
        Delete(T1, full_tuple(b"1", b"9")),
        Truncate(False, False, (T1,)),
        update(full_tuple(b"1", b"1"), b"1", b"9"),
        update(full_tuple(b"1", b"9"), b"1", b"1"),
    )

    # publish = 'update' still sends the INSERTs and DELETEs that a filter makes of UPDATEs.
    assert ops(seen) == ["c", "d", None]


def test_each_subscription_has_its_own_decision_and_topic() -> None:
    gateway = Gateway([T1_TABLE], [publish("big", "(a > 5)"), publish("all")])

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"0")), Insert(T1, (b"6", b"0")))

    assert [(s.topic, s.key) for s in data(seen)] == [
        ("all.public.t1", {"a": 1}),
        ("big.public.t1", {"a": 6}),
        ("all.public.t1", {"a": 6}),
    ]
    ends = {s.topic: s.value["topics"] for s in seen if s.value and s.headers["op"] == "END"}
    assert ends == {
        "all.transaction": [{"topic": "all.public.t1", "records": 2}],
        "big.transaction": [{"topic": "big.public.t1", "records": 1}],
    }


def test_a_subscription_without_records_gets_no_end_marker() -> None:
    gateway = Gateway([T1_TABLE], [publish("big", "(a > 5)"), publish("all")])

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"0")))

    assert [s.topic for s in seen if s.op == "END"] == ["all.transaction"]
    assert gateway.router.ended == {"all": 2008}


def test_origin_none_leaves_out_what_came_from_elsewhere() -> None:
    publishes = [publish("any"), publish("local")]
    gateway = Gateway([T1_TABLE], publishes, origin_none=frozenset({"local"}))

    seen = gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"0")), origin="elsewhere")

    assert [s.topic for s in data(seen)] == ["any.public.t1"]
    assert data(seen)[0].headers["origin"] == "elsewhere"


def test_truncate_goes_to_every_partition_and_ignores_the_filter() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")], partitions=3)

    seen = data(gateway.commit(relation_of(T1_TABLE), Truncate(False, False, (T1,))))

    assert [(s.op, s.partition, s.key) for s in seen] == [("t", p, None) for p in range(3)]


PARTITIONS = (
    table(PARENT, "parent", [column("a", 1)], kind="p", leaves=(CHILD, OTHER_CHILD)),
    table(CHILD, "child", [column("a", 1)], ancestors=(PARENT,)),
    table(OTHER_CHILD, "other", [column("a", 1)], ancestors=(PARENT,)),
)


def test_a_tree_read_by_leaf_serves_its_root_and_its_leaves() -> None:
    gateway = Gateway(
        PARTITIONS,
        [
            publish("root", "(a < 5)", relation=CHILD, target=PARENT),
            publish("root", "(a < 5)", relation=OTHER_CHILD, target=PARENT),
            publish("leaf", "(a >= 5)", relation=CHILD),
        ],
    )

    seen = gateway.commit(
        relation_of(PARTITIONS[1]), Insert(CHILD, (b"3",)), Insert(CHILD, (b"7",))
    )

    assert [(s.topic, s.key) for s in data(seen)] == [
        ("root.public.parent", {"a": 3}),
        ("leaf.public.child", {"a": 7}),
    ]


@pytest.mark.parametrize(
    ("named", "topics"),
    [
        pytest.param((CHILD,), ["leaf.public.child"], id="one leaf"),
        pytest.param(
            (CHILD, OTHER_CHILD), ["root.public.parent", "leaf.public.child"], id="all leaves"
        ),
    ],
)
def test_a_root_read_by_leaf_is_truncated_when_all_leaves_are(
    named: tuple[int, ...], topics: list[str]
) -> None:
    gateway = Gateway(
        PARTITIONS,
        [
            publish("root", relation=CHILD, target=PARENT),
            publish("root", relation=OTHER_CHILD, target=PARENT),
            publish("leaf", relation=CHILD),
        ],
    )

    seen = gateway.commit(
        relation_of(PARTITIONS[1]), relation_of(PARTITIONS[2]), Truncate(False, False, named)
    )

    assert [s.topic for s in data(seen)] == topics


def test_a_leaf_with_columns_in_another_order_is_mapped_by_name() -> None:
    parent = table(PARENT, "parent", TWO_COLUMNS, kind="p", leaves=(CHILD,))
    child = table(CHILD, "child", (column("b", 1), column("a", 2)), ancestors=(PARENT,))
    gateway = Gateway([parent, child], [publish(where="(b > 5)", relation=CHILD, target=PARENT)])

    seen = data(gateway.commit(relation_of(child), Insert(CHILD, (b"6", b"1"))))

    assert seen[0].value is not None
    assert seen[0].value["after"] == {"a": 1, "b": 6}


def test_a_column_list_limits_the_value() -> None:
    gateway = Gateway([T1_TABLE], [publish(columns=("a",))])

    (row,) = data(gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"2"))))

    assert row.value is not None
    assert row.value["after"] == {"a": 1}


@pytest.mark.parametrize(
    ("columns", "generated", "after"),
    [
        pytest.param(None, False, {"a": 1, "b": 2}, id="left out, though the server sends it"),
        pytest.param(None, True, {"a": 1, "b": 2, "g": 3}, id="published by the option"),
        pytest.param(("a", "g"), False, {"a": 1, "g": 3}, id="published by the column list"),
    ],
)
def test_a_stored_generated_column_is_there_where_it_is_published(
    columns: tuple[str, ...] | None, generated: bool, after: dict[str, int]
) -> None:
    stored = table(T1, "t1", (*TWO_COLUMNS, replace(column("g", 3), generated="s")))
    taken = replace(publish(columns=columns), generated=generated)
    gateway = Gateway([stored], [taken])

    (row,) = data(gateway.commit(relation_of(stored), Insert(T1, (b"1", b"2", b"3"))))

    assert row.value is not None
    assert row.value["after"] == after


def test_transactional_messages_take_a_number_and_go_to_the_message_topic() -> None:
    gateway = Gateway([T1_TABLE], [publish()], prefixes=frozenset({"audit"}))

    seen = gateway.commit(
        LogicalMessage(True, Lsn(1500), "audit", b"who"),
        LogicalMessage(True, Lsn(1501), "other", b"what"),
        relation_of(T1_TABLE),
        Insert(T1, (b"1", b"2")),
    )

    assert [(s.topic, s.headers["seq"]) for s in data(seen)] == [
        ("gw.message", "1"),
        ("s.public.t1", "3"),
    ]
    assert seen[0].value is not None
    assert seen[0].value["content"] == b"who"


def test_a_change_of_a_relation_never_announced_is_an_error() -> None:
    gateway = Gateway([T1_TABLE], [publish()])

    with pytest.raises(ProtocolError, match="never announced"):
        gateway.commit(Insert(T1, (b"1", b"2")))


def test_a_filter_that_fails_stops_with_its_name_and_position() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="((10 / a) > 5)")])

    with pytest.raises(FilterEvaluationError, match=r"public\.t1.*division by zero.*LSN 0/"):
        gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"0", b"2")))


def test_equal_keys_share_a_partition_when_there_are_several() -> None:
    numeric = table(T1, "t1", (column("a", 1, 1700, "numeric"), column("b", 2)))
    gateway = Gateway([numeric], [publish()], partitions=8)

    seen = data(
        gateway.commit(
            relation_of(numeric), Insert(T1, (b"1.0", b"2")), update(None, b"1.00", b"3")
        )
    )

    assert len({s.partition for s in seen}) == 1


def test_a_replayed_transaction_teaches_its_relations_without_records() -> None:
    gateway = Gateway([T1_TABLE], [publish()])
    replayed = gateway.transaction(relation_of(T1_TABLE), Insert(T1, (b"1", b"2")))

    gateway.router.learn(replayed)

    assert ops(gateway.commit(Insert(T1, (b"3", b"4")))) == ["c"]


def test_a_value_that_is_not_in_the_stream_is_counted_when_a_row_enters_the_filter() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])
    entering = Update(T1, key_tuple(b"1", None), (b"9", UNCHANGED))
    staying = Update(T1, None, (b"9", UNCHANGED))

    seen = data(gateway.commit(relation_of(T1_TABLE), entering, staying))

    assert seen[0].value is not None
    assert (seen[0].op, seen[0].value["after"]) == ("c", {"a": 9, "b": None})
    assert gateway.router.take_lost_values() == {"public.t1": 1}
    assert gateway.router.take_lost_values() == {}


TEXT = Collation('pg_catalog."C"', True, True)
REGIONAL = table(
    T1,
    "t1",
    (
        column("a", 1),
        Column("region", 2, 25, -1, "text", 25, -1, "b", False, "", TEXT),
    ),
    identity=("a", "region"),
    primary_key=("a", "region"),
)
BY_REGION = [
    publish("eu", "(region = 'EU'::text)"),
    publish("us", "(region = ANY (ARRAY['US'::text, 'CA'::text]))"),
    publish("big", "((a > 5) AND (region = 'EU'::text))"),
    publish("all"),
]


def where(seen: Sequence[Seen]) -> set[tuple[str, str | None]]:
    return {(s.topic.partition(".")[0], s.op) for s in data(seen) if s.value is not None}


def test_takers_are_found_by_look_up() -> None:
    gateway = Gateway([REGIONAL], BY_REGION)

    eu = gateway.commit(relation_of(REGIONAL), Insert(T1, (b"1", b"EU")))
    canada = gateway.commit(Insert(T1, (b"2", b"CA")))
    nobody = gateway.commit(Insert(T1, (b"3", b"JP")))

    assert where(eu) == {("eu", "c"), ("all", "c")}
    assert where(canada) == {("us", "c"), ("all", "c")}
    assert where(nobody) == {("all", "c")}


def test_an_update_from_one_look_up_to_another_concerns_both() -> None:
    gateway = Gateway([REGIONAL], BY_REGION)
    moved = update(key_tuple(b"9", b"EU"), b"9", b"US")

    seen = gateway.commit(relation_of(REGIONAL), moved)

    assert where(seen) == {("eu", "d"), ("big", "d"), ("us", "c"), ("all", "d"), ("all", "c")}


def test_a_delete_concerns_the_takers_of_the_old_row() -> None:
    gateway = Gateway([REGIONAL], BY_REGION)

    seen = gateway.commit(relation_of(REGIONAL), Delete(T1, key_tuple(b"9", b"EU")))

    assert where(seen) == {("eu", "d"), ("big", "d"), ("all", "d")}


def test_a_relation_that_is_announced_again_brings_the_publication_as_it_is_now() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])
    gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"7", b"1")))
    gateway.replanned = [replace(gateway.plan, publishes=(publish(where="(a > 10)"),))]

    seen = gateway.commit(
        Insert(T1, (b"8", b"1")),
        relation_of(T1_TABLE),
        Insert(T1, (b"9", b"1")),
        Insert(T1, (b"11", b"1")),
    )

    assert [s.value and s.value["after"]["a"] for s in data(seen)] == [8, 11]


def test_a_table_that_is_published_since_now_waits_for_its_copy() -> None:
    other = table(T1 + 50, "later", TWO_COLUMNS)
    gateway = Gateway([T1_TABLE], [publish()])
    gateway.replanned = [
        replace(
            gateway.plan,
            tables={T1: T1_TABLE, other.oid: other},
            publishes=(publish(), publish(relation=other.oid)),
        )
    ]

    seen = gateway.commit(relation_of(other), Insert(other.oid, (b"1", b"1")))

    assert data(seen) == []
    assert ops(gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"1")))) == ["c"]


def test_a_partition_of_later_times_is_published_as_its_root_at_once() -> None:
    root = table(T1 + 60, "tree", TWO_COLUMNS, kind="p", leaves=(T1,))
    leaf = table(T1, "low", TWO_COLUMNS, ancestors=(root.oid,))
    late = table(T1 + 61, "high", TWO_COLUMNS, ancestors=(root.oid,))
    gateway = Gateway([root, leaf], [publish(target=root.oid)])
    gateway.replanned = [
        replace(
            gateway.plan,
            tables={t.oid: t for t in (root, leaf, late)},
            publishes=(
                publish(target=root.oid),
                publish(relation=late.oid, target=root.oid),
            ),
        )
    ]

    seen = gateway.commit(relation_of(late), Insert(late.oid, (b"1", b"1")))

    assert [s.topic for s in data(seen)] == ["s.public.tree"]
