"""Waiting for file descriptors of any number.

`select.select` is not used: it is limited to descriptors below 1,024, and Kafka clients of many
brokers have more files open than that.
"""

from __future__ import annotations

import math
import select
from collections.abc import Iterable

__all__ = ["wait_for_socket", "wait_readable"]


def wait_readable(descriptors: Iterable[int], timeout_s: float) -> frozenset[int]:
    """Wait until a descriptor is readable or at its end; return all that are.

    None is returned after `timeout_s`; 0 does not wait.
    """
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return frozenset(descriptor for descriptor, _ in poller.poll(_milliseconds(timeout_s)))


def wait_for_socket(
    socket: int, timeout_s: float, *, read: bool = False, write: bool = False
) -> tuple[bool, bool]:
    """Wait until `socket` is ready as requested; return whether for reading and for writing.

    A broken socket counts as ready for everything: the next call on it raises the reason.
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
    # Rounded up: a wait that ends too early would be restarted in a busy loop.
    return math.ceil(seconds * 1000)
