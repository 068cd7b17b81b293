"""Base of the routers of tests: they count nothing, lose nothing and pass over nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.core.errors import UnfitKind
from gateway.core.lsn import Lsn
from gateway.core.records import Feed, Record
from gateway.definitions.ddl.authentication import Reason
from gateway.routing.row.counters import Tally
from gateway.transactions import StandaloneMessage

__all__ = ["RouterOfTests", "record"]


class RouterOfTests:
    """The part of `gateway.runtime.ports.TransactionRouter` that no transaction changes."""

    def __init__(self) -> None:
        self.ended: dict[str, Lsn] = {}
        self.awaits: int | None = None
        self.feeds: Sequence[Feed] = ()

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        return [record(message.message.content)]

    def tally(self) -> Tally:
        return Tally()

    def pop_lost_values(self) -> Mapping[str, int]:
        return {}

    def pop_quarantined(self) -> Mapping[tuple[str, UnfitKind], int]:
        return {}

    def pop_ignored(self) -> Mapping[Reason, int]:
        return {}


def record(value: bytes, topic: str = "topic") -> Record:
    """Make a record without a key."""
    return topic, 0, None, value, []
