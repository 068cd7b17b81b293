"""Waiting for file descriptors, also such that `select` cannot name."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import time

from gateway.core.descriptors import wait_for_socket, wait_readable


def test_only_what_can_be_read_is_returned() -> None:
    silent, silent_end = os.pipe()
    ready, ready_end = os.pipe()
    try:
        assert wait_readable([silent, ready], 0) == frozenset()
        os.write(ready_end, b"\0")
        assert wait_readable([silent, ready], 10) == {ready}
    finally:
        for descriptor in (silent, silent_end, ready, ready_end):
            os.close(descriptor)


def test_the_end_of_a_pipe_can_be_read() -> None:
    read, write = os.pipe()
    os.close(write)
    try:
        assert wait_readable([read], 10) == {read}
    finally:
        os.close(read)


def test_a_descriptor_beyond_the_limit_of_select_is_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 1200), hard), hard))
    read, write = os.pipe()
    far = fcntl.fcntl(read, fcntl.F_DUPFD, 1100)
    try:
        os.write(write, b"\0")
        assert wait_readable([far], 10) == {far}
    finally:
        for descriptor in (read, write, far):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_ends_no_earlier_than_asked() -> None:
    read, write = os.pipe()
    try:
        began = time.monotonic()
        wait_readable([read], 0.0105)
        assert time.monotonic() - began >= 0.0105
    finally:
        os.close(read)
        os.close(write)


def test_a_socket_is_waited_for_in_both_directions() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert wait_for_socket(left.fileno(), 10, read=True, write=True) == (False, True)
        right.send(b"x")
        assert wait_for_socket(left.fileno(), 10, read=True) == (True, False)
        right.close()
        assert wait_for_socket(left.fileno(), 10, read=True, write=True)[0]
