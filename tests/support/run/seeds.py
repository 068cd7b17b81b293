"""The seed of everything that is random in the tests.

It follows from the commit, so that each commit tries other cases and the same commit the same ones.
``PGSLUICE_SEED`` gives another; outside a checkout it is 1.

A run takes one variant of a test whose variants do not differ in what they test (`in_turn`).
``PGSLUICE_ALL_MAJORS=1`` takes all of them, as ``make test-all`` does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar
from zlib import crc32

__all__ = ["ALL", "SEED", "in_turn", "setseed"]

_Variant = TypeVar("_Variant")


def _seed_of_commit() -> int:
    found = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=Path(__file__).parent,
        check=False,
        capture_output=True,
        text=True,
    )
    return int(found.stdout.strip()[:8], 16) if found.returncode == 0 else 1


SEED: Final = int(os.environ.get("PGSLUICE_SEED") or _seed_of_commit())


def setseed() -> bytes:
    """The statement after which a session's ``random()`` answers as `SEED` says."""
    return b"SELECT setseed(%f)" % (SEED % 1_000_000 / 1_000_000)


ALL: Final = os.environ.get("PGSLUICE_ALL_MAJORS", "0") not in ("", "0")
"""Whether a run takes all variants."""


def in_turn(module: str, variants: Sequence[_Variant]) -> Sequence[_Variant]:
    """All variants, or the one whose turn it is: another one in other files and other commits."""
    return variants if ALL else [variants[(SEED + crc32(module.encode())) % len(variants)]]
