"""The seed of everything that is random in the tests; the same in every run unless it is given."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["SEED", "setseed"]

SEED: Final = int(os.environ.get("PGSLUICE_SEED") or 1)


def setseed() -> bytes:
    """The statement after which a session's ``random()`` answers as `SEED` says."""
    return b"SELECT setseed(%f)" % (SEED % 1_000_000 / 1_000_000)
