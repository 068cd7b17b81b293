"""Construction of the routes of a plan, for the daemon and for commands."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.definitions.model import Plan
from gateway.envelope.envelope import package_version
from gateway.routing import RoutingSettings
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.ports import Evaluator, Replanner, SchemaIds
from gateway.runtime.planning.plan_reader import PlanReader
from gateway.runtime.planning.topics import Topics
from gateway.sink.registry.registry import Registry
from gateway.source.catalog.catalog import ServerCatalog
from gateway.source.filters.evaluator import ServerEvaluator
from gateway.source.session.connection import ServerFacts
from gateway.source.stream.options import wants_binary

__all__ = ["Outside", "relation_routes", "routing_settings"]

_LOST_KEY: Final = secrets.token_hex(32)
"""In place of a key that is no longer configured while the stream has rows that are to be hashed:
anybody could try values with an empty one."""


def relation_routes(
    plan: Plan,
    routing: RoutingSettings,
    connection: psycopg.Connection,
    schemas: SchemaIds,
    *,
    evaluator: Evaluator | None = None,
    reader: Replanner | None = None,
    ask_server: bool = False,
    moving: MovingTables | None = None,
) -> RelationRoutes:
    """Build the routes of `plan`, whose filters are compiled then; schemas are registered later.

    The catalog is read through `connection` as tables are announced; the rest is as for
    `RelationRoutes`.

    Raises:
        FilterError: a filter cannot be evaluated here.
    """
    return RelationRoutes(
        plan,
        routing,
        ServerCatalog(connection),
        schemas,
        evaluator=evaluator,
        reader=reader,
        ask_server=ask_server,
        moving=moving,
    )


@dataclass(frozen=True, slots=True)
class Outside:
    """Connections that routing uses for as long as an attempt lasts."""

    connection: psycopg.Connection
    registry: Registry
    evaluator: ServerEvaluator

    def routes(
        self,
        plan: Plan,
        routing: RoutingSettings,
        *,
        reader: PlanReader | None = None,
        ask_server: bool = False,
        moving: MovingTables | None = None,
    ) -> RelationRoutes:
        """Build the routes of `plan`; `reader` reads it again, the rest is as there."""
        return relation_routes(
            plan,
            routing,
            self.connection,
            self.registry,
            evaluator=self.evaluator,
            ask_server=ask_server,
            reader=reader,
            moving=moving,
        )


def routing_settings(
    settings: Settings, facts: ServerFacts, plan: Plan, topics: Topics
) -> RoutingSettings:
    """Return the settings of routing."""
    return RoutingSettings(
        gateway=settings.gateway.name,
        database=facts.database,
        version=package_version(),
        partitions=topics.partitions,
        topic_names=settings.topics.names,
        tombstones=settings.topics.tombstones,
        truncate=settings.topics.truncate,
        types=settings.types,
        envelope=settings.envelope,
        message_prefixes=frozenset(settings.messages.prefixes),
        binary=wants_binary(plan.subscriptions),
        quarantined=settings.on_error.quarantined,
        most_bytes=topics.most_bytes,
        server_filters=settings.filters.server == "on",
        system_identifier=facts.system_identifier,
        slot=settings.source.slot,
        hash_key=(settings.columns.hash_key or _LOST_KEY).encode(),
        has_masks=bool(settings.columns.masks),
        muted=topics.muted,
    )
