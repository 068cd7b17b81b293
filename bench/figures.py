"""What `bench.stream` prints."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from bench.cases import Case
from bench.load import Load
from bench.processes import Run

__all__ = ["head", "report"]

_WIDTH: Final = 46


def head(repeats: int) -> None:
    """Print what the figures are of."""
    print(
        f"\nrepeated up to {repeats} times: median (least-most); PostgreSQL 18, fsync off; "
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs\n\n"
        f"{'':{_WIDTH}}{'rows/s':>28}{'of pg_recvlogical':>22}{'less broker':>13}"
        f"{'CPU us/row: gateway':>21}{'walsender':>11}{'broker':>8}{'peak MiB':>10}",
        flush=True,
    )


def report(load: Load, cases: Sequence[Case], results: Mapping[Case | None, Sequence[Run]]) -> None:
    """Print the figures of the cases that were measured beside each other."""
    shape = load.shape
    what = f"{load.changes:,} changes, {shape.columns} columns, transactions of "
    what += "all" if shape.at_once else f"{shape.changes:,}"
    print(f"{what}; load average {os.getloadavg()[0]:.1f}")
    drained = [load.changes / run.wall_s for run in results[None]]
    _line("  pg_recvlogical", load.changes, results[None], drained)
    for case in cases:
        _line(f"  {case.title}", case.changes(load), results[case], drained)
    print(flush=True)


def _line(title: str, changes: int, runs: Sequence[Run], drained: Sequence[float]) -> None:
    rates = [changes / run.wall_s for run in runs]
    ratios = [rate / base for rate, base in zip(rates, drained, strict=False)]
    peaks = [run.peak_rss for run in runs if run.peak_rss is not None]
    print(
        f"{title:{_WIDTH}}{_spread(rates, ',.0f'):>28}{_spread(ratios, '.2f'):>22}"
        f"{_less_broker(changes, runs, drained):>13}"
        f"{_per_row(changes, [run.cpu_s for run in runs]):>21}"
        f"{_per_row(changes, _beside(runs, 'walsender')):>11}"
        f"{_per_row(changes, _beside(runs, 'broker')):>8}"
        f"{f'{max(peaks) / 2**20:.0f}' if peaks else '':>10}"
    )


def _beside(runs: Sequence[Run], name: str) -> list[float]:
    return [run.beside_s[name] for run in runs if name in run.beside_s]


def _less_broker(changes: int, runs: Sequence[Run], drained: Sequence[float]) -> str:
    """The ratio if the broker ran elsewhere: without its part of the time that all CPUs have."""
    cpus = os.cpu_count() or 1
    ratios = [
        changes / (run.wall_s - run.beside_s["broker"] / cpus) / base
        for run, base in zip(runs, drained, strict=False)
        if "broker" in run.beside_s
    ]
    return f"{median(ratios):.2f}" if ratios else ""


def _per_row(changes: int, seconds: Sequence[float]) -> str:
    return f"{median(seconds) / changes * 1e6:.1f}" if seconds else ""


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})"
