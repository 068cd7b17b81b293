"""``python -m bench.compare [--only SCENARIO] [--tool TOOL]``: run the scenarios, print a table."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.compare.debezium import Debezium
from bench.compare.pgsluice import Pgsluice
from bench.compare.scenarios.ddl import ddl
from bench.compare.scenarios.drain import drain_orders, drain_simple
from bench.compare.scenarios.filters import filters
from bench.compare.scenarios.kills import kills
from bench.compare.scenarios.latency import latency
from bench.compare.scenarios.restored import restored
from bench.compare.stage import Stage, servers
from bench.compare.tool import MakeTool
from bench.processes import BenchError
from bench.stream import stop_on_sigterm
from devkit.embedded.processes import ServerError

Scenario = Callable[[Stage, str, MakeTool], dict[str, str]]

TOOLS: Final[Mapping[str, MakeTool]] = {"pgsluice": Pgsluice, "debezium": Debezium}
SCENARIOS: Final[Mapping[str, tuple[str, Scenario]]] = {
    "simple": ("200,000 changes of one table", partial(drain_simple, changes=200_000)),
    "orders": (
        "20,000 transactions of orders, payments and deliveries",
        partial(drain_orders, transactions=20_000),
    ),
    "slow": ("100 transactions of one row a second", partial(latency, rate=100)),
    "fast": ("1,000 transactions of one row a second", partial(latency, rate=1000)),
    "kills": ("kill -9, ten times, while orders are placed", kills),
    "filters": ("rows that enter and leave a filter", filters),
    "ddl": ("DDL while the tool is behind", ddl),
    "restored": ("a primary restored from a backup", restored),
}


def main() -> int:
    """Run what is asked for; the exit code."""
    arguments = _parser().parse_args()
    stop_on_sigterm()
    names = arguments.only or list(SCENARIOS)
    tools = arguments.tool or list(TOOLS)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pgsluice-compare-") as folder,
            servers(Path(folder)) as stage,
        ):
            _head(tools)
            for name in names:
                title, scenario = SCENARIOS[name]
                _report(title, {tool: _run(stage, name, tool, scenario) for tool in tools})
    except ServerError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(stage: Stage, name: str, tool: str, scenario: Scenario) -> dict[str, str]:
    print(f"compare: {name}, {tool}", file=sys.stderr, flush=True)
    try:
        return scenario(stage, f"{tool}_{name}", TOOLS[tool])
    except BenchError as error:
        return {"it failed": str(error).splitlines()[0]}


def _head(tools: Sequence[str]) -> None:
    print(
        f"\n{time.strftime('%Y-%m-%d')}; {os.cpu_count()} CPUs, load average "
        f"{os.getloadavg()[0]:.1f}; PostgreSQL 18, fsync off; Python {platform.python_version()}\n"
    )
    print(f"| | {' | '.join(tools)} |\n| --- |{' ---: |' * len(tools)}", flush=True)


def _report(title: str, found: Mapping[str, Mapping[str, str]]) -> None:
    print(f"| **{title}** |{' |' * len(found)}")
    for measure in dict.fromkeys(measure for figures in found.values() for measure in figures):
        cells = (figures.get(measure, "") for figures in found.values())
        print(f"| {measure} | {' | '.join(cell.replace('|', '/') for cell in cells)} |", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=tuple(SCENARIOS), help="this scenario (default: all)"
    )
    parser.add_argument(
        "--tool", action="append", choices=tuple(TOOLS), help="this tool (default: both)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
