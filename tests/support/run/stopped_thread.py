"""One thread of another process, stopped as by a debugger, while the others go on.

That is what a thread looks like that is busy or gets no CPU. The process must be a child of the
caller's, which Linux lets it trace; all calls come from one thread.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from tests.support.run.waiting import wait_until

__all__ = ["StoppedThread"]

_SEIZE: Final = 0x4206
_INTERRUPT: Final = 0x4207
_DETACH: Final = 17
_ALL_KINDS: Final = 0x40000000  # __WALL: the thread is not a child's first one


class StoppedThread:
    """Stopped from its construction until `release`.

    Args:
        pid: Process.
        name: Name of the thread, which only one has.
    """

    def __init__(self, pid: int, name: str) -> None:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        [task] = [task for task in tasks if (task / "comm").read_text().strip() == name]
        self._task = task
        self._id = int(task.name)
        self._trace(_SEIZE)
        self._trace(_INTERRUPT)
        os.waitpid(self._id, _ALL_KINDS)

    def release(self) -> None:
        """Let it go on, and wait until it has done what was waiting for it, or has ended."""
        self._trace(_DETACH)
        wait_until(self._is_idle, 60, "the thread to have nothing to do")

    def _is_idle(self) -> bool:
        try:
            stat = (self._task / "stat").read_text()
        except OSError:
            return True
        return stat[stat.rindex(")") + 2] in "SZX"

    def _trace(self, request: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        libc.ptrace.restype = ctypes.c_long
        if libc.ptrace(request, self._id, None, None) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")
