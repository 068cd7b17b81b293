"""Sums what a run of the tests took, by file: ``python -m tools.durations [FILE] [--record]``.

``--record`` writes the sums to ``tests/durations.json``, from which the next runs know which files
to begin first, and against which ``PGSLUICE_TIME_BUDGET`` compares: with it a run fails when the
tests of its tiers took longer by more than a third. Without it durations never fail anything.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
VARIABLE: Final = "PGSLUICE_DURATIONS"
"""As in ``tests.support.run.durations``, which writes the file."""
WRITTEN: Final = ROOT / "build" / "durations.json"
RECORDED: Final = ROOT / "tests" / "durations.json"
SHOWN: Final = 12
ALLOWED: Final = 4 / 3


def main() -> int:
    """Show a file's sums, and record them if asked to."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--record"]
    path = Path(arguments[0]) if arguments else WRITTEN
    run = json.loads(path.read_text())
    show(run)
    if "--record" in sys.argv:
        files = {name: seconds["wall"] for name, seconds in sorted(by_file(run).items())}
        RECORDED.write_text(json.dumps({"files": files}, indent=1) + "\n")
    return 0


def report(tiers: Sequence[str]) -> int:
    """Show what the run took; 1 when it took longer than `PGSLUICE_TIME_BUDGET` allows."""
    run = json.loads(WRITTEN.read_text())
    show(run)
    if not os.environ.get("PGSLUICE_TIME_BUDGET"):
        return 0
    recorded = json.loads(RECORDED.read_text())["files"]
    before = sum(s for name, s in recorded.items() if name.split("/")[1] in tiers)
    now = sum(seconds["wall"] for seconds in by_file(run).values())
    if now <= before * ALLOWED:
        return 0
    print(f"durations: FAILED: {now:.0f} s, and {before:.0f} s are recorded (tests/durations.json)")
    return 1


def by_file(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds of ``wall`` and ``cpu`` by file of tests, and how many ``tests`` it has."""
    files: defaultdict[str, dict[str, float]] = defaultdict(
        lambda: {"tests": 0, "wall": 0.0, "cpu": 0.0}
    )
    for nodeid, seconds in run["tests"].items():
        found = files[nodeid.split("::", 1)[0]]
        found["tests"] += 1
        found["cpu"] = round(found["cpu"] + seconds.get("cpu", 0.0), 1)
        found["wall"] = round(found["wall"] + _wall(seconds), 1)
    return dict(files)


def show(run: dict[str, Any]) -> None:
    """Print the sums: the run, its processes, tiers, slowest files, tests and fixtures."""
    files = by_file(run)
    cpu = dict(sorted(run["cpu_s"].items()))
    print(f"durations: {run['wall_s']:.0f} s, {sum(cpu.values()):.0f} s of CPU:", end=" ")
    print(", ".join(f"{name} {seconds:.0f}" for name, seconds in cpu.items()))
    tiers: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for name, seconds in files.items():
        for at, key in enumerate(("tests", "wall", "cpu")):
            tiers[name.split("/")[1]][at] += seconds[key]
    _table("tier", [(name, *values) for name, values in tiers.items()])
    _table("file", [(n, s["tests"], s["wall"], s["cpu"]) for n, s in files.items()])
    _table("test", [(n, 1, _wall(s), s.get("cpu", 0.0)) for n, s in run["tests"].items()])
    _table("fixture", [(n, f["calls"], f["seconds"], 0.0) for n, f in run["fixtures"].items()])


def _wall(seconds: dict[str, float]) -> float:
    return sum(seconds.get(phase, 0.0) for phase in ("setup", "call", "teardown"))


def _table(title: str, rows: Sequence[tuple[Any, ...]]) -> None:
    print(f"  {'number':>6} {'seconds':>8} {'CPU':>7}  {title}")
    for name, number, wall, cpu in sorted(rows, key=lambda row: -row[2])[:SHOWN]:
        print(f"  {number:6.0f} {wall:8.1f} {cpu:7.1f}  {name}")


if __name__ == "__main__":
    sys.exit(main())
