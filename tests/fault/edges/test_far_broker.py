"""A broker that is far away: what is asked for many topics is asked once, not topic by topic."""

from __future__ import annotations

import uuid
from typing import Final

import pytest

from gateway.core.names import transaction_topic
from gateway.core.records import Writer
from gateway.sink.own_topics.claims import claim
from gateway.sink.own_topics.owners import Owner, read_owners
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from tests.support.backends.rack import Rack

pytestmark = [pytest.mark.kafka, pytest.mark.java, pytest.mark.slow]

_ONE_WAY_S: Final = 0.25
"""One request for each topic would take 50 s, and there are 30."""


_LITTLE_S: Final = 8.0
_BYTES_OF_A_FETCH: Final = 1000
"""A fetch has the markers of three topics then: a hundred topics take 17 s."""


@pytest.mark.parametrize(
    ("limits", "timeout_s"),
    [
        ({}, 30.0),
        # Each topic counts: that there are many must not be taken for a broker without an answer.
        (
            {"message.max.bytes": _BYTES_OF_A_FETCH, "fetch.max.bytes": _BYTES_OF_A_FETCH},
            _LITTLE_S,
        ),
    ],
    ids=["asked at once", "read little by little"],
)
def test_the_owners_of_a_hundred_subscriptions_are_read_in_time(
    rack: Rack, registry: str, limits: dict[str, int], timeout_s: float
) -> None:
    properties = {"bootstrap.servers": rack.broker.bootstrap_servers}
    run = uuid.uuid4().hex[:8]
    names = [f"far{number}_{run}" for number in range(100)]
    writer = Writer("1", "shop", "slot", "gw")
    ensure_topics(properties, [TopicSpec(transaction_topic(name)) for name in names])
    with Registry({"url": registry}) as schemas:
        claim(properties, schemas, writer, names)
        rack.kafka_proxy.delay(_ONE_WAY_S)
        try:
            place = f"127.0.0.1:{rack.kafka_proxy.port}"
            far: dict[str, str | int | bool] = {"bootstrap.servers": place, **limits}
            owners = read_owners(far, schemas, names, timeout_s=timeout_s)
        finally:
            rack.kafka_proxy.delay(0)

    assert owners == dict.fromkeys(names, Owner(writer))
