"""Crash points for the fault tests.

``PGSLUICE_FAILPOINT=<name>`` in the environment kills this process as `kill -9` does when it
reaches the fail point of that name, ``<name>:<n>`` when it does for the n-th time. Without the
variable a fail point costs a comparison; none of them is on the path of a row.
"""

from __future__ import annotations

import os
import signal
from typing import Final

__all__ = ["fail_point"]

_NAME, _, _COUNT = os.environ.get("PGSLUICE_FAILPOINT", "").partition(":")
_ARMED: Final = _NAME
_left = int(_COUNT or 1)


def fail_point(name: str) -> None:
    """Kill the process here if the environment says so. Names are listed in docs/testing.md."""
    global _left
    if name == _ARMED:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
