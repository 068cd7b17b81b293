"""The folder where everything that is downloaded is kept, outside the project.

``$PGSLUICE_CACHE`` when it is set, else ``pgsluice`` in the user's cache folder. Its
contents can be deleted at any time while nothing runs; they are fetched again.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.core.errors import ConfigError


def cache_folder() -> Path:
    """The cache folder, created when it is not there.

    Raises:
        ConfigError: another user may write there, from where programs are started.
    """
    named = os.environ.get("PGSLUICE_CACHE")
    if named:
        folder = Path(named).expanduser().absolute()
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "pgsluice"
    folder.mkdir(parents=True, exist_ok=True)
    found, user = folder.stat(), os.geteuid()
    if found.st_mode & stat.S_IWOTH or (user != 0 and found.st_uid not in (user, 0)):
        raise ConfigError(
            f"{folder}, the cache of downloaded programs, can be written to by other users",
            hint="name another folder in PGSLUICE_CACHE",
        )
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``; wait while another process holds it.

    The lock goes with the process: a holder that was killed leaves nothing to clean up.
    """
    folder = cache_folder() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
