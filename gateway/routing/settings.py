"""Settings of routing, derived from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.core.errors import UnfitKind
from gateway.core.records import Writer
from schemas.settings.tables import EnvelopeTable, TypesTable

__all__ = ["RoutingSettings"]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Settings that decide how a change is published.

    Attributes:
        partitions: Number of partitions of each table topic, as it is in Kafka.
        topic_names: Topic name overrides, by ``subscription.schema.table``.
        binary: Whether the stream has values in binary format.
        quarantined: Kinds of unpublishable changes that go to the error topic; all others raise.
        most_bytes: Maximum size of a record, by topic, as `gateway.core.records.wire_size` counts
            it; topics without an entry have no limit.
        system_identifier: System identifier of the source server, for markers.
        slot: Name of the slot, for markers.
        server_filters: Whether a server evaluates the filters that are not evaluated here.
        hash_key: Key of the masks that hash; empty if there are none.
        has_masks: Whether there are masks, perhaps of columns that are not published: no error
            record quotes values then.
        muted: Reasons, by subscription, for which its marker topic cannot be used: all its tables
            are held, and it receives no record.
    """

    gateway: str
    database: str
    version: str
    partitions: Mapping[str, int]
    topic_names: Mapping[str, str] = field(default_factory=dict)
    tombstones: bool = True
    truncate: Literal["publish", "skip"] = "publish"
    types: TypesTable = field(default_factory=TypesTable)
    envelope: EnvelopeTable = field(default_factory=EnvelopeTable)
    message_prefixes: frozenset[str] = frozenset()
    binary: bool = False
    quarantined: frozenset[UnfitKind] = frozenset()
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    server_filters: bool = True
    system_identifier: str = ""
    slot: str = ""
    hash_key: bytes = field(default=b"", repr=False)
    has_masks: bool = False
    muted: Mapping[str, str] = field(default_factory=dict)

    @property
    def writer(self) -> Writer:
        """Writer identity that goes into markers."""
        return Writer(self.system_identifier, self.database, self.slot, self.gateway)
