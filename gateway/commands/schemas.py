"""``pgsluice schemas``: what will be registered, subject by subject, as JSON on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from gateway.config import Settings
from gateway.daemon import read_definitions, table_topics
from gateway.definitions.combine import make_plan
from gateway.routing import RoutingSettings
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.source.catalog import ServerCatalog, read_catalog
from gateway.source.connection import connect, server_facts

__all__ = ["CollectedSchemas", "show_schemas"]


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
        catalog = read_catalog(connection, definitions)
        plan = make_plan(
            definitions,
            catalog,
            prefix=settings.source.slot,
            missing_identity=settings.definitions.missing_identity,
        )
        topics = table_topics(plan, settings)
        routing = RoutingSettings(
            gateway=settings.gateway.name,
            database=facts.database,
            version="",
            partitions={topic.name: topic.partitions for topic in topics},
            topic_names=settings.topics.names,
            numeric=settings.types.numeric,
            message_prefixes=frozenset(settings.messages.prefixes),
        )
        routes = RelationRoutes(plan, routing, Totals({}), ServerCatalog(connection), schemas)
        routes.register_all()
    json.dump(dict(sorted(schemas.schemas.items())), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
    return 0
