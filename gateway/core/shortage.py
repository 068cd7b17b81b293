"""Errors by which the machine says that descriptors, memory or threads have run out.

Whatever needed one, a file, a socket or a pipe, it is a shortage that may pass: other processes,
clients or tables take what is missing now.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from gateway.core.errors import TransientError

__all__ = ["SHORT", "shortage"]

SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Numbers of `OSError` that mean it."""

# Libraries in C have the number no more, only its text; threads have a text of Python's own.
_TEXTS: Final = (
    os.strerror(errno.EMFILE),
    os.strerror(errno.ENFILE),
    "can't start new thread",
)


def shortage(error: BaseException) -> TransientError | None:
    """Return the transient error that stands for `error`; None when it is something else."""
    for each in _chain(error):
        if isinstance(each, OSError) and each.errno in SHORT:
            return _made(os.strerror(each.errno))
        for text in _TEXTS:
            if text in str(each):
                return _made(text)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what it was raised for; a hidden context counts, too."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _made(text: str) -> TransientError:
    return TransientError(
        f"the process is short of something that the system gives: {text}",
        hint="raise its limits (ulimit -n; LimitNOFILE in the systemd unit), or find out what "
        "takes them: ls /proc/<pid>/fd",
    )
