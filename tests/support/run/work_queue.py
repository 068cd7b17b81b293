"""The order in which the test processes of a run take the files of tests.

Files are the units, longest first as the run that wrote ``tests/durations.json`` saw them, so that
no process is left alone with a long one in the end. Files whose tests share something expensive are
one unit, and so in one process: those with the Spark session, and those with the rack of servers
that faults are inflicted on. A test process knows that from the fixtures of its tests, and says it
to the process that hands out the units (`tests.support.backends.shared_servers`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["LongestFirst", "Order", "file_of", "groups"]

RECORDED: Final = Path(__file__).parents[2] / "durations.json"
_UNKNOWN_S: Final = 30.0
"""Expected duration of a file that nobody has measured, in seconds: begun early, to be safe."""
_SHARED: Final = ("spark", "rack")
"""Fixtures whose tests stay in one process; also the names of their units."""


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole files, and groups of files."""

    def __init__(self, config: pytest.Config, log: Any, groups: Mapping[str, str]) -> None:
        super().__init__(config, log)
        self._groups = groups

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return self._groups.get(file, file)


class Order:
    """Sorts the tests by the duration of their unit; the order within a unit stays."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        recorded: dict[str, float] = json.loads(RECORDED.read_text())["files"]
        group_of = groups(items)
        units = {item: group_of.get(name := file_of(item.nodeid), name) for item in items}
        files: defaultdict[str, set[str]] = defaultdict(set)
        for item, unit in units.items():
            files[unit].add(file_of(item.nodeid))
        seconds = {
            unit: sum(recorded.get(name, _UNKNOWN_S) for name in names)
            for unit, names in files.items()
        }
        items.sort(key=lambda item: (-seconds[units[item]], units[item]))


def groups(items: list[pytest.Item]) -> dict[str, str]:
    """The files that are a part of a larger unit, and that unit's name."""
    found = {}
    for item in items:
        for fixture in _SHARED:
            if fixture in getattr(item, "fixturenames", ()):
                found[file_of(item.nodeid)] = fixture
    return found


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.split("::", 1)[0]
