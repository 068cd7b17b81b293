"""``pgsluice schemas``: schemas to be registered, by subject, as JSON on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import psycopg

from gateway.commands.asyncapi import document
from gateway.config import Settings
from gateway.core.display import lines_shown, say
from gateway.definitions.model import Plan
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.ports import SchemaIds
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.runtime.planning.routes import relation_routes, routing_settings
from gateway.runtime.planning.topics import Topics, table_topics
from gateway.source.session.connection import ServerFacts, connect, server_facts

__all__ = ["CollectedSchemas", "routes_of", "show_schemas"]


class CollectedSchemas:
    """Registry stand-in that only collects schemas."""

    def __init__(self) -> None:
        self.schemas: dict[str, Mapping[str, Any]] = {}

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Remember `schema`; the id is its number."""
        self.schemas[subject] = schema
        return len(self.schemas)


def show_schemas(settings: Settings, *, asyncapi: bool = False) -> int:
    """Print a JSON object from subject to schema; nothing is registered or created.

    The evaluator of each row filter, and the reason, is printed to standard error.

    Args:
        settings: Settings of the gateway.
        asyncapi: Whether to print a document of the topics instead, which includes the schemas.

    Raises:
        TransientError: the source server cannot be reached.
        FatalError: the definitions cannot be served.
    """
    definitions = read_definitions(settings)
    schemas = CollectedSchemas()
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        plan = read_plan(settings, connection, definitions)
        routes = routes_of(connection, plan, facts, settings, schemas)
    for row_filter, who in routes.filters.evaluations():
        say(f"{row_filter}: {who}", to=sys.stderr)
    shown: Mapping[str, Any] = dict(sorted(schemas.schemas.items()))
    if asyncapi:
        shown = document(
            plan,
            schemas.schemas,
            name=settings.gateway.name,
            kafka=settings.kafka,
            registry_url=settings.registry["url"],
            topic_names=settings.topics.names,
            partitions={topic.name: topic.partitions for topic in table_topics(plan, settings)},
        )
    # An escape of a character stands for that character in JSON as well.
    print(lines_shown(json.dumps(shown, indent=2, ensure_ascii=False)), flush=True)
    return 0


def routes_of(
    connection: psycopg.Connection,
    plan: Plan,
    facts: ServerFacts,
    settings: Settings,
    schemas: SchemaIds,
) -> RelationRoutes:
    """Compile every filter and schema of the plan, as if all topics were still to be created.

    Raises:
        FilterError: a filter cannot be evaluated here.
        SchemaError: a table cannot be published.
    """
    partitions = {topic.name: topic.partitions for topic in table_topics(plan, settings)}
    routing = routing_settings(settings, facts, plan, Topics(partitions))
    routes = relation_routes(plan, routing, connection, schemas)
    routes.register_all()
    return routes
