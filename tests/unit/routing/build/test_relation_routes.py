"""What the stream announces of relations, and what the catalog says then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.errors import ProtocolError
from gateway.pgoutput.messages import (
    Insert,
)
from tests.support.gateway.routing_scene import (
    T1,
    T1_TABLE,
    TWO_COLUMNS,
    Gateway,
    Schemas,
    data,
    ops,
    publish,
    relation_of,
    table,
)


def test_a_change_of_a_relation_never_announced_is_an_error() -> None:
    gateway = Gateway([T1_TABLE], [publish()])

    with pytest.raises(ProtocolError, match="never announced"):
        gateway.commit(Insert(T1, (b"1", b"2")))


def test_a_replayed_transaction_teaches_its_relations_without_records() -> None:
    gateway = Gateway([T1_TABLE], [publish()])
    replayed = gateway.transaction(relation_of(T1_TABLE), Insert(T1, (b"1", b"2")))

    gateway.router.learn(replayed)

    assert ops(gateway.commit(Insert(T1, (b"3", b"4")))) == ["c"]


def test_the_server_is_answered_while_the_schemas_of_a_first_row_are_registered() -> None:
    """A restart waits for no schema that was registered before, so that a first row may."""
    inside: list[bool] = []
    registered: list[tuple[str, bool]] = []

    class Slow(Schemas):
        def register(self, subject: str, schema: Mapping[str, Any]) -> int:
            registered.append((subject, bool(inside)))
            return super().register(subject, schema)

    @contextmanager
    def answering() -> Iterator[None]:
        assert not inside, "two threads would read the stream"
        inside.append(True)
        yield
        inside.clear()

    gateway = Gateway([T1_TABLE], [publish()], schemas=Slow(), answering=answering)
    del registered[:]
    gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"2")), Insert(T1, (b"2", b"2")))

    assert registered == [("s.public.t1-key", True), ("s.public.t1-value", True)]


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
    assert gateway.asked_for == [7, 7], "the catalog has to show what the transaction did"


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
