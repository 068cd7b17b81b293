"""What goes wrong between sink and broker is named, classified by its cause, noticed in time."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gateway.core.errors import FatalError, GatewayError, TransientError
from gateway.core.records import Batch, Record
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.topics.topics import TopicSpec, describe_topics, ensure_topics
from tests.support.gateway.sink_scene import Topics, finish, make_sink
from tests.support.run.waiting import wait_until, within

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def failure_of(sink: TransactionalSink, batch: Batch) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        finish(sink, batch)
    return caught.value


def test_a_record_too_large_is_named_also_when_others_were_produced_behind_it(
    topics: Topics,
) -> None:
    small = f"{topics.prefix}.small"
    ensure_topics(topics.kafka, [TopicSpec(small, config={"max.message.bytes": "2000"})])
    noise: Record = (small, 0, None, os.urandom(5_000), [])
    with make_sink(topics) as sink:
        sink.open()
        finish(sink, Batch([noise]))
        errors: list[GatewayError] = []

        def has_failed() -> bool:
            try:
                finish(sink, Batch(topics.records(1)))
            except GatewayError as error:
                errors.append(error)
            return bool(errors)

        wait_until(has_failed, 60, "the broker's answer")

    assert type(errors[0]) is FatalError
    assert f"larger than Kafka accepts (topic {small})" in str(errors[0])


def test_a_fence_that_shows_only_while_aborting_is_what_counts(topics: Topics) -> None:
    too_large: Record = (topics.rows, 0, None, bytes(2_000_000), [])
    with make_sink(topics) as sink, make_sink(topics) as successor:
        sink.open()
        finish(sink, Batch(topics.records(1)))
        successor.open()

        error = failure_of(sink, Batch([too_large]))

    assert "another gateway" in str(error)


@pytest.mark.parametrize(
    "contact",
    [
        pytest.param(lambda t: describe_topics(t.kafka, [t.rows], timeout_s=600), id="admin"),
        pytest.param(lambda t: make_sink(t, **t.kafka).open(600), id="producer"),
    ],
)
def test_a_client_that_is_not_let_in_is_told_why_and_not_after_all_its_time(
    topics: Topics, contact: Callable[[Topics], object]
) -> None:
    topics.kafka |= {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "somebody",
        "sasl.password": "s3cret",
    }

    # A small part of the time that the call may take.
    with within(30, "the call"), pytest.raises(FatalError, match="SASL PLAIN") as caught:
        contact(topics)

    assert "s3cret" not in str(caught.value)


def test_brokers_that_cannot_be_reached_are_named_and_logged_once(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.kafka["bootstrap.servers"] = "127.0.0.1:1"

    with make_sink(topics) as sink, pytest.raises(TransientError, match=r"127\.0\.0\.1:1"):
        sink.open(timeout_s=8)

    lines = [r.getMessage() for r in caplog.records if r.name == "gateway.sink.clients.properties"]
    assert len(lines) <= 3, lines


def test_a_sink_that_may_resume_does_not_fence_the_gateway_that_has_fenced_it(
    topics: Topics,
) -> None:
    with make_sink(topics) as sink, make_sink(topics) as successor:
        sink.open()
        sink.resume_while(lambda: True)
        finish(sink, Batch(topics.records(2)))
        successor.open()

        error = failure_of(sink, Batch(topics.records(1), topics.watermark(2), topics.cut(2)))
        finish(successor, Batch(topics.records(1), topics.watermark(1), topics.cut(1)))

    assert "another gateway" in str(error)
    assert len(topics.visible()) == 1
