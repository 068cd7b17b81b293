"""Readiness and liveness notifications for systemd: ``Type=notify``, ``WatchdogSec=``.

Each is a datagram to the socket that ``NOTIFY_SOCKET`` names; without it nothing is sent.

Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

__all__ = ["Notifier"]

_PATIENCE_S: Final = 1.0
"""Time in seconds after which a message that the supervisor does not read is dropped."""


class Notifier:
    """Sender of a unit's states.

    Args:
        environment: Environment variables, possibly with NOTIFY_SOCKET.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET")
        self._ready = False
        self._stopping = False

    @property
    def listens(self) -> bool:
        """Whether a supervisor listens."""
        return bool(self._address)

    def alive(self, doing: str, *, ready: bool) -> None:
        """Report that the daemon is alive, with its status text, and once that it is ready."""
        if self._stopping:
            return
        lines = ["WATCHDOG=1", f"STATUS={doing}"]
        if ready and not self._ready:
            self._ready = True
            lines.insert(0, "READY=1")
        self._send(lines)

    def stopping(self) -> None:
        """Report that the daemon is stopping on its own."""
        self._stopping = True
        self._send(["STOPPING=1"])

    def _send(self, lines: list[str]) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]  # a name without a file
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_PATIENCE_S)
                # Connected, so that waiting for room in the supervisor's queue is not a busy loop.
                sender.connect(address)
                sender.send("\n".join(lines).encode())
        except OSError:
            return  # a supervisor that does not listen is not a reason to stop
