"""A subscription's topics have one owner; another gateway is refused, and leaves nothing behind."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from threading import Barrier

import pytest

from gateway.core.records import Writer
from gateway.sink.own_topics.claims import claim, take_over
from gateway.sink.own_topics.owners import ForeignTopics, Owner, read_owners
from gateway.sink.own_topics.requests import send
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from tests.support.backends.broker import producer_in_transaction
from tests.support.backends.servers import DatabaseFactory
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
    wait_until_confirmed,
)

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
LEFT = (
    "SELECT (SELECT count(*) FROM pg_publication)"
    " + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())"
)


@pytest.fixture
def both(
    make_database: DatabaseFactory, kafka: str, registry: str, tmp_path: Path
) -> Iterator[tuple[Scene, Scene]]:
    """Production, and a staging beside it that took its subscription's name."""
    scenes: list[Scene] = []
    for n in range(2):
        database = make_database()
        with database.connect() as connection:
            connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
            connection.execute(f"INSERT INTO t VALUES (1, {n}), (2, {n})".encode())
            if n:
                connection.execute("CREATE TABLE only_here (a int PRIMARY KEY)")
        name = f"gw_{database.name}"
        definitions = DEFINITIONS.replace("{s}", scenes[0].slot if n else name)
        folder = tmp_path / str(n)
        scenes.append(Scene(folder, database.dsn, kafka, registry, name, definitions))
    yield scenes[0], scenes[1]
    for one in scenes:
        one.close()


def run_to_now(scene: Scene) -> None:
    with scene.connect() as connection:
        lsn = current_lsn(connection)
    scene.run_to(lsn)


def test_a_second_gateway_under_the_same_subscription_is_refused_and_changes_nothing(
    both: tuple[Scene, Scene],
) -> None:
    production, staging = both
    run_to_now(production)
    before = production.markers(), production.read("t")

    check = staging.cli("check")
    run = staging.cli("run")
    with staging.connect() as connection:
        left = value_of(connection, LEFT)
    again = production.cli("check")

    for ended in (check, run):
        assert ended.code == 1, ended.out + ended.err
        said = ended.out + ended.err
        assert f"subscription {production.slot}" in said
        assert f'"{production.slot}"' in said, "who writes there"
        assert f'"{staging.slot}"' in said, "who asks"
        assert f"pgsluice takeover {production.slot}" in said
    assert left == 0, "a slot or publications are left behind"
    assert staging.topic("only_here", production.slot) not in production.reader.topics(
        production.slot
    )
    assert (production.markers(), production.read("t")) == before
    assert (again.code, "ERROR" in again.out) == (0, False), again.out


def test_a_takeover_ends_the_other_gateway_and_can_be_taken_back(
    both: tuple[Scene, Scene],
) -> None:
    production, staging = both
    name = production.slot
    gateway = production.project.start()
    gateway.wait_until_copied()
    with production.connect() as connection:
        wait_until_confirmed(connection, production.slot)

    taken = staging.cli("takeover", name)
    ended = gateway.wait()
    run_to_now(staging)
    theirs = staging.rebuilt("t", name)
    refused = production.cli("run")
    back = production.cli("takeover", name)
    with production.connect() as connection:
        connection.execute("UPDATE t SET b = 7 WHERE a = 1; INSERT INTO t VALUES (3, 7)")
    run_to_now(production)
    run_to_now(production)

    assert (taken.code, back.code) == (0, 0), taken.err + back.err
    assert production.slot in taken.out
    assert ended == 1, "the one that ran goes on"
    assert f'"{staging.slot}"' in gateway.log()
    assert theirs == [(1, 1), (2, 1)]
    assert refused.code == 1
    assert production.rebuilt("t") == [(1, 7), (2, 0), (3, 7)], "its own, and nothing of the other"
    markers = production.markers()
    claims = [m for m in markers if m["kind"] == "CLAIM"]
    assert [c["taken_from"] and c["taken_from"]["slot"] for c in claims] == [
        None,
        production.slot,
        staging.slot,
    ]
    writers = [m["writer"]["slot"] for m in markers]
    assert [slot for slot, _ in groupby(writers)] == [
        production.slot,
        staging.slot,
        production.slot,
    ], "records of two writers are mixed"


