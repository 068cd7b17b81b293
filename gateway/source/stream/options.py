"""Protocol options of the slot, which serves all subscriptions.

Natively they are options of a subscription. Whatever is chosen here, a subscription receives the
same records under the same numbers, since rows are published at commit in every mode. ``origin``
is applied by the gateway, per subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.core.errors import ConfigError
from gateway.definitions.model import SubscriptionDefinition

__all__ = ["Protocol", "negotiate", "wants_binary"]

StreamingMode: TypeAlias = Literal["off", "on", "parallel"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """Options of the stream."""

    version: int
    streaming: StreamingMode
    two_phase: bool
    binary: bool = False


def _highest_version(server_version: int) -> int:
    """Return the newest pgoutput protocol of a server: 2 in 14, 3 in 15, 4 from 16 on.

    Source: PostgreSQL manual, "Logical Streaming Replication Parameters".
    """
    return 4 if server_version >= 160000 else 3 if server_version >= 150000 else 2


def negotiate(subscriptions: Sequence[SubscriptionDefinition], server_version: int) -> Protocol:
    """Choose the protocol version and its options; one slot serves all subscriptions.

    Large transactions are streamed, and prepared ones sent at PREPARE, when at least one
    subscription wants it. For a subscription, only the ``gid`` header differs. Values come in
    binary format when all subscriptions ask for it.

    Args:
        subscriptions: All subscriptions of the plan.
        server_version: As libpq gives it: 160004 is 16.4.

    Raises:
        ConfigError: two_phase on a server that does not have it.
    """
    version = _highest_version(server_version)
    wanted = {subscription.streaming for subscription in subscriptions}
    streaming: StreamingMode = "off"
    if version >= 4 and "parallel" in wanted:
        streaming = "parallel"
    elif wanted - {"off"}:
        streaming = "on"
    two_phase = [s.name for s in subscriptions if s.two_phase]
    if two_phase and version < 3:
        raise ConfigError(
            f'subscription "{two_phase[0]}": two_phase needs PostgreSQL 15 or later on the source',
            key="definitions.file",
        )
    return Protocol(version, streaming, bool(two_phase), wants_binary(subscriptions))


def wants_binary(subscriptions: Sequence[SubscriptionDefinition]) -> bool:
    """Whether the stream has values in binary format: all subscriptions must ask for it."""
    return all(subscription.binary for subscription in subscriptions)
