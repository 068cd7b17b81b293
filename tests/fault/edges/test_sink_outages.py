"""A sink that holds the slot waits for its broker, however that went away, and goes on itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from devkit.embedded.kafka import EmbeddedKafka
from gateway.config import load_settings
from gateway.core.descriptors import wait_readable
from gateway.core.errors import HiddenMarkersError
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Cut, Feed, Record, Writer
from gateway.core.watermark import Watermark
from gateway.runtime.planning.ownership import check_owners
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.producer import TransactionalProducer
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.claims import take_over
from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.own_topics.owners import ForeignTopics, Owner
from gateway.sink.own_topics.progress import KafkaProgress
from gateway.sink.own_topics.requests import forget_offsets
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import TopicSpec, ensure_topics, progress_topic_spec
from gateway.source.session.connection import ServerFacts
from tests.support.backends.proxy import Proxy
from tests.support.backends.rack import Rack
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.java, pytest.mark.slow]

TIMEOUT_S = 120
FEED = Feed("s", "s.transaction", b"\0\0\0\0\7\0\0", {"rows": 1})
FED = frozenset(FEED.tables)
FACTS = ServerFacts("1", "db", 1, 160004, "UTF8", "logical", False, 1, 1, "-1", "u", True)


class FixedIds:
    def register(self, subject: str, schema: Mapping[str, object]) -> int:
        return 7


@pytest.fixture
def proxy(rack: Rack) -> Proxy:
    return rack.kafka_proxy


@pytest.fixture
def broker(rack: Rack) -> EmbeddedKafka:
    ensure_topics(
        {"bootstrap.servers": rack.broker.bootstrap_servers},
        [
            TopicSpec("rows"),
            TopicSpec(FEED.markers),
            progress_topic_spec("pgsluice.progress"),
        ],
    )
    return rack.broker


def make_sink(
    address: str, *, on_away: Callable[[str], None] = lambda why: None, timeout_ms: int = 900_000
) -> TransactionalSink:
    properties: dict[str, str | int | bool] = {
        "bootstrap.servers": address,
        "transaction.timeout.ms": timeout_ms,
    }
    identity = SlotIdentity("1", "db", "slot")
    progress = KafkaProgress(properties, identity, FixedIds())
    sink = TransactionalSink(properties, identity, progress, patience_s=TIMEOUT_S, on_away=on_away)
    sink.resume_while(lambda: True)
    return sink


def piece(number: int) -> list[Record]:
    return [("rows", 0, b"%d" % number, b"%d" % n, []) for n in range(20)]


def whole(number: int, records: list[Record]) -> Batch:
    return Batch(records, Watermark(Lsn(number), 1, "", ()), Cut(Lsn(number), 1, [FEED]))


def finish(sink: TransactionalSink, batch: Batch) -> None:
    sink.submit(batch)
    assert wait_readable([sink.fileno()], TIMEOUT_S), "the sink has not finished"
    assert sink.collect() is batch


def keys(broker: EmbeddedKafka) -> list[bytes]:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    return [key for key, _ in read_compacted(kafka, "rows", 60)]


def test_a_broker_that_is_killed_under_load_is_waited_for(broker: EmbeddedKafka) -> None:
    committed: list[int] = []

    def load() -> None:
        with make_sink(broker.bootstrap_servers) as sink:
            sink.open()
            for number in range(100):
                if number % 2:
                    finish(sink, Batch(piece(number)))
                    finish(sink, whole(number, piece(number)))
                else:
                    finish(sink, whole(number, piece(number) * 2))
                committed.append(number)

    loader = threading.Thread(target=load)
    loader.start()
    for reached in (30, 60):
        wait_until(partial(has_reached, committed, reached), TIMEOUT_S, "the load", poll_s=0.001)
        broker.kill()
        broker.restart()
    loader.join(TIMEOUT_S * PATIENCE)

    assert committed == list(range(100))
    assert keys(broker) == [b"%d" % number for number in range(100) for _ in range(40)]


def has_reached(committed: list[int], number: int) -> bool:
    return len(committed) >= number


def test_an_outage_after_offsets_were_forgotten_is_waited_for(broker: EmbeddedKafka) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    with make_sink(broker.bootstrap_servers, timeout_ms=3_000) as sink:
        sink.open()
        finish(sink, whole(1, piece(1)))
        forget_offsets(kafka, "pgsluice.progress", SlotIdentity("1", "db", "slot"), FixedIds(), FED)
        sink.forget(FED)
        finish(sink, Batch(piece(2)))
        broker.kill()
        over = time.monotonic() + 6
        sink.submit(whole(2, piece(2)))
        wait_until(lambda: time.monotonic() > over, 60, "the Kafka transaction to time out")
        broker.restart()

        assert wait_readable([sink.fileno()], TIMEOUT_S), "the sink has not gone on"
        sink.collect()


def outlast_a_transaction(broker: EmbeddedKafka, sink: TransactionalSink) -> None:
    """Let an outage last until the open Kafka transaction has timed out."""
    sink.open()
    finish(sink, whole(1, piece(1)))
    finish(sink, Batch(piece(2)))
    broker.kill()
    over = time.monotonic() + 6
    sink.submit(whole(2, piece(2)))
    wait_until(lambda: time.monotonic() > over, 60, "the Kafka transaction to time out")
    broker.restart()


def lose_a_transaction(broker: EmbeddedKafka, sink: TransactionalSink) -> None:
    """Lose a Kafka transaction by an outage; the sink has ended."""
    outlast_a_transaction(broker, sink)
    assert wait_readable([sink.fileno()], TIMEOUT_S), "the sink has not ended"


def test_markers_that_are_hidden_after_an_outage_end_the_sink_at_once(
    broker: EmbeddedKafka,
) -> None:
    def hidden() -> None:
        raise HiddenMarkersError("the markers of s cannot be read", subscriptions=["s"])

    with make_sink(broker.bootstrap_servers, timeout_ms=3_000) as sink:
        sink.resume_while(lambda: True, hidden)
        lose_a_transaction(broker, sink)
        with pytest.raises(HiddenMarkersError):
            sink.collect()


def test_a_sink_that_is_closed_does_not_wait_for_the_owners_of_its_topics(
    broker: EmbeddedKafka,
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def check_owners() -> None:
        asked.set()
        answered.wait(TIMEOUT_S)

    with make_sink(broker.bootstrap_servers, timeout_ms=3_000) as sink:
        sink.resume_while(lambda: True, check_owners)
        outlast_a_transaction(broker, sink)
        assert asked.wait(TIMEOUT_S)
        sink.close(1.0)
        sink._worker.join(TIMEOUT_S / 2)  # on a busy machine it may abort for longer than that
        alive = sink._worker.is_alive()
        answered.set()

    assert not alive


def test_topics_that_are_taken_over_during_an_outage_are_left_to_their_new_owner(
    broker: EmbeddedKafka, registry: str, tmp_path: Path
) -> None:
    kafka: dict[str, str | int | bool] = {"bootstrap.servers": broker.bootstrap_servers}
    (tmp_path / "pgsluice.toml").write_text(
        '[source]\ndsn = "postgresql://u@h/db"\nslot = "slot"\n'
        '[definitions]\nfile = "replication.sql"\n'
        f'[kafka]\n"bootstrap.servers" = "{broker.bootstrap_servers}"\n'
        f'[registry]\nurl = "{registry}"\n'
    )
    settings = load_settings(tmp_path / "pgsluice.toml", {})
    mine, other = (Writer("1", "db", slot, "gw") for slot in ("slot", "other"))

    def is_taken_over_here() -> bool:
        with Registry(settings.registry) as schemas:
            take_over(kafka, schemas, other, {"s": Owner(mine)})
        return True

    with make_sink(broker.bootstrap_servers, timeout_ms=3_000) as sink:
        sink.resume_while(is_taken_over_here, partial(check_owners, settings, FACTS, ["s"]))
        lose_a_transaction(broker, sink)
        with pytest.raises(ForeignTopics, match='slot "other"'):
            sink.collect()

    assert keys(broker) == [b"1"] * 20


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda sink: finish(sink, Batch(piece(1))), id="after its first piece"),
        pytest.param(lambda sink: None, id="between two"),
    ],
)
def test_an_outage_longer_than_a_kafka_transaction_may_last_loses_nothing(
    broker: EmbeddedKafka, begin: Callable[[TransactionalSink], None]
) -> None:
    with make_sink(broker.bootstrap_servers, timeout_ms=3_000) as sink:
        sink.open()
        finish(sink, whole(0, piece(0)))
        begin(sink)
        broker.kill()
        over = time.monotonic() + 6
        sink.submit(whole(1, piece(1)))
        wait_until(lambda: time.monotonic() > over, 60, "the time to pass")
        broker.restart()

        assert wait_readable([sink.fileno()], TIMEOUT_S), "the sink has not gone on"
        sink.collect()
        finish(sink, whole(2, piece(2)))

    found = keys(broker)
    assert [key for n, key in enumerate(found) if n % 20 == 0] in (
        [b"0", b"1", b"2"],
        [b"0", b"1", b"1", b"2"],
    )


def test_a_connection_that_is_open_but_dead_is_given_up_and_replaced(
    broker: EmbeddedKafka, proxy: Proxy
) -> None:
    with make_sink(f"127.0.0.1:{proxy.port}") as sink:
        sink.open()
        finish(sink, whole(0, piece(0)))
        proxy.freeze()
        before = proxy.accepted
        started = time.monotonic()
        sink.submit(whole(1, piece(1)))

        wait_until(lambda: proxy.accepted > before, TIMEOUT_S, "another connection")
        noticed_s = time.monotonic() - started
        proxy.thaw()
        assert wait_readable([sink.fileno()], TIMEOUT_S), "the sink has not gone on"
        sink.collect()

    assert noticed_s < 40
    assert keys(broker) == [b"0"] * 20 + [b"1"] * 20


def test_a_broker_that_freezes_while_nothing_is_written_is_named_until_it_answers(
    broker: EmbeddedKafka, proxy: Proxy
) -> None:
    said: list[str] = []
    with make_sink(f"127.0.0.1:{proxy.port}", on_away=said.append) as sink:
        sink.open()
        finish(sink, whole(0, piece(0)))
        proxy.freeze()
        named = wait_until(lambda: said[-1], 60, "Kafka to be named")
        # A piece alone goes to the producer's queue: that is no answer of Kafka. Another reason
        # takes the place of the first one when the client has ended the silent connection.
        finish(sink, Batch(piece(1)))
        assert named == "Kafka does not answer: no answer to a request"
        assert said[-1].startswith("Kafka does not answer: ")
        proxy.thaw()
        wait_until(lambda: said[-1] == "", 60, "Kafka to answer")
        finish(sink, whole(1, piece(1)))

    assert len([why for n, why in enumerate(said) if why and said[n - 1] == ""]) == 1


def test_a_look_whether_kafka_answers_costs_the_same_in_a_cluster_of_any_size(
    broker: EmbeddedKafka, proxy: Proxy
) -> None:
    kafka = {"bootstrap.servers": f"127.0.0.1:{proxy.port}"}
    transactions = TransactionalProducer(kafka, "cheap", lambda *_: None, lambda: False)
    transactions.reach("rows")
    costs = []
    for others in (0, 200):
        ensure_topics(kafka, [TopicSpec(f"other-{n}") for n in range(others)])
        before = proxy.read["to_client"]
        assert all(transactions.answers("rows", 10) for _ in range(50))
        costs.append(proxy.read["to_client"] - before)
    transactions.close()

    assert costs[1] < 2 * costs[0]
