"""Errors that mean the machine is short of descriptors, memory or threads.

Whatever needed one, a file, a socket or a pipe, the shortage may pass: other processes, clients or
tables are using the resource now.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from gateway.core.errors import TransientError

__all__ = ["SHORT", "shortage"]

SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Values of `OSError.errno` that mean a shortage."""

# C libraries report only the text, without the number; for threads the text is Python's own.
_TEXTS: Final = (
    os.strerror(errno.EMFILE),
    os.strerror(errno.ENFILE),
    "can't start new thread",
)


def shortage(error: BaseException) -> TransientError | None:
    """Return the transient error for `error`; None if it is not a shortage."""
    for each in _chain(error):
        if isinstance(each, OSError) and each.errno in SHORT:
            return _made(os.strerror(each.errno))
        for text in _TEXTS:
            if text in str(each):
                return _made(text)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and its causes, including suppressed contexts."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _made(text: str) -> TransientError:
    return TransientError(
        f"the process has run out of a system resource: {text}",
        hint="raise its limits (ulimit -n; LimitNOFILE in the systemd unit), or find out what "
        "uses them: ls /proc/<pid>/fd",
    )
