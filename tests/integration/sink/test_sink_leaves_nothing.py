"""What a sink that is closed leaves behind: no client, and no exception with all that it holds."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from gateway.core.errors import FencedError
from gateway.core.records import Batch
from gateway.sink.delivery.producer import TransactionalProducer
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.progress import KafkaProgress
from tests.support.gateway.sink_scene import FixedIds, Topics
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.java]


class Abandoned(Exception):
    """Unwinds the block in which a sink is open."""


@pytest.fixture
def topics(kafka: str) -> Topics:
    return Topics(kafka)


def client_threads() -> int:
    """Threads of this process that belong to Kafka clients."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("rdk:") for name in names)


def transactions(topics: Topics) -> TransactionalProducer:
    return TransactionalProducer(
        topics.kafka, topics.identity.transactional_id, lambda *_: None, lambda: False
    )


def test_a_producer_that_was_fenced_while_it_committed_is_let_go(topics: Topics) -> None:
    gc.collect()
    before = client_threads()
    first, second = transactions(topics), transactions(topics)
    first.start()
    first.begin()
    first.produce(topics.records(3))
    first.flush()
    second.start()
    with pytest.raises(FencedError):
        first.commit()
    first.close()
    second.close()
    wait_until(lambda: client_threads() <= before, 10, "the threads of both clients to end")


def test_a_sink_that_was_fenced_lets_go_of_the_error_that_closed_it(topics: Topics) -> None:
    gc.collect()
    before = client_threads()
    progress = KafkaProgress(topics.kafka, topics.identity, FixedIds(), topic=topics.progress)
    second = transactions(topics)
    errors: list[weakref.ref[Abandoned]] = []

    def abandon() -> None:
        with TransactionalSink(topics.kafka, topics.identity, progress) as sink:
            sink.open(30)
            sink.submit(Batch(topics.records(3), None))
            wait_until(lambda: sink.collect() is not None, 60, "the batch to be sent")
            second.start()
            error = Abandoned()
            errors.append(weakref.ref(error))
            raise error

    with pytest.raises(Abandoned):
        abandon()
    second.close()
    wait_until(lambda: client_threads() <= before, 10, "the threads of both clients to end")
    gc.collect()
    assert errors[0]() is None
