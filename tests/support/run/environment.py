"""The machine that tests run on: what it has, and what it lacks when a failure is its own."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["describe", "has_room", "memory_folder", "shortages"]

_DISK_MB = 2_048
_MEMORY_MB = 2_048
_DESCRIPTORS = 1_024
_IN_MEMORY = Path("/dev/shm")
_IN_MEMORY_MB = 4_096
"""Room for the clusters of a run: 50 MB each, 8 for each database, and WAL that slots retain."""
_BESIDE_MB = 8_192
"""Memory that must be free then: for the clusters, and for Spark, Kafka and the gateways."""


def describe() -> str:
    """Cores and load, free memory and disk, and the limit of open files."""
    return (
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {_memory_mb()} MB of memory and"
        f" {_disk_mb()} MB in {tempfile.gettempdir()} free, {_descriptors()} open files allowed"
    )


def shortages() -> list[str]:
    """Return the resources that are too few for the tests, which may be why one fails."""
    found = []
    if _memory_mb() < _MEMORY_MB:
        found.append(f"only {_memory_mb()} MB of memory are free, {_MEMORY_MB} are needed")
    if _disk_mb() < _DISK_MB:
        found.append(f"only {_disk_mb()} MB of disk are free, {_DISK_MB} are needed")
    if _descriptors() < _DESCRIPTORS:
        found.append(f"only {_descriptors()} open files are allowed, {_DESCRIPTORS} are needed")
    return found


def memory_folder() -> Path | None:
    """The folder whose files are in memory, for the data of servers; None if it has no room.

    A database has 300 files. To create them takes 25 times the CPU on a disk with a journal.
    """
    try:
        free_mb = shutil.disk_usage(_IN_MEMORY).free >> 20
    except OSError:  # a system without it
        return None
    return _IN_MEMORY if has_room(free_mb, min(_memory_mb(), _limit_mb())) else None


def has_room(free_mb: int, memory_mb: int) -> bool:
    """Whether clusters fit into a folder in memory.

    Args:
        free_mb: Room in the folder. Docker gives a container 64 MB unless it is asked for more.
        memory_mb: Memory that processes can have.
    """
    return free_mb >= _IN_MEMORY_MB and memory_mb >= _BESIDE_MB


def _limit_mb() -> int:
    """Memory that the control group of this process may use; files in memory count."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:  # no limit, or an older kernel, which has it elsewhere
        limit = "max"
    return sys.maxsize if limit == "max" else int(limit) >> 20


def _memory_mb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no MemAvailable in /proc/meminfo")


def _disk_mb() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).free >> 20


def _descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
