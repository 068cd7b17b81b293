"""The datagrams that systemd gets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.monitor.notify import Notifier


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        receiver.settimeout(5)
        yield address, receiver


def test_ready_is_said_once_and_alive_again_and_again(
    supervisor: tuple[str, socket.socket],
) -> None:
    address, receiver = supervisor
    notifier = Notifier({"NOTIFY_SOCKET": address})

    notifier.alive("starting", ready=False)
    notifier.alive("streaming", ready=True)
    notifier.alive("streaming", ready=True)
    notifier.stopping()
    notifier.alive("stopped", ready=False)

    assert [receiver.recv(4096) for _ in range(4)] == [
        b"WATCHDOG=1\nSTATUS=starting",
        b"READY=1\nWATCHDOG=1\nSTATUS=streaming",
        b"WATCHDOG=1\nSTATUS=streaming",
        b"STOPPING=1",
    ]


def test_a_supervisor_that_does_not_read_costs_no_cpu(
    supervisor: tuple[str, socket.socket],
) -> None:
    address, receiver = supervisor
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler, suppress(BlockingIOError):
        filler.setblocking(False)
        filler.connect(address)
        while True:
            filler.send(b"another's")
    before = time.thread_time()

    Notifier({"NOTIFY_SOCKET": address}).alive("streaming", ready=True)

    assert time.thread_time() - before < 0.3
    assert receiver.recv(4096) == b"another's"


def test_an_abstract_address_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # the kernel gives it a name without a file
        receiver.settimeout(5)
        name = receiver.getsockname()[1:].decode()

        Notifier({"NOTIFY_SOCKET": f"@{name}"}).stopping()

        assert receiver.recv(4096) == b"STOPPING=1"


def test_without_a_supervisor_and_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).alive("streaming", ready=True)
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive("streaming", ready=True)
