"""Conditions of a failover: a standby that becomes leader changes nothing of what is published.

Definitions change by a reload, or by a start. A gateway that has seen another one lead since it
began compares its own definitions with those in force; while they differ it says so, is not ready,
and leaves the slot alone. A start that only waits until the server notices that its predecessor
has ended is no standby: no gateway leads, and no reply reaches the server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import GatewayError, TransientError
from gateway.core.watermark import Watermark
from gateway.observe import Counters, event
from gateway.runtime.planning.plan import read_definitions
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.own_topics.progress import read_progress
from gateway.source.provisioning.privileges import why_unreadable
from gateway.source.stream.slot import reader_sign

__all__ = ["DefinitionsChanged", "Standby"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 5.0
_UNCOPIED: Final = ("pending", "copying")
_OTHER_DEFINITIONS: Final = "its definitions are not those in force"


class DefinitionsChanged(Exception):
    """Raised when the definitions file differs from the one with which the attempt began."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of one comparison with the definitions in force.

    Attributes:
        watermark: Watermark as committed by the leader, or None.
        file: Fingerprint of the definitions file.
        unreadable: Reason for which the file cannot be read, or empty.
    """

    watermark: Watermark | None
    file: str
    unreadable: str


class Standby:
    """Comparison of what a standby would publish with what is published.

    It lasts as long as the daemon; only the thread of the loop calls it.

    Args:
        settings: The configuration.
        counters: Counters that show why this gateway does not become leader.
        reload: Returns True once after a request to put the definitions into force.

    Attributes:
        has_seen_leader: Whether another gateway has led during this attempt.
    """

    def __init__(self, settings: Settings, counters: Counters, reload: Callable[[], bool]) -> None:
        self._settings = settings
        self._counters = counters
        self._reload = reload
        self._identity: SlotIdentity | None = None
        self._fingerprint = ""
        self._led = False  # another gateway, since this one began or led itself
        self.has_seen_leader = False
        self._requested = False
        self._sign: object = None
        self._why: str | None = None
        self._found: _Found | None = None
        self._looking: threading.Thread | None = None
        self._look_at = 0.0

    def begin(self, identity: SlotIdentity, fingerprint: str) -> None:
        """Begin an attempt.

        Args:
            identity: Identity of the slot.
            fingerprint: Fingerprint of the definitions with which this attempt would lead.
        """
        self._identity, self._fingerprint = identity, fingerprint
        self._sign, self._found, self._look_at = None, None, 0.0
        self.has_seen_leader = False

    def wait(self, connection: psycopg.Connection) -> None:
        """Check who leads and which definitions are in force, without waiting for Kafka.

        Raises:
            DefinitionsChanged: the attempt would lead with definitions that are neither those in
                force nor those of the file.
            TransientError: the connection is gone.
        """
        self._requested |= self._reload()
        sign = reader_sign(connection, self._settings.source.slot)
        if self._sign is not None and sign is not None and sign != self._sign:
            self._led = self.has_seen_leader = True
        self._sign = sign or self._sign
        found, self._found = self._found, None
        if found is not None:
            self._judge(connection, found)
        is_looking = self._looking is not None and self._looking.is_alive()
        if time.monotonic() >= self._look_at and not is_looking:
            self._look_at = time.monotonic() + _LOOK_S
            self._looking = threading.Thread(
                target=self._look, name="pgsluice standby", daemon=True
            )
            self._looking.start()
        self._show()

    def why_not(self) -> str | None:
        """Return why this gateway does not become leader, or None."""
        return self._why if self._led and not self._requested else None

    def refuses(self, watermark: Watermark | None) -> bool:
        """Whether leading from `watermark` on would change what is published.

        `watermark` is read while nobody else can lead: another gateway may have changed the
        definitions after the last look.
        """
        if watermark is None or watermark.definitions in ("", self._fingerprint):
            return False
        self._why = _OTHER_DEFINITIONS
        self._show()
        return self.why_not() is not None

    def supersede(self) -> None:
        """Note that another gateway has led, so that its definitions are in force."""
        self._led = True

    def lead(self) -> None:
        """Note that this gateway leads now."""
        self._led = self._requested = False
        self._why = None
        self._show()

    def _judge(self, connection: psycopg.Connection, found: _Found) -> None:
        self._why = None
        watermark = found.watermark
        if watermark is None:
            return
        if watermark.definitions in ("", self._fingerprint):
            to_copy = {state.oid for state in watermark.copies if state.state in _UNCOPIED}
            faults = why_unreadable(connection, to_copy - {0})
            self._why = next((fault.reason for fault in faults.values()), None)
        elif found.file and found.file != self._fingerprint:
            raise DefinitionsChanged
        else:
            self._why = found.unreadable or _OTHER_DEFINITIONS

    def _show(self) -> None:
        why = self.why_not() or ""
        if why and why != self._counters.takeover_refused:
            event(_LOG, logging.WARNING, "this standby does not take over", because=why)
        self._counters.takeover_refused = why

    # The thread

    def _look(self) -> None:
        """Read the definitions in force and the file; Kafka may answer late."""
        identity, settings = self._identity, self._settings
        assert identity is not None
        try:
            topic = settings.topics.progress
            watermark = read_progress(settings.kafka, topic, identity, settled=False).watermark
        except GatewayError as error:
            if not isinstance(error, TransientError):
                event(_LOG, logging.WARNING, "definitions are not compared", error=error.message)
            return
        file = unreadable = ""
        try:
            file = read_definitions(settings).fingerprint
        except GatewayError as error:
            unreadable = error.message
        self._found = _Found(watermark, file, unreadable)
