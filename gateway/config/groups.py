"""Several slots in one configuration: ``[source] groups``.

A group is a gateway of its own, with its own slot (``<slot>_<group>``), publications, position in
Kafka, and process. A subscription is never split: it belongs to exactly one.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.core.errors import ConfigError
from schemas.settings.tables import Settings

__all__ = ["choose_group", "each_group"]


def choose_group(settings: Settings, name: str | None) -> Settings:
    """Return the settings of the gateway that is meant.

    Args:
        settings: Settings as loaded.
        name: Name of a group; None if there are none.

    Raises:
        ConfigError: there is no such group, or there are groups and none is named.
    """
    groups = settings.source.groups
    if name is None and not groups:
        return settings
    if name is None or name not in groups:
        names = ", ".join(sorted(groups)) or "none"
        raise ConfigError(
            f"there is no group {name!r}" if name is not None else "which group is meant?",
            key="source.groups",
            hint=f"name one with --group: {names}" if groups else "leave --group out",
        )
    slot = f"{settings.source.slot}_{name}"
    return replace(settings, source=replace(settings.source, slot=slot), group=name)


def each_group(settings: Settings) -> list[Settings]:
    """Return the settings of every gateway, those that are here where there are no groups."""
    if settings.group is not None or not settings.source.groups:
        return [settings]
    return [choose_group(settings, name) for name in settings.source.groups]
