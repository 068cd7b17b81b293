"""What routing needs to know of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.core.errors import UnfitKind
from gateway.core.records import Writer

__all__ = ["RoutingSettings"]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """The values of the configuration that decide what becomes of a change.

    Attributes:
        partitions: Of each table topic, as it is in Kafka.
        topic_names: Overrides, from ``subscription.schema.table``.
        binary: The stream has values in binary format.
        quarantined: What goes to the error topic when it cannot be published; the rest is an error.
        most_bytes: Of a record, by topic, as `gateway.core.records.wire_size` counts them; a topic
            that is not named takes any.
        system_identifier: Of the source server, for markers, as is `slot`.
        server_filters: A server evaluates the filters that are not evaluated here.
    """

    gateway: str
    database: str
    version: str
    partitions: Mapping[str, int]
    topic_names: Mapping[str, str] = field(default_factory=dict)
    tombstones: bool = True
    truncate: Literal["publish", "skip"] = "publish"
    numeric: Literal["decimal", "string"] = "decimal"
    message_prefixes: frozenset[str] = frozenset()
    binary: bool = False
    quarantined: frozenset[UnfitKind] = frozenset()
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    server_filters: bool = True
    system_identifier: str = ""
    slot: str = ""

    @property
    def writer(self) -> Writer:
        """Who writes, as markers say it."""
        return Writer(self.system_identifier, self.database, self.slot, self.gateway)
