"""The seed of everything that is random in the tests.

It follows from the commit, so that each commit tries other cases and the same commit the same ones.
``PGSLUICE_SEED`` gives another; outside a checkout it is 1.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["SEED", "setseed"]


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
