"""SIGTERM and SIGINT while the program starts, when nothing has begun that has to be ended.

It imports next to nothing: between the first line of Python and the handlers of a command lie its
imports, a second for the gateway and, for the Spark job, the start of a JVM. As the first process
of a container, one without a handler would not be ended by SIGTERM at all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["stop_while_starting"]

_STOPPED: Final = 0
_INTERRUPTED: Final = 130


@contextmanager
def stop_while_starting(*, daemon: bool) -> Iterator[None]:
    """End the process at once by SIGTERM or SIGINT while the block runs.

    Args:
        daemon: Whether to be stopped is how it ends: with exit code 0, also after the block, until
            the command has handlers of its own. Otherwise a signal does afterwards what it does to
            every program, and Ctrl-C shows no traceback before.
    """
    usual = signal.getsignal(signal.SIGINT)

    def stop(number: int, _: FrameType | None) -> None:
        os.write(2, b"pgsluice: stopped while it started\n")
        os._exit(_STOPPED if daemon else _INTERRUPTED)

    signal.signal(signal.SIGINT, stop)
    if daemon:
        signal.signal(signal.SIGTERM, stop)
    yield
    if not daemon:
        signal.signal(signal.SIGINT, usual)
