"""Projections of one relation, each with the targets that share it."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.definitions.model import Masks, Operation, Publish
from gateway.envelope.envelope import EnvelopeEncoder
from gateway.routing.build.projections import Projection
from gateway.routing.build.route_builder import RouteBuilder
from gateway.routing.row.filters import Asking, Filters
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.targets import Target
from schemas.settings.tables import Envelope

__all__ = ["SharedProjections"]


class SharedProjections:
    """Projections of a relation whose route is being built, each encoded once for its targets.

    Args:
        builder: Builder of encoders, targets and routes.
        filters: Filters of the targets.
        names: Columns of the relation's rows.
        asking: Filters that the server evaluates for these rows, if any.
    """

    def __init__(
        self,
        builder: RouteBuilder,
        filters: Filters,
        names: Sequence[str],
        asking: Asking | None,
    ) -> None:
        self._builder = builder
        self._filters = filters
        self._names = names
        self._asking = asking
        self._shared: dict[
            tuple[int, tuple[str, ...], Masks, Envelope],
            tuple[Projection, EnvelopeEncoder, list[Target]],
        ] = {}

    def add(self, publish: Publish, projection: Projection) -> None:
        """Add a subscription to the targets of its projection, and register its schemas.

        Raises:
            SchemaError: the relation cannot be published for it.
            SchemaRefusedError: the registry refuses its schemas.
            TransientError: the registry cannot be reached.
        """
        names, filters = self._names, self._filters
        columns = tuple(column.name for column in projection.columns)
        envelope = self._builder.envelope(publish.subscription)
        key = (projection.target.oid, columns, projection.masks, envelope)
        if key not in self._shared:
            self._shared[key] = (projection, self._builder.encoder(projection, names, envelope), [])
        projection, encoder, targets = self._shared[key]
        passes = {
            operation: filters.passes(publish.filters[operation], names, self._asking)
            for operation in publish.operations - {Operation.TRUNCATE}
        }
        selections = {
            operation: lookup
            for operation in passes
            if (lookup := filters.lookup(publish.filters[operation], names)) is not None
        }
        moves = (publish.subscription, publish.target_oid) in (self._builder.moving or ())
        clauses = (clause for found in publish.filters.values() for clause in found)
        assert moves or not any(clause.formula for clause in clauses), "its sets are not known"
        targets.append(
            self._builder.target(
                publish.subscription,
                projection,
                encoder,
                publish.operations,
                passes,
                selections,
                publish.filters,
                moves=moves,
            )
        )

    def routes(self, relation: str) -> list[ProjectionRoute]:
        """Return the routes of the projections that have targets; `relation` is its name."""
        return [
            self._builder.route(projection, encoder, targets, relation, self._names)
            for projection, encoder, targets in self._shared.values()
            if targets
        ]
