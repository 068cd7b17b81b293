"""Waiting for file descriptors, whatever their numbers are.

Not `select.select`: a process with more than 1,024 files open, as Kafka clients of many brokers
have them, cannot name the later ones there.
"""

from __future__ import annotations

import math
import select
from collections.abc import Iterable

__all__ = ["wait_for_socket", "wait_readable"]


def wait_readable(descriptors: Iterable[int], timeout_s: float) -> frozenset[int]:
    """Wait until one of them can be read, or is at its end; return those.

    None is returned after `timeout_s`; 0 does not wait.
    """
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return frozenset(descriptor for descriptor, _ in poller.poll(_milliseconds(timeout_s)))


def wait_for_socket(
    socket: int, timeout_s: float, *, read: bool = False, write: bool = False
) -> tuple[bool, bool]:
    """Wait until `socket` is ready for what is asked; return whether for reading, for writing.

    A socket that is broken is ready for all that is asked: the next call on it says why.
    """
    poller = select.poll()
    poller.register(socket, (select.POLLIN if read else 0) | (select.POLLOUT if write else 0))
    for _, found in poller.poll(_milliseconds(timeout_s)):
        broken = bool(found & ~(select.POLLIN | select.POLLOUT))
        return read and (broken or bool(found & select.POLLIN)), write and (
            broken or bool(found & select.POLLOUT)
        )
    return False, False


def _milliseconds(seconds: float) -> int:
    # Rounded up: a wait that ends too early would be begun again in a busy loop.
    return math.ceil(seconds * 1000)
