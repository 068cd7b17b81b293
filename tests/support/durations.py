"""Durations of every test and fixture, written as JSON at the end of a run.

A pytest plugin, registered by ``tests/conftest.py``. The file named by ``PGSLUICE_DURATIONS`` gets
one object: ``tests`` (node id to seconds of setup, call, teardown, and CPU), ``fixtures`` (name to
calls and seconds of setup), and ``cpu_s``, the CPU of the process and of all its children that have
ended. CPU of a test is this process's and that of the children that ended during it, in seconds; a
server that outlives the test counts for the run only. ``tools/durations.py`` sums such files.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PGSLUICE_DURATIONS"


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Durations:
    """Collects what each test and each fixture took."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self._tests: dict[str, dict[str, float]] = {}
        self._fixtures: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = cpu_seconds()
        try:
            return (yield)
        finally:
            test = self._tests.setdefault(item.nodeid, {})
            test["cpu"] = round(cpu_seconds() - before, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.setdefault(report.nodeid, {})[report.when] = round(report.duration, 3)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        began = time.monotonic()
        try:
            return (yield)
        finally:
            fixture = self._fixtures.setdefault(
                fixturedef.argname, {"scope": fixturedef.scope, "calls": 0, "seconds": 0.0}
            )
            fixture["calls"] += 1
            fixture["seconds"] = round(fixture["seconds"] + time.monotonic() - began, 3)

    def write(self) -> None:
        """Write the file; called when everything has been torn down."""
        content = {
            "wall_s": round(time.monotonic() - self._began, 3),
            "cpu_s": round(cpu_seconds(), 3),
            "tests": self._tests,
            "fixtures": self._fixtures,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def register(config: pytest.Config) -> Durations | None:
    """The plugin, registered, when ``PGSLUICE_DURATIONS`` names a file; None otherwise."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    durations = Durations(Path(path))
    config.pluginmanager.register(durations, "durations")
    return durations
