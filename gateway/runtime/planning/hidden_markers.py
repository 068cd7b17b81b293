"""Subscriptions that are left out because their markers cannot be read.

A gateway that does not know who owns the topics of a subscription may not write there. Somebody who
keeps their markers from being read must not keep the others from being published, so it is held
until a later look finds them.
"""

from __future__ import annotations

from typing import Final

from gateway.config import Settings
from gateway.core.errors import FatalError, HiddenMarkersError, TransientError
from gateway.sink.own_topics.owners import read_owners
from gateway.sink.registry.registry import Registry

__all__ = ["still_hidden"]

_LOOK_S: Final = 5.0
"""Seconds of a look at markers that could not be read before; it is repeated later."""


def still_hidden(settings: Settings, registry: Registry, hidden: frozenset[str]) -> frozenset[str]:
    """Return those of `hidden` whose markers cannot be read now, in a short time."""
    refused: dict[str, FatalError] = {}  # held for that, by who makes the plan
    try:
        read_owners(settings.kafka, registry, hidden, timeout_s=_LOOK_S, refused=refused)
    except HiddenMarkersError as error:
        return error.subscriptions
    except TransientError:
        return hidden
    return frozenset()
