"""Findings about how columns are carried, and values that their Avro types cannot carry.

Only types that are carried as such by choice, and lose values that tables often have, are searched:
a search is a scan.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import psycopg
from psycopg import sql

from gateway.commands.check.findings import Finding, Severity
from gateway.config import Settings
from gateway.definitions.model import Column, Operation, Plan, Publish, Table
from gateway.definitions.tables.keys import key_of
from gateway.envelope.envelope import unavailable_text
from gateway.envelope.schema import Field, describe, has_choice, is_nested
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.source.copy.errors import TableChanged
from gateway.source.copy.relation_guard import lock
from gateway.source.session.server_errors import classify_server_error
from schemas.settings.masks import Mask
from schemas.types import MOST_ITEMS

__all__ = ["type_findings", "unchanged_findings", "value_findings"]

_TABLE_S: Final = 5
"""Seconds for which a table is searched."""
_ALL_S: Final = 60
"""Seconds for which all tables are searched."""

_IS_24: Final = "{0} OPERATOR(pg_catalog.=) '24:00'::pg_catalog.time"
_UNCARRIED: Final[Mapping[str, tuple[str, str]]] = {
    "time": (_IS_24, "24:00"),
    "milli_time": (_IS_24, "24:00"),
    "milli_timestamp": ("NOT pg_catalog.isfinite({0})", "infinity"),
    "interval": ("NOT pg_catalog.isfinite({0})", "an infinite value"),
    "decimal": ("{0} OPERATOR(pg_catalog.=) 'NaN'::pg_catalog.numeric", "NaN"),
}
"""Condition on values that cannot be carried, and what they are, by conversion."""

_NO_LIST: Final = (
    "pg_catalog.array_ndims({0}) OPERATOR(pg_catalog.>) 1"
    " OR pg_catalog.array_lower({0}, 1) OPERATOR(pg_catalog.<>) 1"
    " OR pg_catalog.cardinality({0}) OPERATOR(pg_catalog.>) "
)
"""Condition on arrays that cannot be carried; the largest number of items follows."""


def type_findings(plan: Plan, settings: Settings) -> Iterator[Finding]:
    """Warn of columns in ``[types]`` for which it decides nothing, and of nested ones in keys."""
    types = settings.types
    held = {f"{one.schema}.{one.table}" for one in plan.held}
    tables: set[str] = set()
    published: dict[str, Column] = {}
    masked: dict[str, Mask] = {}
    for table, columns, masks in _published(plan):
        key = {*(key_of(table, {c.name for c in columns}) or ())}
        key.update(settings.topics.chosen(str(table)).key)
        tables.add(str(table))
        masked |= {f"{table}.{c}": mask for c, mask in masks.items() if mask.kind != "null"}
        for column in columns:
            name = f"{table}.{column.name}"
            published[name] = column
            is_text = column.name in key and name not in masked
            if is_text and is_nested(column, types.native_of(name)):
                yield Finding(
                    Severity.WARNING,
                    f"table {table}: column {column.name}, of type {column.type_name}, is part of"
                    " the key, and therefore carried as text, in the value as well: its schema"
                    " changes once the key is another one, which compatibility BACKWARD refuses",
                    f'carry it as text whatever the key is: [types.columns] "{name}" = "text"',
                )
    for name in sorted(types.columns):
        of_table = name.rpartition(".")[0]
        if of_table in held or (settings.group is not None and of_table not in tables):
            continue  # published by another group's gateway, or once it is held no more
        if name not in published:
            yield Finding(
                Severity.WARNING,
                f"types: [types.columns] has {name}, and no such column is published",
                "write it as schema.table.column, without quotes inside",
            )
        elif name in masked:
            yield Finding(
                Severity.WARNING,
                f"types: [types.columns] has {name}, which is text: its mask is {masked[name]}",
            )
        elif not has_choice(published[name]):
            yield Finding(
                Severity.WARNING,
                f"types: [types.columns] has {name}, of type {published[name].type_name}, which is "
                "carried in one way only",
                "docs/types.md says which types have a choice",
            )


def unchanged_findings(plan: Plan, settings: Settings) -> Iterator[Finding]:
    """Warn of large values that an UPDATE leaves as they are, and sinks of rows take for NULL."""
    by_table = {(one.subscription, one.target_oid): one for one in plan.publishes}
    for publish in by_table.values():
        table = plan.tables[publish.target_oid]
        envelope = settings.envelope.of(publish.subscription)
        if envelope.format != "row" or Operation.UPDATE not in publish.operations:
            continue
        if table.replica_identity is ReplicaIdentity.FULL:
            continue
        columns = [column for column in table.columns if publish.publishes(column)]
        key = key_of(table, {column.name for column in columns})
        described = describe(
            *(table.schema, table.name, columns, key),
            types=settings.types,
            envelope=envelope,
            chosen=settings.topics.chosen(str(table)),
        )
        large = table.may_toast.difference(table.identity, dict(publish.masks))
        unread = (f for f in described.fields if unavailable_text(f) is None)
        lost = sorted(field.column for field in unread if field.column in large)
        if lost:
            yield Finding(
                Severity.WARNING,
                f"table {table} of subscription {publish.subscription}: large values of"
                f" {', '.join(lost)} that an UPDATE leaves as they are are null in the format row:"
                " only `__unchanged` sets them apart from NULL",
                f"ALTER TABLE {table.sql} REPLICA IDENTITY FULL",
            )


def value_findings(
    connection: psycopg.Connection, settings: Settings, plan: Plan
) -> Iterator[Finding]:
    """Yield the columns that have values which cannot be carried, by a search of the tables."""
    end = time.monotonic() + _ALL_S
    effect = "such changes go to the error topic"
    if settings.on_error.value == "stop":
        effect = "the gateway stops there"
    for table, columns, masks in _published(plan):
        wanted = list(
            dict.fromkeys(
                (field.column, sought, what)
                for field in _described(settings, plan, table, columns)
                if field.column not in masks
                for sought, what in _conditions(field)
            )
        )
        if not wanted:
            continue
        left_s = min(_TABLE_S, end - time.monotonic())
        found = _search(connection, table, [(name, sought) for name, sought, _ in wanted], left_s)
        if isinstance(found, str):
            yield Finding(
                Severity.WARNING,
                f"table {table} was not searched for values that Avro cannot carry: {found}",
            )
            continue
        for (column, _, what), has in zip(wanted, found, strict=True):
            if has:
                yield Finding(
                    Severity.WARNING,
                    f"table {table}: column {column} has {what}, which Avro cannot carry: {effect}",
                    f'carry it as text: [types.columns] "{table}.{column}" = "text"',
                )


def _published(plan: Plan) -> Iterator[tuple[Table, list[Column], dict[str, Mask]]]:
    """Yield each subscriber table with the columns that are published to any subscription.

    With them comes a mask of each column that no subscription has without one.
    """
    publishes: dict[int, list[Publish]] = defaultdict(list)
    for publish in plan.publishes:
        publishes[publish.target_oid].append(publish)
    for oid, found in sorted(publishes.items()):
        table = plan.tables[oid]
        masks = {name: mask for publish in found for name, mask in publish.masks}
        columns = [c for c in table.columns if any(p.publishes(c) for p in found)]
        for column in columns:
            if any(p.publishes(column) and column.name not in dict(p.masks) for p in found):
                masks.pop(column.name, None)
        yield table, columns, masks


def _described(
    settings: Settings, plan: Plan, table: Table, columns: Sequence[Column]
) -> Iterator[Field]:
    """Yield the fields of a table's columns, in the formats of all of its subscriptions."""
    key = key_of(table, {column.name for column in columns})
    to = (publish.subscription for publish in plan.publishes if publish.target_oid == table.oid)
    for envelope in dict.fromkeys(map(settings.envelope.of, to)):
        described = describe(
            *(table.schema, table.name, columns, key),
            types=settings.types,
            envelope=envelope,
            chosen=settings.topics.chosen(str(table)),
        )
        yield from described.fields


