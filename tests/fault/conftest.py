"""The scene of the gateway's fault tests, and the servers that they kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.backends.rack import Rack
from tests.support.gateway.scene import scene

__all__ = ["scene"]


@pytest.fixture(scope="session")
def standing_rack() -> Iterator[Rack]:
    with Rack() as made:
        yield made


@pytest.fixture
def rack(standing_rack: Rack) -> Iterator[Rack]:
    """Servers to be killed, for one test at a time."""
    standing_rack.set_up()
    yield standing_rack
    standing_rack.clear()
