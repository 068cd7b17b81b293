"""Scenes for faults: on the run's shared servers, or on servers that a test may kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.scene import Scene
from tests.servers import Database


@pytest.fixture
def scene(
    tmp_path: Path, database: Database, kafka: str, registry: str
) -> Iterator[Callable[..., Scene]]:
    """Make a scene on the shared servers: ``scene(definitions, limits={...})``."""
    made: list[Scene] = []

    def make(definitions: str, **extra: dict[str, Any]) -> Scene:
        slot = f"gw_{database.name}"
        made.append(Scene(tmp_path, database.dsn, kafka, registry, slot, definitions, extra))
        return made[-1]

    yield make
    for one in made:
        one.close()
