"""``pgsluice schemas``: what will be registered, subject by subject, as JSON on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import psycopg

from gateway.config import Settings
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Definitions, Plan
from gateway.ports import SchemaIds
from gateway.provision import read_definitions, routing_settings, table_topics
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.source.catalog import ServerCatalog, read_catalog
from gateway.source.connection import ServerFacts, connect, server_facts

__all__ = ["CollectedSchemas", "plan_of", "routes_of", "show_schemas"]


class CollectedSchemas:
    """A registry that only remembers what it was given."""

    def __init__(self) -> None:
        self.schemas: dict[str, Mapping[str, Any]] = {}

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Remember `schema`; the id is its number."""
        self.schemas[subject] = schema
        return len(self.schemas)


def show_schemas(settings: Settings) -> int:
    """Print a JSON object from subject to schema; nothing is registered or created.

    Raises:
        TransientError: the source server cannot be reached.
        FatalError: the definitions cannot be served.
    """
    definitions = read_definitions(settings)
    schemas = CollectedSchemas()
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        plan = plan_of(connection, definitions, settings)
        routes_of(connection, plan, facts, settings, schemas)
    json.dump(dict(sorted(schemas.schemas.items())), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
    return 0


def plan_of(connection: psycopg.Connection, definitions: Definitions, settings: Settings) -> Plan:
    """Return what follows from the definitions on this server.

    Raises:
        DefinitionError: the definitions cannot be served.
    """
    return make_plan(
        definitions,
        read_catalog(connection, definitions),
        prefix=settings.source.slot,
        missing_identity=settings.definitions.missing_identity,
    )


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
    routing = routing_settings(settings, facts, plan, partitions)
    routes = RelationRoutes(plan, routing, Totals({}), ServerCatalog(connection), schemas)
    routes.register_all()
    return routes
