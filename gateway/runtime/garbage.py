"""How Python looks for reference cycles while the loop runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["rare_collections"]


@contextmanager
def rare_collections() -> Iterator[None]:
    """Keep the search for reference cycles out of the loop.

    Records make none. But thousands of them wait in a batch, and Python would go through them,
    and through everything that the start-up has made, again and again.
    """
    thresholds = gc.get_threshold()
    # What an attempt before has left in cycles would stay otherwise, with its clients' sockets.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
