"""The scenes of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.sink.delivery.sink import TransactionalSink
from tests.support.gateway.scene import scene
from tests.support.gateway.sink_scene import Topics, make_sink

__all__ = ["scene"]


@pytest.fixture
def topics(kafka: str) -> Topics:
    return Topics(kafka)


@pytest.fixture
def sink(topics: Topics) -> Iterator[TransactionalSink]:
    with make_sink(topics) as made:
        yield made
