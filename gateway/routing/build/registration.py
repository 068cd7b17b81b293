"""Registration of the schemas of all subscriber tables, before the first row of any."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gateway.core.errors import SchemaError, SchemaRefusedError
from gateway.definitions.model import Publish, TableId
from gateway.routing.build.held_tables import HeldTables
from gateway.routing.build.known_schemas import RequestSchemas, fingerprint_of
from gateway.routing.build.projections import Projections
from gateway.routing.build.route_builder import RouteBuilder
from gateway.routing.build.topics import Addresses

__all__ = ["register_schemas"]


def register_schemas(
    publishes: Iterable[Publish],
    projections: Projections,
    builder: RouteBuilder,
    addresses: Addresses,
    held: HeldTables,
    holdable: Collection[TableId],
    *,
    request: RequestSchemas | None,
    known: str,
    request_later: RequestSchemas | None,
) -> tuple[str, dict[TableId, str]]:
    """Register the schemas of every subscriber table; return their fingerprint, and the refusals.

    Args:
        publishes: One for each subscriber table.
        projections: Tables as they are in the catalog.
        builder: Builder of the descriptions.
        addresses: Topics, which keep the ids.
        held: Tables that are not served any more.
        holdable: As `gateway.routing.build.relation_routes.RelationRoutes.register_all`, as are the
            other arguments and the errors.
        request: As there.
        known: As there.
        request_later: As there.
    """
    tables = []
    for publish in publishes:
        table = projections.tables[publish.target_oid]
        columns = tuple(c.name for c in table.columns if publish.publishes(c))
        projection = projections.stored(table, columns, publish.masks)
        envelope = builder.envelope(publish.subscription)
        try:
            described = builder.described(projection, envelope)
        except SchemaError:
            if held.is_ending((publish.subscription, table.oid)):
                continue  # it has rows to lose only if some arrive
            raise
        tables.append((publish.subscription, table, described))
    subjects = [schema for each in tables for schema in addresses.schemas(*each)]
    fingerprint = fingerprint_of(subjects)
    is_known = fingerprint == known
    ask = request_later if is_known else request
    if ask is not None:
        ask(subjects)
    refused: dict[TableId, str] = {}
    for subscription, table, described in () if is_known else tables:
        try:
            addresses.of_table(subscription, table, described)
        except SchemaRefusedError as error:
            table_id = (subscription, table.oid)
            if held.is_ending(table_id):
                continue  # its rows may be of another schema
            if table_id not in holdable:
                raise
            refused[table_id] = error.message
    return fingerprint, refused
