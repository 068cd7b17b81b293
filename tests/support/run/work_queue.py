"""The order in which the test processes of a run take the files of tests.

Files are the units, longest first as the run that wrote ``tests/durations.json`` saw them, so that
no process is left alone with a long one in the end. Files whose tests share something expensive are
one unit, and so in one process: those with a Spark session, and those with the rack of servers
that faults are inflicted on. A test process knows that from the fixtures of its tests, and says it
to the process that hands out the units (`tests.support.backends.shared_servers`).

Every second process has a Spark session: it takes as much CPU as two others, which wait for servers
half of their time.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["LongestFirst", "Order", "divided", "file_of", "groups"]

RECORDED: Final = Path(__file__).parents[2] / "durations.json"
_UNKNOWN_S: Final = 30.0
"""Expected duration of a file that nobody has measured, in seconds: begun early, to be safe."""
_SHARED: Final = ("spark", "rack")
"""Fixtures whose tests stay in one process, or in as many as have a Spark session."""


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
        recorded = _recorded()
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


def groups(items: Iterable[pytest.Item]) -> dict[str, str]:
    """The files that are a part of a larger unit, and that unit's name."""
    found = {}
    for item in items:
        for fixture in _SHARED:
            if fixture in getattr(item, "fixturenames", ()):
                found[file_of(item.nodeid)] = fixture
    recorded = _recorded()
    with_spark = {name: recorded.get(name, _UNKNOWN_S) for name in found if found[name] == "spark"}
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return found | divided(with_spark, max(1, processes // 2))


def divided(seconds: Mapping[str, float], sessions: int) -> dict[str, str]:
    """The session of each file, so that all sessions have about as much to do."""
    load = dict.fromkeys(range(1, sessions + 1), 0.0)
    found = {}
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        session = min(load, key=load.__getitem__)
        load[session] += seconds[name]
        found[name] = f"spark {session}"
    return found


def _recorded() -> dict[str, float]:
    """Seconds by file."""
    recorded: dict[str, float] = json.loads(RECORDED.read_text())["files"]
    return recorded


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.split("::", 1)[0]