def _conditions(field: Field) -> Iterator[tuple[str, str]]:
    """Yield SQL conditions on a column's values that cannot be carried, and what these are."""
    if field.type.array and field.item is not None:
        most = MOST_ITEMS // field.item.values
        yield (
            f"{_NO_LIST}{most}",
            "arrays of several dimensions, with a lower bound other than 1, or of more than"
            f" {most:,} items",
        )
        if (known := _UNCARRIED.get(field.item.type.conversion)) is not None:
            condition, what = known
            items = "pg_catalog.unnest({0}) AS items (item)"
            found = f"EXISTS (SELECT FROM {items} WHERE {condition.format('item')})"
            yield found, f"arrays with {what}"
    elif field.type.conversion in ("time", "milli_time", "milli_timestamp", "interval"):
        yield _UNCARRIED[field.type.conversion]


def _search(
    connection: psycopg.Connection, table: Table, wanted: Sequence[tuple[str, str]], left_s: float
) -> Sequence[bool | None] | str:
    """Return which conditions on columns hold for a row, or why that is not known."""
    if left_s <= 0:
        return f"the search of all tables ends after {_ALL_S} s"
    query = sql.SQL("SELECT {} FROM {}{}").format(
        sql.SQL(", ").join(
            sql.SQL(f"pg_catalog.bool_or({condition})").format(sql.Identifier(column))
            for column, condition in wanted
        ),
        sql.SQL("" if table.kind == "p" else "ONLY "),
        sql.Identifier(table.schema, table.name),
    )
    try:
        with connection.transaction(force_rollback=True):
            timeout_ms = max(1, int(left_s * 1000))
            connection.execute(f"SET LOCAL statement_timeout = {timeout_ms}".encode())
            lock(connection, table)
            return connection.execute(query).fetchone() or ()
    except TableChanged as error:
        return error.message
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        fault = classify_server_error(error.sqlstate, text, doing=f"reading {table}")
        if error.sqlstate is None:
            raise fault from None
        return fault.message
