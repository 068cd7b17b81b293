"""The machine that tests run on, in one line: for failures that are its own and not the code's."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from pathlib import Path

__all__ = ["describe", "shortages"]

_DISK_MB = 2_048
_MEMORY_MB = 2_048
_DESCRIPTORS = 1_024


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


def _memory_mb() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no MemAvailable in /proc/meminfo")


def _disk_mb() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).free >> 20


def _descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
