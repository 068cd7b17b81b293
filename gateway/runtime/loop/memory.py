"""What is done about memory that an attempt has left, and how rarely while the loop runs."""

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
"""Heaps of glibc, which by itself makes up to eight for each core. What is freed by another thread
than has allocated it goes back to the heap that it came from, so more of them would gain little."""
_LARGE_BLOCK: Final = 4 << 20

_OBJECTS: Final = 500_000
"""More than wait in batches: with a fifth of it, the search took a twentieth of the loop's time."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Keep the search for reference cycles out of the loop.

    Records make none. But thousands of them wait in a batch, and Python would go through them,
    and through everything that the start-up has made, again and again.
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
    """Have the C library return each large block when it is freed, and make one heap.

    By itself glibc learns from each large block that is freed, and keeps as much from then on. And
    each attempt has threads of its own, whose heaps grew by 0.8 MB an attempt, up to 30 MB. Once in
    a process, before its threads begin.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def clear_up() -> None:
    """Free what has ended and left cycles behind, which would stay with its clients' sockets.

    And return freed memory to the system, where the C library can: each attempt has threads of its
    own, and glibc gives their allocations to heaps of their own. What one attempt has freed is not
    what the next one takes, and a gateway that is cut off again and again would grow, with less and
    less of it in use.
    """
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
