"""Durations of every test and fixture, and CPU of the processes of a run, written as JSON.

A pytest plugin, registered by ``tests/conftest.py``. The file named by ``PGSLUICE_DURATIONS`` gets
``tests`` (node id to seconds of setup, call, teardown and CPU), ``fixtures`` (name to calls and
seconds of setup) and ``cpu_s``: seconds of CPU of each process of the run with its children. The
CPU of a test is that of its process, of its children (Spark's JVM, for one) and of its gateways;
what a shared server takes is in ``cpu_s`` of the process ``servers``. ``tools/durations.py`` sums
files.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.gateway.warm_start import cpu_seconds_of_forked

__all__ = ["VARIABLE", "Durations", "cpu_seconds", "path_to_write"]

VARIABLE: Final = "PGSLUICE_DURATIONS"
"""Name of the environment variable that names the file."""


def cpu_seconds() -> float:
    """User and system time of this process, its children and its ended gateways."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ended = sum(usage.ru_utime + usage.ru_stime for usage in used)
    return ended + _running_children_s() + cpu_seconds_of_forked()


def _running_children_s() -> float:
    """CPU of the children that have not ended, with that of their own ended children."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            for pid in listed.read_text().split():
                ticks += _ticks(pid)
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: str) -> int:
    """Clock ticks of a process; 0 when it has ended, and is counted elsewhere."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


class Durations:
    """Collects what tests and fixtures took: in each test process, and over all of them.

    Args:
        process: Name of this process, in the file.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._began = time.monotonic()
        self._tests: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._fixtures: defaultdict[str, dict[str, float]] = defaultdict(
            lambda: {"calls": 0, "seconds": 0.0}
        )
        self._cpu: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = cpu_seconds()
        try:
            return (yield)
        finally:
            self._tests[item.nodeid]["cpu"] = round(cpu_seconds() - before, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid][report.when] = round(report.duration, 3)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        began = time.monotonic()
        try:
            return (yield)
        finally:
            fixture = self._fixtures[fixturedef.argname]
            fixture["calls"] += 1
            fixture["seconds"] += round(time.monotonic() - began, 3)

    def collected(self) -> dict[str, Any]:
        """Return the durations of this process, as JSON can have them."""
        own = cpu_seconds() - sum(self._cpu.values())  # they were its children
        return {
            "wall_s": round(time.monotonic() - self._began, 1),
            "cpu_s": {**self._cpu, self._process: round(own, 1)},
            "tests": self._tests,
            "fixtures": self._fixtures,
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a test process has seen; nothing when it has died."""
        found = getattr(node, "workeroutput", {}).get("durations")
        if not found:
            return
        self._cpu.update(found["cpu_s"])
        for nodeid, seconds in found["tests"].items():
            self._tests[nodeid].update(seconds)
        for name, values in found["fixtures"].items():
            for key, value in values.items():
                self._fixtures[name][key] += value

    def write(self, path: Path) -> None:
        """Write the file; called when everything has been torn down."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.collected(), indent=1, sort_keys=True) + "\n")


def path_to_write() -> Path | None:
    """The file that is wanted, if one is."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None
