"""Topics of markers that somebody else keeps from being read: only their subscription waits."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gateway.config import load_settings
from gateway.core.errors import HiddenMarkersError, TransientError
from gateway.core.records import Writer
from gateway.runtime.daemon import Daemon
from gateway.runtime.reload import held_retries, reloader
from gateway.sink.own_topics import claims, owners
from gateway.sink.own_topics.claims import claim
from gateway.sink.own_topics.owners import ForeignTopics, Owner, read_owners
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import read_log_bounds
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from tests.support.backends.broker import producer_in_transaction
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene, wait_for_copy_marker, wait_until_confirmed
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

A, B = (Writer("1", "shop", slot, "gw") for slot in "ab")
TWO = (
    "CREATE PUBLICATION p FOR TABLE t;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_other CONNECTION '' PUBLICATION p;"
)


@contextmanager
def open_transaction(kafka: str, topic: str) -> Iterator[None]:
    """A Kafka transaction of somebody else, with a record in `topic`; aborted in the end."""
    producer = producer_in_transaction(kafka)
    producer.produce(topic, b"?")
    producer.flush()
    try:
        yield
    finally:
        producer.abort_transaction()


@contextmanager
def running_daemon(s: Scene, pause: Callable[[float], None]) -> Iterator[Daemon]:
    """A gateway in this process, whose pauses between attempts are made by `pause`."""
    stopping = threading.Event()
    daemon = Daemon(
        load_settings(s.project.write()),
        endpos=None,
        stopping=stopping.is_set,
        pause=pause,
        report_copy=lambda _: None,
    )
    running = threading.Thread(target=daemon.run)
    running.start()
    try:
        yield daemon
    finally:
        stopping.set()
        running.join(60 * PATIENCE)
    assert not running.is_alive(), "the gateway goes on beside the next test"


def test_a_claim_that_could_not_be_read_is_not_written_and_the_error_names_its_topic(
    kafka: str, registry: str
) -> None:
    properties = {"bootstrap.servers": kafka}
    hidden, free = (f"{word}{uuid.uuid4().hex[:8]}" for word in ("hidden", "free"))
    topics = {f"{name}.transaction": 1 for name in (hidden, free)}
    ensure_topics(properties, [TopicSpec(topic) for topic in topics])

    with Registry({"url": registry}) as schemas:
        with open_transaction(kafka, f"{hidden}.transaction"):
            before = read_log_bounds(properties, topics)
            with pytest.raises(HiddenMarkersError, match=rf"{hidden}\.transaction") as raised:
                claim(properties, schemas, A, [hidden, free])
            after = read_log_bounds(properties, topics)
            claim(properties, schemas, A, [free])
        claim(properties, schemas, A, [hidden, free])
        found = read_owners(properties, schemas, [hidden, free])

    assert raised.value.subscriptions == {hidden}
    assert free not in raised.value.message
    assert after == before
    assert found == {hidden: Owner(A), free: Owner(A)}


def test_a_group_that_writes_again_after_the_claim_of_another_is_named(
    kafka: str, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"bootstrap.servers": kafka}
    name = f"sibling{uuid.uuid4().hex[:8]}"
    ensure_topics(properties, [TopicSpec(f"{name}.transaction")])
    write = claims._produce_claims

    with Registry({"url": registry}) as schemas:

        def and_back(*arguments: object) -> dict[str, int]:
            offsets = write(*arguments)  # type: ignore[arg-type]
            write(properties, schemas, A, {name: B})
            return offsets

        claim(properties, schemas, A, [name])
        monkeypatch.setattr(claims, "_produce_claims", and_back)
        with pytest.raises(ForeignTopics) as refused:
            claim(properties, schemas, B, [name], siblings=["a"])

    assert str(A) in refused.value.message
    assert str(B) in refused.value.message


def test_a_claim_whose_topic_is_not_there_when_it_is_read_back_does_not_count(
    kafka: str, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"bootstrap.servers": kafka}
    name = f"new{uuid.uuid4().hex[:8]}"
    ensure_topics(properties, [TopicSpec(f"{name}.transaction")])

    with Registry({"url": registry}) as schemas:
        claim(properties, schemas, A, [name])
        # So answers a broker that has not learned of the topic yet, as one of several may.
        monkeypatch.setattr(owners, "describe_topics", lambda *_, **__: {})
        with pytest.raises(TransientError, match=rf"{name}\.transaction"):
            claim(properties, schemas, B, [name])


def test_an_open_kafka_transaction_in_one_topic_of_markers_holds_its_subscription_alone(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    s = scene(TWO, definitions={"watch_interval_s": 0.5})
    other = f"{s.slot}_other"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    ensure_topics({"bootstrap.servers": kafka}, [TopicSpec(f"{other}.transaction")])

    with open_transaction(kafka, f"{other}.transaction"):
        gateway = s.project.start()
        wait_for_copy_marker(s, "t", "ready")
        log = gateway.log()
        assert s.markers(other) == []
    with database.connect() as connection:
        connection.execute("INSERT INTO t VALUES (2)")
    wait_for_copy_marker(s, "t", "ready", other)
    wait_until(lambda: s.rebuilt("t", other) == [(1,), (2,)], 60, "the other subscription")

    assert gateway.terminate() == 0
    assert f"subscription={other}" in log.partition("a subscription is held")[2]
    assert f"{other}.transaction" in log
    assert s.rebuilt("t") == [(1,), (2,)]


def test_topics_that_are_hidden_one_after_the_other_do_not_keep_the_rest_from_starting(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    s = scene(TWO + "CREATE SUBSCRIPTION {s}_third CONNECTION '' PUBLICATION p;")
    markers = [f"{s.slot}_{name}.transaction" for name in ("other", "third")]
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    ensure_topics({"bootstrap.servers": kafka}, [TopicSpec(topic) for topic in markers])
    pauses: list[float] = []

    with ExitStack() as stack:

        def pause(seconds: float) -> None:
            if not pauses:
                stack.enter_context(open_transaction(kafka, markers[1]))
            pauses.append(seconds)

        stack.enter_context(open_transaction(kafka, markers[0]))
        with running_daemon(s, pause):
            wait_for_copy_marker(s, "t", "ready")

    assert len(pauses) == 2


def test_a_standby_takes_over_a_subscription_that_was_hidden_before_the_leader_started(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    s = scene(TWO)
    other = f"{s.slot}_other"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    ensure_topics({"bootstrap.servers": kafka}, [TopicSpec(f"{other}.transaction")])
    leaders: list[GatewayProcess] = []

    with ExitStack() as stack:

        def pause(seconds: float) -> None:
            if not leaders:
                stack.close()
                leaders.append(s.project.start())
                leaders[0].wait_until_copied()
            time.sleep(seconds)

        stack.enter_context(open_transaction(kafka, f"{other}.transaction"))
        with running_daemon(s, pause) as standby:
            wait_until(lambda: standby.counters.phase == "standby", 60, "the standby")
            with database.connect() as connection:

                def has_seen_leader() -> bool:
                    connection.execute("INSERT INTO t SELECT max(a) + 1 FROM t")
                    wait_until_confirmed(connection, s.slot)
                    return standby._process.standby.has_seen_leader

                wait_until(has_seen_leader, 60, "the standby to see the other one lead")
                assert leaders[0].terminate() == 0
                connection.execute("INSERT INTO t VALUES (0)")
            wait_until(lambda: (0,) in s.rebuilt("t"), 60, "the standby")

    assert s.rebuilt("t", other) == s.rebuilt("t")
    copies = [m["copy"]["state"] for m in s.markers(other) if m["kind"] == "COPY"]
    assert copies.count("ready") == 1, "the standby has copied what the leader had published"


def test_a_hidden_subscription_is_tried_again_where_the_catalog_is_not_watched(
    scene: Callable[..., Scene], database: Database, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_retries, "_ALIVE_S", 0.2)
    monkeypatch.setattr(reloader, "_ALIVE_S", 0.2)
    s = scene(TWO, definitions={"watch_interval_s": 0})
    other = f"{s.slot}_other"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    ensure_topics({"bootstrap.servers": kafka}, [TopicSpec(f"{other}.transaction")])

    with ExitStack() as stack:
        stack.enter_context(open_transaction(kafka, f"{other}.transaction"))
        with running_daemon(s, time.sleep):
            wait_for_copy_marker(s, "t", "ready")
            stack.close()
            wait_for_copy_marker(s, "t", "ready", other)

    assert s.rebuilt("t", other) == [(1,)]
