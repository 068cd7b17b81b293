"""Rows of filters with sub-selects by the compiled path, against `MovingRoute`, which defines it.

Both are fed the same transactions, of orders and of customers, and reads of what has become
unsettled. The records of each topic, what is unsettled, and the changes noted for reads are equal.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from hypothesis import settings

from gateway._speedups.loader import INTERPRETED
from gateway.copy import Snapshot
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import (
    UNCHANGED,
    ColumnValue,
    Delete,
    Insert,
    Message,
    OldTuple,
    OldTupleKind,
    ReplicaIdentity,
    Truncate,
    Update,
)
from gateway.routing.row.native import why_not_built
from gateway.subselects.formula import AllOf, AnyOf, Formula, Plain, SetTestKind
from gateway.subselects.moves.reads import MoveChunk
from tests.support.gateway.moving_scene import CUSTOMERS, MovingScene, tenant
from tests.support.gateway.routing_scene import T1, column, publish, relation_of, table

CASES = max(40, settings().max_examples // 10)
STEPS = 25
TENANTS = 3
NOTHING_SEEN = Snapshot(1, 1, frozenset())

FORMULAS: tuple[Callable[[int], Formula], ...] = (
    *(tenant, tenant, tenant),
    lambda n: tenant(n, columns=("city",)),
    lambda n: AllOf((tenant(n), Plain("city > 2"))),
    lambda n: AllOf((Plain("city > 1"), tenant(n), tenant(n + 1, columns=("city",)))),
    lambda n: AnyOf((tenant(n), tenant(n + 1))),
    lambda n: AnyOf((tenant(n), Plain("city = 3"))),
    lambda n: tenant(n, SetTestKind.NOT_IN),
    lambda n: tenant(n, SetTestKind.NOT_EXISTS, ("city",)),
)
WIDE: Callable[[int], Formula] = lambda n: tenant(n, columns=("customer", "city"))  # noqa: E731

Row = tuple[bytes | None, bytes | None, bytes | None, bytes]


class Pair:
    """Two scenes of one random plan, interpreted and compiled, and what their tables have."""

    def __init__(self, random: Random) -> None:
        self.random = random
        kinds = (*FORMULAS, WIDE) if random.random() < 0.1 else FORMULAS
        formulas = {
            f"s{n}": random.choice(kinds)(random.randint(1, TENANTS))
            for n in range(random.randint(1, 5))
        }
        publishes = [publish(name) for name in formulas]
        if random.random() < 0.5:
            publishes += [publish("all"), publish("one", "(city = 1)")]
        self.is_full = random.random() < 0.3
        identity = ("id", "customer", "city")
        orders = replace(
            table(
                T1,
                "orders",
                (column("id", 1), column("customer", 2), column("city", 3)),
                identity=identity,
                primary_key=("id",),
            ),
            replica_identity=ReplicaIdentity.FULL if self.is_full else ReplicaIdentity.DEFAULT,
        )
        doc = column("doc", 4, 25, "text")
        names = (*identity, "doc") if self.is_full else identity
        orders = replace(orders, columns=(*orders.columns, doc), identity=names)
        self.scenes = []
        for form in ("1", "0"):
            with interpreted(form):
                self.scenes.append(MovingScene(formulas, publishes, orders))
        self.orders: dict[bytes, Row] = {}
        self.customers: dict[bytes, bytes] = {}
        self.announced: tuple[Message, ...] = (relation_of(orders),)

    def commit(self) -> Counter[str | None]:
        messages = [self.order() for _ in range(self.random.choice((1, 2, 6)))]
        if self.random.random() < 0.03:
            self.customers.clear()
            messages.append(Truncate(False, False, (CUSTOMERS,)))
        if self.random.random() < 0.25:
            messages.append(self.customer())
        if self.random.random() < 0.05:
            self.orders.clear()
            messages.append(Truncate(False, False, (T1,)))
            messages += [self.order(keys=2) for _ in range(5)]
        if self.random.random() < 0.1:
            messages = [*self.announced, *messages]
        parts = [messages] if self.random.random() < 0.5 else [[each] for each in messages]
        found = []
        for form, scene in zip(("1", "0"), self.scenes, strict=True):
            with interpreted(form):
                frames = [f for each in parts for f in scene.gateway.frames(*each)]
                found.append(sorted(scene.gateway.route(frames), key=lambda record: record[:2]))
        assert found[0] == found[1]
        return Counter(self.scenes[0].gateway.see(record).op for record in found[0])

    def customer(self) -> Message:
        number = b"%d" % self.random.randint(1, 5)
        before = self.customers.pop(number, None)
        if before is not None and self.random.random() < 0.3:
            return Delete(CUSTOMERS, OldTuple(OldTupleKind.KEY, (number, before)))
        after = self.customers[number] = b"%d" % self.random.randint(1, TENANTS)
        if before is None:
            return Insert(CUSTOMERS, (number, after))
        old = None if before == after else OldTuple(OldTupleKind.KEY, (number, before))
        return Update(CUSTOMERS, old, (number, after))

    def order(self, keys: int = 12) -> Message:
        key = b"%d" % self.random.randint(1, keys)
        before = self.orders.pop(key, None)
        if before is not None and self.random.random() < 0.2:
            return Delete(T1, self.old(before))
        after = self.draw(key, before)
        if before is None:
            self.orders[key] = after
            return Insert(T1, after)
        new: tuple[ColumnValue, ...] = after
        if self.random.random() < 0.4:
            after = (*after[:3], before[3])
            new = (*after[:3], UNCHANGED)
        self.orders[key] = after
        changed = self.is_full or after[:3] != before[:3]
        return Update(T1, self.old(before) if changed else None, new)

    def draw(self, key: bytes, before: Row | None) -> Row:
        customer, city = (
            None
            if self.is_full and self.random.random() < 0.1
            else b"%d" % self.random.randint(1, 5)
            for _ in range(2)
        )
        if before is not None and self.random.random() < 0.7:
            customer, city = before[1:3]
        return key, customer, city, b"doc %d" % self.random.randint(0, 9)

    def old(self, row: Row) -> OldTuple:
        if self.is_full:
            return OldTuple(OldTupleKind.FULL, row)
        return OldTuple(OldTupleKind.KEY, (*row[:3], None))

    def copy(self) -> None:
        """Begin copies of one subscription or all; what they read does not matter here."""
        names = [*self.scenes[0].moves.formulas]
        for name in names if self.random.random() < 0.5 else names[:1]:
            for scene in self.scenes:
                scene.moves.begin_copy(name)

    def settle(self) -> None:
        """Place one read that sees nothing: all rows come from the changes that were noted."""
        found = []
        for scene in self.scenes:
            request = scene.moves.request()
            if request is not None:
                chunk = MoveChunk(request, [], NOTHING_SEEN, Lsn(5), True)
                found.append((request, list(scene.moves.place(chunk))))
        assert not found or found[0] == found[1]

    def check(self) -> None:
        one, other = (scene.moves for scene in self.scenes)
        assert one.state == other.state
        assert one.unseen.unseen_by(NOTHING_SEEN) == other.unseen.unseen_by(NOTHING_SEEN)

    @property
    def looked_up(self) -> int:
        """Number of texts that the compiled path has asked for."""
        moving = self.scenes[1].gateway.routes.by_oid[T1].moving
        targets = [t for each in moving for t in (each.looked_up or {}).values()]
        return sum(len(index.lookup) for each in targets for index in each.indexes)


@contextmanager
def interpreted(form: str) -> Iterator[None]:
    before = os.environ.get(INTERPRETED)
    os.environ[INTERPRETED] = form
    try:
        yield
    finally:
        del os.environ[INTERPRETED]
        if before is not None:
            os.environ[INTERPRETED] = before


if why_not_built() is None:

    def test_the_compiled_path_makes_the_same_records_and_notes(seed: int) -> None:
        looked_up, in_series, ops = 0, 0, Counter[str | None]()
        for number in range(CASES):
            pair = Pair(Random(seed + number))
            for _ in range(STEPS):
                ops += pair.commit()
                looked_up += pair.looked_up
                if pair.random.random() < 0.4:
                    pair.settle()
                if pair.random.random() < 0.4:
                    pair.copy()
            pair.check()
            in_series += pair.scenes[1].gateway.in_series

        assert looked_up > CASES
        assert in_series > CASES
        assert all(ops[op] for op in ("c", "u", "d"))
