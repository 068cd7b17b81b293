"""Routes of copied rows, built once per copy."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.definitions.model import Masks, Operation, TableCopy
from gateway.envelope.envelope import EnvelopeEncoder
from gateway.routing.build.projections import Projection, Projections
from gateway.routing.build.route_builder import RouteBuilder
from gateway.routing.row.copied_rows import CopyRoute
from gateway.routing.row.filters import Asking, Filters
from gateway.routing.row.native import compile_rows
from gateway.routing.row.targets import Passes, Target
from schemas.settings.tables import Envelope

__all__ = ["copy_route"]


def copy_route(
    copies: Sequence[TableCopy],
    key: Sequence[str],
    *,
    projections: Projections,
    filters: Filters,
    builder: RouteBuilder,
) -> CopyRoute:
    """Prepare the copy of one table for the subscriptions of `copies`; `key` is its key.

    Filters are evaluated on the row as the copy publishes it, not as the server returned it:
    changes of the stream may have been applied to it since.
    """
    table = projections.tables[copies[0].target_oid]
    wanted = {*key}.union(*(copy.columns for copy in copies))
    for copy in copies:
        wanted.update(*(filters.of(clause).columns for clause in copy.filters))
        if builder.moving is not None:
            wanted.update(builder.moving.deciding(copy.subscription, copy.target_oid))
    columns = tuple(column.name for column in table.columns if column.name in wanted)
    asking = filters.asking(({Operation.INSERT: c.filters} for c in copies), columns)
    alike: dict[tuple[tuple[str, ...], Masks, Envelope], list[TableCopy]] = {}
    for copy in copies:
        envelope = builder.envelope(copy.subscription)
        alike.setdefault((copy.columns, copy.masks, envelope), []).append(copy)
    projection_routes = []
    for (published, masks, envelope), sharing in alike.items():
        projection = projections.stored(table, published, masks)
        encoder = builder.encoder(projection, columns, envelope)
        targets = [
            _target(copy, projection, encoder, columns, asking, filters, builder)
            for copy in sharing
        ]
        projection_routes.append(builder.route(projection, encoder, targets, str(table), columns))
    compiled = None
    moving = builder.moving or ()
    if asking is None and not any((c.subscription, c.target_oid) in moving for c in copies):
        compiled = compile_rows(table.oid, columns, projection_routes, filters)
    return CopyRoute(table, columns, tuple(key), tuple(projection_routes), asking, compiled)


def _target(
    copy: TableCopy,
    projection: Projection,
    encoder: EnvelopeEncoder,
    columns: Sequence[str],
    asking: Asking | None,
    filters: Filters,
    builder: RouteBuilder,
) -> Target:
    insert = Operation.INSERT
    table_id = copy.subscription, copy.target_oid
    if builder.moving is not None and table_id in builder.moving:
        passes: Passes | None = builder.moving.passes(table_id, columns)
    else:
        passes = filters.passes(copy.filters, columns, asking)
    lookup = filters.lookup(copy.filters, columns)
    return builder.target(
        copy.subscription,
        projection,
        encoder,
        frozenset({insert, Operation.TRUNCATE}),
        {insert: passes},
        {} if lookup is None else {insert: lookup},
        {insert: copy.filters},
    )
