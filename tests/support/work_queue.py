"""The order in which the test processes of a run take the files of tests.

Files are the units, longest first as the run that wrote ``tests/durations.json`` saw them, so that
no process is left alone with a long one in the end. Tests that share something expensive are one
unit, and so in one process: those with the Spark session, and those with the rack of servers that
faults are inflicted on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadGroupScheduling

__all__ = ["RECORDED", "LongestFirst", "file_of", "order", "plain"]

RECORDED: Final = Path(__file__).parent.parent / "durations.json"
_UNKNOWN_S: Final = 30.0
"""What a file is taken for that nobody has measured, in seconds: begun early, to be safe."""
_SHARED: Final = {"spark": "spark", "rack": "rack"}
"""Fixtures whose tests stay in one process, and the name of their unit."""


class LongestFirst(LoadGroupScheduling):  # type: ignore[misc]
    """Hands out whole files, and what is marked as a group."""

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).split("::")[0]


def order(items: list[pytest.Item]) -> None:
    """Mark the groups, and sort by the duration of the unit; the order within a unit stays."""
    recorded: dict[str, float] = json.loads(RECORDED.read_text())["files"]
    units = {}
    for item in items:
        unit = file_of(item.nodeid)
        for fixture, group in _SHARED.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(group))
                unit = group
        units[item] = unit
    files: dict[str, set[str]] = {}
    for item, unit in units.items():
        files.setdefault(unit, set()).add(file_of(item.nodeid))
    seconds = {unit: sum(recorded.get(f, _UNKNOWN_S) for f in its) for unit, its in files.items()}
    items.sort(key=lambda item: (-seconds[units[item]], units[item]))


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.split("::", 1)[0]


def plain(nodeid: str) -> str:
    """A node id without the group that xdist has appended to it."""
    head, at, _ = nodeid.rpartition("@")
    return head if at and nodeid.rfind("@") > nodeid.rfind("]") else nodeid
