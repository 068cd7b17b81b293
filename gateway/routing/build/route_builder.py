"""Groups and their takers, put together: what the hot path needs of a form, prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gateway.definitions.model import FilterClause, Operation, Plan
from gateway.envelope.envelope import EnvelopeEncoder
from gateway.routing.build.projections import Form
from gateway.routing.build.topics import Addresses
from gateway.routing.row.projection_route import Group
from gateway.routing.row.quarantine import Quarantine
from gateway.routing.row.targets import Lookup, Passes, Taker
from gateway.routing.settings import RoutingSettings

__all__ = ["GroupBuilder"]


class GroupBuilder:
    """Makes the groups of a plan, step by step: an encoder, its takers, then the group of both."""

    def __init__(self, plan: Plan, settings: RoutingSettings, addresses: Addresses) -> None:
        self._settings = settings
        self._addresses = addresses
        self._skips_origins = {s.name: s.origin == "none" for s in plan.subscriptions}

    def encoder(self, form: Form, layout: Sequence[str]) -> EnvelopeEncoder:
        """Return what encodes `form` of tuples with columns `layout`."""
        position = {name: index for index, name in enumerate(layout)}
        return EnvelopeEncoder(
            form.target.schema,
            form.target.name,
            form.columns,
            key=form.key,
            identity=form.identity,
            replica_identity=form.replica_identity.value,
            indexes=[position[column.name] for column in form.columns],
            numeric=self._settings.numeric,
        )

    def taker(
        self,
        subscription: str,
        form: Form,
        encoder: EnvelopeEncoder,
        operations: frozenset[Operation],
        passes: dict[Operation, Passes | None],
        selections: Mapping[Operation, Lookup] = MappingProxyType({}),
        filters: Mapping[Operation, Sequence[FilterClause]] = MappingProxyType({}),
    ) -> Taker:
        """Register the table's schemas; return what stands for the subscription."""
        address = self._addresses.of_table(subscription, form.target, encoder)
        return Taker(
            address.counter,
            key_prefix=address.key_prefix,
            value_prefix=address.value_prefix,
            operations=operations,
            passes=passes,
            selections=selections,
            filters=filters,
            skips_origins=self._skips_origins[subscription],
            refused=address.refused,
        )

    def group(
        self,
        form: Form,
        encoder: EnvelopeEncoder,
        takers: Sequence[Taker],
        relation: str,
        layout: Sequence[str],
    ) -> Group:
        """Return the group of `takers`; the tuples are of `relation`, with columns `layout`."""
        quarantine = None
        if self._addresses.errors is not None:
            quarantine = Quarantine(
                self._addresses.errors,
                relation,
                (form.target.schema, form.target.name),
                [(column.name, layout.index(column.name)) for column in form.columns],
                form.identity,
            )
        return Group(
            encoder,
            form.target.oid,
            takers,
            form.order,
            tombstones=self._settings.tombstones,
            quarantine=quarantine,
        )
