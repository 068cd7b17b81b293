"""The folder where everything that is downloaded is kept, outside the project.

``$PGSLUICE_CACHE`` when it is set, else ``pgsluice`` in the user's cache folder. What lies in it
can be deleted at any time while nothing runs; it is fetched again.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder, created when it is not there."""
    named = os.environ.get("PGSLUICE_CACHE")
    if named:
        folder = Path(named).expanduser().absolute()
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "pgsluice"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``; wait while another process holds it.

    The lock goes with the process: a holder that was killed leaves nothing behind.
    """
    folder = cache_folder() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
