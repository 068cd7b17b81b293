"""Stores of the sets of sub-selects: in memory up to a limit, in a file beyond it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from gateway.config import Settings
from gateway.subselects.sets.disk_entries import SpillingStores
from gateway.subselects.sets.value_set import MakeEntries

__all__ = ["set_store"]

_IN_MEMORY: Final = 500_000
"""Number of keys of all stores in memory, some 150 to 450 bytes each."""


def set_store(settings: Settings) -> MakeEntries:
    """Return what makes the stores."""
    directory = settings.gateway.spool_directory or Path(tempfile.gettempdir())
    return SpillingStores(directory, _IN_MEMORY).make
