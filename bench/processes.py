"""One process, timed between two lines of its log, with the CPU and memory that it took."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.core.errors import FatalError

__all__ = ["BenchError", "Run", "cpu_s", "timed"]

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


class BenchError(FatalError):
    """A measurement that would not be true, or could not be made."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a process took between the two lines.

    Attributes:
        wall_s: From the first line to the last.
        cpu_s: User and system time of all its threads from the first line to its end.
        start_cpu_s: The same before the first line.
        peak_rss: Bytes, from its start to the last line; None when it had ended before a look.
        beside_s: What others took of the CPU from the first line to the last, by name; without
            those that were gone by then.
    """

    wall_s: float
    cpu_s: float
    start_cpu_s: float
    peak_rss: int | None
    beside_s: Mapping[str, float] = field(default_factory=dict)


def timed(
    command: Sequence[str | Path],
    *,
    first: str,
    last: str | None,
    timeout_s: float,
    beside: Callable[[], Mapping[str, tuple[int, float]]] = dict,
) -> Run:
    """Run `command` to its end.

    Args:
        command: Program and arguments; its log is its standard error.
        first: Text of the line from which time counts.
        last: Text of the line up to which it counts; None: up to its end.
        timeout_s: When it is killed.
        beside: Asked at the first line: the pids of others whose CPU counts, by name, and what of
            it does not count.

    Raises:
        BenchError: it failed, took longer than `timeout_s`, or did not say `first` and `last`.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    tail: deque[bytes] = deque(maxlen=20)
    began: float | None = None
    ended: float | None = None
    start_cpu_s, peak = 0.0, None
    others: dict[str, tuple[int, float]] = {}
    beside_s: dict[str, float] = {}
    watchdog = threading.Timer(timeout_s, os.kill, (process.pid, signal.SIGKILL))
    watchdog.start()
    try:
        with process.stderr as log:
            for line in log:
                now = time.monotonic()
                tail.append(line)
                if began is None and first.encode() in line:
                    began, start_cpu_s = now, cpu_s(process.pid)
                    others = dict(beside())
                elif began is not None and last is not None and last.encode() in line:
                    ended, peak = now, _peak_rss(process.pid)
                    for name, (pid, before_s) in others.items():
                        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                            beside_s[name] = cpu_s(pid) - before_s
        # Not Popen.wait: it keeps the resources to itself.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if last is None:
            ended = time.monotonic()
    finally:
        watchdog.cancel()
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
    if process.returncode != 0 or began is None or ended is None:
        said = b"".join(tail).decode(errors="replace")
        raise BenchError(f"{command[0]} ended with {process.returncode}; it said:\n{said}")
    total_s = used.ru_utime + used.ru_stime
    return Run(ended - began, total_s - start_cpu_s, start_cpu_s, peak, beside_s)


def cpu_s(pid: int) -> float:
    """User and system time so far, in ticks of usually 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _peak_rss(pid: int) -> int | None:
    """The high-water mark of its own memory; `ru_maxrss` would begin with that of who forked it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * _KIB
    return None
