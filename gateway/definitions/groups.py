"""Subscription groups: the definitions of one group, whose subscriptions share a slot."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.core.errors import ConfigError
from gateway.definitions.model import Definitions

__all__ = ["only_group"]


def only_group(
    definitions: Definitions, groups: Mapping[str, Sequence[str]], group: str | None
) -> Definitions:
    """Return the part of the definitions that belongs to `group`; None for all.

    Raises:
        ConfigError: a subscription is in no group, in several, or not defined.
    """
    defined = [subscription.name for subscription in definitions.subscriptions]
    grouped = Counter(name for names in groups.values() for name in names)
    if groups:
        for name, fault in (
            *((name, "is in none of the groups") for name in defined if name not in grouped),
            *((name, "is in several groups") for name, count in grouped.items() if count > 1),
            *((name, "is not defined") for name in grouped if name not in defined),
        ):
            raise ConfigError(
                f"subscription {name} {fault}",
                key="source.groups",
                hint="each subscription of the definitions belongs to exactly one group",
            )
    if group is None:
        return definitions
    chosen = tuple(s for s in definitions.subscriptions if s.name in groups[group])
    if not chosen:
        raise ConfigError("names no subscription", key=f"source.groups.{group}")
    names = " ".join(sorted(s.name for s in chosen))
    digest = hashlib.sha256(f"{definitions.fingerprint} {names}".encode()).hexdigest()
    return replace(definitions, subscriptions=chosen, fingerprint=digest)
