"""Stores of the sets of sub-selects: in memory up to a limit, in a file beyond it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.config import Settings
from gateway.subselects.sets.disk_entries import SpillingEntries
from gateway.subselects.sets.entries import Entries, place_of
from gateway.subselects.sets.value_set import MakeEntries

__all__ = ["set_store"]

_IN_MEMORY: Final = 1_000_000
"""Number of keys of one store in memory, some 150 bytes each."""


def set_store(settings: Settings) -> MakeEntries:
    """Return what makes the stores."""
    directory = settings.gateway.spool_directory or Path(tempfile.gettempdir())

    def make(place: Callable[[bytes], int] = place_of, bits: int | None = None) -> Entries:
        return SpillingEntries(directory, _IN_MEMORY, place, bits=bits)

    return make
