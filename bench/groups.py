"""Two subscriptions that take every row: in one gateway, and in two groups of one each.

The slots are made before the load, so that each reads all of it. The two groups run side by side:
where walsenders, gateways and broker share few cores, the CPU says more than the rate.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.load import Load
from bench.processes import Run, timed
from bench.stream import Bench

__all__ = ["run"]

_TIMEOUT_S: Final = 900.0
_SUBSCRIPTIONS: Final = ("one", "two")


def run(changes: int) -> None:
    """Measure and print.

    Raises:
        BenchError: a gateway failed.
        ServerError: a server did not start.
    """
    load = Load(changes)
    folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
    bench = Bench(folder, load)
    try:
        with bench.servers() as connection:
            load.prepare(connection)
            together = _configure(bench, "together", {})
            apart = _configure(bench, "apart", {name: [f"apart_{name}"] for name in _SUBSCRIPTIONS})
            groups = [("--group", name) for name in _SUBSCRIPTIONS]
            _gateways(together, [()], "0/1")
            _gateways(apart, groups, "0/1")
            _, endpos = load.write(connection)
            results = {
                "one gateway": _gateways(together, [()], endpos),
                "two groups": _gateways(apart, groups, endpos),
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"\n{changes:,} changes, each taken by two subscriptions; {os.cpu_count()} CPUs, "
        f"load average {os.getloadavg()[0]:.1f}\n"
        f"{'':14}{'changes/s':>12}{'CPU us/change':>15}   each"
    )
    for title, runs in results.items():
        each = ", ".join(f"{one.cpu_s / changes * 1e6:.1f}" for one in runs)
        rate = changes / max(one.wall_s for one in runs)
        total = sum(one.cpu_s for one in runs) / changes * 1e6
        print(f"{title:14}{rate:12,.0f}{total:15.1f}   {each}")


def _gateways(config: Path, arguments: Sequence[Sequence[str]], endpos: str) -> list[Run]:
    """Run them side by side to `endpos`."""

    def one(extra: Sequence[str]) -> Run:
        return timed(
            [
                sys.executable,
                "-m",
                "gateway",
                "run",
                "--config",
                config,
                "--endpos",
                endpos,
                *extra,
            ],
            first=": streaming ",
            last=": reached endpos ",
            timeout_s=_TIMEOUT_S,
        )

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, arguments))


def _configure(bench: Bench, slot: str, groups: dict[str, list[str]]) -> Path:
    folder = bench.folder / slot
    folder.mkdir()
    (folder / "replication.sql").write_text(
        "CREATE PUBLICATION p FOR TABLE orders;\n"
        + "".join(
            f"CREATE SUBSCRIPTION {slot}_{name} CONNECTION '' PUBLICATION p;\n"
            for name in _SUBSCRIPTIONS
        )
    )
    tables: dict[str, dict[str, Any]] = {
        "source": {"dsn": bench.postgres.dsn(), "slot": slot},
        "source.groups": groups,
        "definitions": {"file": "replication.sql"},
        "kafka": {"bootstrap.servers": bench.kafka.bootstrap_servers},
        "registry": {"url": bench.registry.url},
    }
    lines: list[str] = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
    path = folder / "pgsluice.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