def test_a_slot_that_is_made_again_has_the_same_owner(
    scene: Callable[..., Scene],
) -> None:
    s = scene(DEFINITIONS, source={"on_lost_slot": "resync"})
    with s.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        s.run_to(current_lsn(connection))
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [s.slot],
        )
        connection.execute("INSERT INTO t VALUES (2)")
        s.run_to(current_lsn(connection))

    assert s.rebuilt("t") == [(1,), (2,)]
    assert_exactly_once(s, ["t"])
    assert [m["kind"] for m in s.markers()].count("CLAIM") == 1


def test_of_two_that_begin_at_one_instant_one_wins(kafka: str, registry: str) -> None:
    properties = {"bootstrap.servers": kafka}
    names = [f"race{uuid.uuid4().hex[:8]}" for _ in range(6)]
    ensure_topics(properties, [TopicSpec(f"{name}.transaction") for name in names])
    one, other = (Writer("1", "shop", slot, "gw") for slot in ("one", "other"))
    barrier = Barrier(2)

    with Registry({"url": registry}) as schemas:

        def begin(writer: Writer, name: str) -> bool:
            barrier.wait(60)
            try:
                claim(properties, schemas, writer, [name])
            except ForeignTopics:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            won = [tuple(pool.map(begin, (one, other), (name, name))) for name in names]
        owners = read_owners(properties, schemas, names)
        # Whoever lost stays refused, and whoever won is not locked out by the other's claim.
        for name, (first, _) in zip(names, won, strict=True):
            claim(properties, schemas, one if first else other, [name])
            with pytest.raises(ForeignTopics):
                claim(properties, schemas, other if first else one, [name])
        loser = other if won[0][0] else one
        take_over(properties, schemas, loser, {names[0]: owners[names[0]]})
        after = read_owners(properties, schemas, names[:1])

    assert all(sum(pair) == 1 for pair in won), won
    assert owners == {
        name: Owner(one if first else other) for name, (first, _) in zip(names, won, strict=True)
    }
    assert after == {names[0]: Owner(loser, taken_from=one if won[0][0] else other)}


def test_the_owner_is_read_before_a_large_transaction_that_is_open(
    kafka: str, registry: str
) -> None:
    properties = {"bootstrap.servers": kafka}
    name = f"open{uuid.uuid4().hex[:8]}"
    ensure_topics(properties, [TopicSpec(f"{name}.transaction")])
    writer = Writer("1", "shop", "slot", "gw")

    with Registry({"url": registry}) as schemas:
        claim(properties, schemas, writer, [name])
        producer = producer_in_transaction(kafka)
        for _ in range(100):  # more than are looked at first
            producer.produce(f"{name}.transaction", b"?")
        producer.flush()
        try:
            owners = read_owners(properties, schemas, [name], timeout_s=20)
        finally:
            producer.abort_transaction()

    assert owners == {name: Owner(writer)}


def test_topics_that_name_many_schemas_do_not_hide_the_owner_of_another(
    kafka: str, registry: str
) -> None:
    properties = {"bootstrap.servers": kafka}
    flooded = [f"flood{uuid.uuid4().hex[:8]}" for _ in range(5)]
    quiet = f"quiet{uuid.uuid4().hex[:8]}"
    names = [*flooded, quiet]
    ensure_topics(properties, [TopicSpec(f"{name}.transaction") for name in names])
    writer = Writer("1", "shop", "slot", "gw")
    ids = iter(range(1_000_000, 2_000_000))  # of no schema
    last = range(64)  # as many records as are looked at first: the claims are read after them

    with Registry({"url": registry}) as schemas:
        claim(properties, schemas, writer, names)
        for name in flooded:
            values = [struct.pack(">bI", 0, next(ids)) + b"\0" for _ in last]
            send(properties, [(f"{name}.transaction", 0, None, v, []) for v in values], "flooding")
        send(properties, [(f"{quiet}.transaction", 0, None, b"?", []) for _ in last], "flooding")

        owners = read_owners(properties, schemas, names)

    assert owners == dict.fromkeys(names, Owner(writer))
