"""Members of the gateway's own publications that stay for a table that waits for its owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from gateway.definitions.identity import identity_gap
from gateway.definitions.model import IDENTIFYING, Plan, Table
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.source.catalog.tables import read_tables_by_oid
from gateway.source.provisioning.publication_state import Existing

__all__ = ["awaited_members", "blocked_by_membership"]


def awaited_members(
    connection: psycopg.Connection[Any], plan: Plan, existing: Mapping[str, Existing]
) -> dict[str, frozenset[int]]:
    """Return the members that `plan` does not read and that stay, by publication.

    This concerns a table that is held until its owner has run two statements, which add it and let
    it be read: after the second, the owner is not asked for the first again. It stays only if that
    harms no other table: the table can be updated as long as it is in a publication, and nothing
    that is read is in one tree with it.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    awaited = {held.oid for held in plan.held if held.statements or held.by_hand}
    wanted = {oid for publication in plan.server_publications for oid in publication.member_oids}
    unread = {oid for found in existing.values() for oid in found.table_oids} - wanted
    if not awaited or not unread:
        return {}
    members, tables = _with_leaves(connection, unread)
    read = [plan.tables[oid] for oid in wanted if oid in plan.tables]
    related = {oid for table in read for oid in (table.oid, *table.ancestors, *table.leaves)}

    def stays(table: Table, found: Existing) -> bool:
        if awaited.isdisjoint((table.oid, *table.ancestors)) or table.oid in found.filters:
            return False
        family = {table.oid, *table.ancestors, *table.leaves}
        if not family.isdisjoint(related):
            return False
        operations = found.operations.union(
            *(p.operations for p in plan.server_publications if existing.get(p.name) is found)
        )
        return operations.isdisjoint(IDENTIFYING) or _all_can_be_updated(table, tables)

    return {
        name: frozenset(
            oid
            for oid in found.table_oids
            if (table := members.get(oid)) is not None and stays(table, found)
        )
        for name, found in existing.items()
    }


def blocked_by_membership(connection: psycopg.Connection[Any], oids: Iterable[int]) -> set[int]:
    """Return the tables whose rows cannot be changed while UPDATE or DELETE of them is published.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    members, tables = _with_leaves(connection, oids)
    return {oid for oid, table in members.items() if not _all_can_be_updated(table, tables)}


def _with_leaves(
    connection: psycopg.Connection[Any], oids: Iterable[int]
) -> tuple[dict[int, Table], dict[int, Table]]:
    """Return tables, and the same with their partitions."""
    members = read_tables_by_oid(connection, oids)
    leaves = {leaf for table in members.values() for leaf in table.leaves}
    return members, {**members, **read_tables_by_oid(connection, leaves - members.keys())}


def _all_can_be_updated(table: Table, tables: Mapping[int, Table]) -> bool:
    return all(map(_can_be_updated, [tables[o] for o in table.leaves if o in tables] or [table]))


def _can_be_updated(table: Table) -> bool:
    """Whether PostgreSQL lets a table be updated in whatever publication, without a column list."""
    generated = {column.name for column in table.columns if column.generated}
    return (
        identity_gap(table) is None
        and generated.isdisjoint(table.identity)
        and not (generated and table.replica_identity is ReplicaIdentity.FULL)
    )
