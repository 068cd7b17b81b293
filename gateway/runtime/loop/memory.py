"""Release of memory that attempts leave, and tuning of garbage collection for the loop."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["clear_up", "give_back_large_blocks", "rare_collections"]

_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 1
"""Heaps of glibc, which by itself makes up to eight for each core. Memory that another thread frees
goes back to its own heap, so that more heaps would gain little."""
_LARGE_BLOCK: Final = 4 << 20

_OBJECTS: Final = 500_000
"""More objects than wait in batches: with a fifth of it, collections cost 5% of the loop's time."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Make garbage collections rare while the loop runs.

    Records form no cycles, but thousands of them wait in a batch, and Python would search them and
    everything that the start-up has created again and again.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_OBJECTS, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def give_back_large_blocks() -> None:
    """Let the C library return each large block when it is freed, and use one heap.

    By itself glibc raises its threshold with each large block that is freed, and the heaps of the
    threads of ended attempts grew by 0.8 MB an attempt, up to 30 MB. To be called once in a
    process, before its threads begin.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def clear_up() -> None:
    """Free cycles of ended objects, which would stay with their clients' sockets.

    Freed memory is returned to the system as well, if the C library can: a gateway that is cut off
    again and again would grow, with less and less of it in use.
    """
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
