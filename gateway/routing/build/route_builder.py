"""Construction of projection routes and their targets for the hot path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gateway.definitions.model import FilterClause, Operation, Plan
from gateway.envelope.envelope import EnvelopeEncoder, RowFormatEncoder
from gateway.envelope.masking import masked_columns, row_mask
from gateway.envelope.schema import TableSchema, describe
from gateway.routing.build.held_tables import HeldTables
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.build.projections import Projection
from gateway.routing.build.topics import Addresses
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.quarantine import Quarantine
from gateway.routing.row.targets import Lookup, Passes, Target
from gateway.routing.settings import RoutingSettings
from schemas.settings.tables import Envelope

__all__ = ["RouteBuilder"]


class RouteBuilder:
    """Builder of projection routes, in steps: the encoder, the targets, the route to them."""

    def __init__(
        self,
        plan: Plan,
        settings: RoutingSettings,
        addresses: Addresses,
        held: HeldTables,
        moving: MovingTables | None = None,
    ) -> None:
        self._settings = settings
        self._addresses = addresses
        self._held = held
        self.moving = moving
        self._skips_origins = {s.name: s.origin == "none" for s in plan.subscriptions}

    def envelope(self, subscription: str) -> Envelope:
        """Return the format of a subscription's values."""
        return self._settings.envelope.of(subscription)

    def described(self, projection: Projection, envelope: Envelope) -> TableSchema:
        """Return the schemas of `projection`, which are those of its encoder."""
        return describe(
            projection.target.schema,
            projection.target.name,
            masked_columns(projection.columns, projection.masks, self._settings.hash_key),
            projection.key,
            types=self._settings.types,
            envelope=envelope,
            chosen=projection.chosen,
        )

    def encoder(
        self, projection: Projection, layout: Sequence[str], envelope: Envelope
    ) -> EnvelopeEncoder:
        """Return the encoder of `projection` for tuples with columns `layout`."""
        position = {name: index for index, name in enumerate(layout)}
        indexes = [position[column.name] for column in projection.columns]
        hash_key = self._settings.hash_key
        encoder = RowFormatEncoder if envelope.format == "row" else EnvelopeEncoder
        return encoder(
            projection.target.schema,
            projection.target.name,
            masked_columns(projection.columns, projection.masks, hash_key),
            key=projection.key,
            identity=projection.identity,
            replica_identity=projection.replica_identity.value,
            indexes=indexes,
            types=self._settings.types,
            envelope=envelope,
            chosen=projection.chosen,
        )

    def target(
        self,
        subscription: str,
        projection: Projection,
        encoder: EnvelopeEncoder,
        operations: frozenset[Operation],
        passes: dict[Operation, Passes | None],
        selections: Mapping[Operation, Lookup] = MappingProxyType({}),
        filters: Mapping[Operation, Sequence[FilterClause]] = MappingProxyType({}),
        *,
        moves: bool = False,
    ) -> Target:
        """Register the table's schemas and return the target."""
        address = self._addresses.of_table(subscription, projection.target, encoder.schema)
        return Target(
            address.counter,
            key_prefix=address.key_prefix,
            value_prefix=address.value_prefix,
            operations=operations,
            passes=passes,
            selections=selections,
            filters=filters,
            skips_origins=self._skips_origins[subscription],
            refused=address.refused,
            moves=moves,
        )

    def route(
        self,
        projection: Projection,
        encoder: EnvelopeEncoder,
        targets: Sequence[Target],
        relation: str,
        layout: Sequence[str],
    ) -> ProjectionRoute:
        """Return the route to `targets` of tuples of `relation` with columns `layout`."""
        columns, masks, quarantine, mask = projection.columns, projection.masks, None, None
        if masks:
            mask = row_mask(columns, encoder.indexes, masks, self._settings.hash_key)
        if self._addresses.errors is not None:
            quarantine = Quarantine(
                self._addresses.errors,
                relation,
                (projection.target.schema, projection.target.name),
                [(column.name, layout.index(column.name)) for column in columns],
                projection.identity,
                mask,
            )
        return ProjectionRoute(
            encoder,
            projection.target.oid,
            targets,
            projection.order,
            mask=mask,
            tombstones=self._settings.tombstones,
            quarantine=quarantine,
            withdraw=self._held.withdraw,
        )
