"""The gateway's own publications on the source server: creation, changes and checks.

All four names exist from the first start on, unneeded ones without a table: pgoutput
looks a publication up as it was at the WAL position it decodes, so that one which is created later
than a position that is still to be read could never be named. In the same way a row filter of one
(`gateway.rowfilter.server.pushdown`) counts from the place in the WAL on at which it was altered:
it is widened before what needs that is copied, and narrowed after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from gateway.core.errors import AccessError, FatalError, TransientError
from gateway.definitions.model import IDENTIFYING, Operation, Plan, ServerPublication
from gateway.definitions.server import SUFFIXES
from gateway.rowfilter.server.pushdown import adds_to
from gateway.source.catalog.filter_text import RENDERING_SETTINGS
from gateway.source.provisioning.awaited_members import awaited_members, blocked_by_membership
from gateway.source.provisioning.detachable_partitions import add_partitions, missing_partitions
from gateway.source.provisioning.privileges import own_publications
from gateway.source.provisioning.publication_sql import (
    LOCK_TIMEOUT,
    add_tables,
    drop_tables,
    publication_options,
    shown,
    table_list,
    table_names,
)
from gateway.source.provisioning.publication_state import Existing, read_existing
from gateway.source.provisioning.unawaited_changes import Tables, batches, change_members
from gateway.source.session.blockers import lock_holders
from gateway.source.session.server_errors import classify_server_error, read_only

__all__ = [
    "check_publications",
    "drop_publications",
    "ensure_publications",
    "extend_publications",
    "missing_rights",
]

_Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement on one of the publications.

    Attributes:
        needed: Whether the plan needs it; otherwise it only removes what is no longer read.
        leaving: Name of the publication, and members that it removes and that do no harm.
    """

    text: sql.Composed
    needed: bool = True
    leaving: tuple[str, Tables] | None = None


def ensure_publications(connection: _Connection, plan: Plan, *, prefix: str) -> list[str]:
    """Create and alter the gateway's publications for `plan`, in one transaction; idempotent.

    Detachable partitions are added after that, as far as they can be, and members that are no
    longer read and do no harm are removed.

    Args:
        connection: Connection in autocommit mode, or in a transaction of its own.
        plan: Plan whose `server_publications` are made; others of this prefix are emptied.
        prefix: Prefix with which the plan was made.

    Returns:
        The executed statements; empty when everything was in place, or when only removals are left
        that the role may not do, or of locked tables: these are not needed.

    Raises:
        AccessError: the role may not do it; the hint has the SQL for an owner to run.
        TransientError: a table's lock could not be had in time, one was renamed or dropped just
            now, or the connection is gone.
    """
    done = _execute(connection, plan, prefix, _statements)
    return done + add_partitions(connection, plan)[0]


def extend_publications(connection: _Connection, plan: Plan, *, prefix: str) -> list[str]:
    """Alter the gateway's publications so that both `plan` and the plan before can be read.

    This is for the time in which one replaces the other. Nothing is removed, with one exception: a
    tree that `plan` reads by leaf is no longer read under its root, since the old plan can read it
    by leaf as well. The reverse has to wait until `ensure_publications` is called for `plan`. A
    root that `plan` reads without updates is no longer read with them, as these could fail.

    Args, returns and raises: as `ensure_publications`.
    """
    done = _execute(connection, plan, prefix, _extending_statements)
    return done + add_partitions(connection, plan)[0]


def _execute(
    connection: _Connection,
    plan: Plan,
    prefix: str,
    make: Callable[[_Connection, Plan, str], list[_Statement]],
) -> list[str]:
    statements: list[_Statement] = []
    try:
        with connection.transaction():
            connection.execute(LOCK_TIMEOUT)
            connection.execute(RENDERING_SETTINGS)
            statements = make(connection, plan, prefix)
            for statement in statements:
                if statement.leaving is None:
                    connection.execute(statement.text)
        return _shown(connection, (s for s in statements if s.leaving is None)) + _remove(
            connection, (s.leaving for s in statements if s.leaving is not None)
        )
    except psycopg.errors.InsufficientPrivilege as error:
        if not any(statement.needed for statement in statements):
            return []
        raise AccessError(
            f"the role of [source].dsn may not make the gateway's publications: "
            f"{error.diag.message_primary}",
            hint="let the owner of the tables run:\n" + _all_shown(connection, plan, statements),
        ) from None
    except psycopg.errors.ReadOnlySqlTransaction:
        raise read_only(
            connection,
            "the gateway's publications cannot be made",
            on_standby=f"run this on its primary:\n{_all_shown(connection, plan, statements)}",
        ) from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise TransientError(
            "a table was renamed or dropped while the gateway's publications were made: "
            f"{error.diag.message_primary}"
        ) from None
    except psycopg.errors.LockNotAvailable:
        wait = lock_holders(connection, plan.tables)
        raise TransientError(
            "the gateway's publications wait for locks on the tables that are to come in"
            + (f", held by {wait}" if wait is not None else ""),
            hint="let the transaction that holds the lock end, or end it; changes go on meanwhile",
        ) from None
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(
            error.sqlstate, text, doing="making the gateway's publications"
        ) from None


def _remove(connection: _Connection, leaving: Iterable[tuple[str, Tables]]) -> list[str]:
    done: list[sql.Composed] = []
    for name, tables in leaving:
        if not own_publications(connection, [name], ()).unowned:
            done += change_members(connection, partial(drop_tables, name), tables).statements
    return shown(connection, done)


def check_publications(connection: _Connection, plan: Plan, *, prefix: str) -> list[str]:
    """Return the SQL that an owner of the tables still has to run; empty when nothing is left.

    Detachable partitions are left to `missing_partitions`.

    Raises:
        FatalError, TransientError: the catalog cannot be read.
    """
    try:
        with connection.transaction():
            connection.execute(RENDERING_SETTINGS)
            return _shown(connection, _statements(connection, plan, prefix))
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(
            error.sqlstate, text, doing="checking the gateway's publications"
        ) from None


def missing_rights(connection: _Connection, plan: Plan, *, prefix: str) -> list[str]:
    """Return the SQL that an owner has to run before `plan` can be put into force.

    Empty when nothing is to be done, or the role may do it by itself.

    Raises:
        FatalError, TransientError: the catalog cannot be read.
    """
    names = [prefix + suffix for suffix in SUFFIXES]
    try:
        with connection.transaction():
            connection.execute(RENDERING_SETTINGS)
            existing = read_existing(connection, names)
            statements = _statements(connection, plan, prefix)
            needed = _shown(connection, (s for s in statements if s.needed))
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(
            error.sqlstate, text, doing="checking the gateway's publications"
        ) from None
    if not needed:
        return []
    coming = {
        oid
        for publication in plan.server_publications
        for oid in publication.table_oids
        if publication.name not in existing or oid not in existing[publication.name].table_oids
    }
    rights = own_publications(connection, names, coming)
    makes = len(rights.existing) < len(names)
    if rights.foreign or rights.unowned or (makes and not rights.may_create):
        return needed + list(missing_partitions(connection, plan, after_others=True).by_owner)
    return []


def drop_publications(
    connection: _Connection, *, prefix: str
) -> tuple[list[str], list[tuple[str, str]]]:
    """Drop the gateway's existing publications, after its slot has been dropped.

    Returns:
        The statements that were executed, and those that the server has refused, with the reasons.

    Raises:
        TransientError: the connection is gone.
    """
    names = [prefix + suffix for suffix in SUFFIXES]
    dropped: list[str] = []
    refused: list[tuple[str, str]] = []
    doing = "dropping the gateway's publications"
    try:
        existing = read_existing(connection, names)
    except psycopg.Error as error:
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    for name in existing:
        statement = sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name))
        (text,) = shown(connection, [statement])
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            why = error.diag.message_primary or str(error)
            failure = classify_server_error(error.sqlstate, why, doing=doing)
            if not isinstance(failure, FatalError):
                raise failure from None
            refused.append((text, why))
        else:
            dropped.append(text)
    return dropped, refused


def _shown(connection: _Connection, statements: Iterable[_Statement]) -> list[str]:
    return shown(connection, (statement.text for statement in statements))


def _all_shown(connection: _Connection, plan: Plan, statements: Iterable[_Statement]) -> str:
    missing = missing_partitions(connection, plan, after_others=True)
    return "\n".join((*_shown(connection, statements), *missing.by_gateway, *missing.by_owner))


def _statements(connection: _Connection, plan: Plan, prefix: str) -> list[_Statement]:
    wanted = {publication.name: publication for publication in plan.server_publications}
    names = [prefix + suffix for suffix in SUFFIXES]
    existing = read_existing(connection, names)
    awaited = awaited_members(connection, plan, existing)
    statements: list[_Statement] = []
    for name in names:
        publication = wanted.get(name) or ServerPublication(
            name=name,
            table_oids=(),
            operations=frozenset({Operation.INSERT}),
            via_root=name.startswith(f"{prefix}_root"),
        )
        found = existing.get(name)
        if found is not None and not found.plain:
            drop = sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(name))
            statements.append(_Statement(drop))
            found = None
        if found is None:
            statements.append(_Statement(_create(connection, publication)))
        elif name in wanted:
            statements += _alter(connection, plan, publication, found, awaited.get(name, ()))
        elif leaving := found.table_oids.difference(awaited.get(name, ())):
            statements += _leave(connection, plan, publication, found, leaving)
    return sorted(statements, key=lambda statement: statement.leaving is not None)


def _extending_statements(connection: _Connection, plan: Plan, prefix: str) -> list[_Statement]:
    wanted = {publication.name: publication for publication in plan.server_publications}
    existing = read_existing(connection, [prefix + suffix for suffix in SUFFIXES])
    by_leaf = _read_by_leaf(plan, {p.name: p.table_oids for p in wanted.values()}, prefix)
    by_leaf_before = _read_by_leaf(plan, {n: f.table_oids for n, f in existing.items()}, prefix)
    inserted = wanted.get(f"{prefix}_root_insert")
    without_updates = frozenset[int]() if inserted is None else frozenset(inserted.table_oids)
    # All alike: pgoutput refuses a table that two publications have with different values.
    generated = any(p.generated for p in wanted.values())
    generated = generated or any(found.generated for found in existing.values())
    statements: list[_Statement] = []
    for name, found in existing.items():
        publication = wanted.get(name)
        gone = by_leaf | (without_updates if name == f"{prefix}_root" else frozenset())
        if publication is None:
            if generated and not found.generated and connection.info.server_version >= 180000:
                alter = sql.SQL("ALTER PUBLICATION {} SET (publish_generated_columns = stored)")
                statements.append(_Statement(alter.format(sql.Identifier(name))))
            leaving = found.table_oids & gone
            if leaving and name.startswith(f"{prefix}_root"):
                statements.append(_drop_tables(connection, name, leaving, needed=True))
            continue
        oids, before = set(publication.table_oids), set(found.table_oids)
        if publication.via_root:
            oids -= by_leaf_before
            before -= gone
        both = replace(
            publication,
            table_oids=tuple(sorted(oids | before)),
            operations=publication.operations | found.operations,
            generated=generated,
            filters={
                oid: filters
                for oid, filters in _either(plan, publication, found).items()
                if oid in oids | before
            },
        )
        statements += _alter(connection, plan, both, found)
    return statements


def _either(
    plan: Plan, publication: ServerPublication, found: Existing
) -> dict[int, tuple[str, ...]]:
    """Return the filters with which both the old and the new rows can be read."""
    both: dict[int, tuple[str, ...]] = {}
    for oid, text in found.filters.items():
        wanted = publication.filters.get(oid, ())
        if oid not in publication.member_oids or (
            wanted and not adds_to(text, wanted, plan.tables[oid].columns, or_leaves=False)
        ):
            both[oid] = (text,)
        elif wanted:
            both[oid] = (text, *wanted)
    new = publication.filters.keys() - found.table_oids
    return both | {oid: publication.filters[oid] for oid in new}


def _read_by_leaf(plan: Plan, members: Mapping[str, Iterable[int]], prefix: str) -> set[int]:
    """Return the families of the members, by publication, that are not published as their root."""
    roots: set[int] = set()
    leaves: set[int] = set()
    for name, oids in members.items():
        (roots if name.startswith(f"{prefix}_root") else leaves).update(oids)
    beside = {
        oid
        for oid in leaves & plan.tables.keys()
        if not roots.isdisjoint(plan.tables[oid].ancestors)
    }
    return _families(plan, leaves - beside)


def _families(plan: Plan, oids: Set[int]) -> set[int]:
    """Return `oids` with the trees around them and the partitions in them."""
    found = set(oids)
    for table in plan.tables.values():
        if table.oid in oids:
            found.update(table.ancestors, table.leaves)
        elif not oids.isdisjoint(table.ancestors):
            found.add(table.oid)
    return found


def _create(connection: _Connection, publication: ServerPublication) -> sql.Composed:
    name, options = sql.Identifier(publication.name), publication_options(connection, publication)
    tables = table_names(connection, publication.table_oids)
    if not tables:
        return sql.SQL("CREATE PUBLICATION {} WITH ({})").format(name, options)
    return sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH ({})").format(
        name, table_list(tables, publication.filters), options
    )


def _alter(
    connection: _Connection,
    plan: Plan,
    publication: ServerPublication,
    found: Existing,
    awaited: Collection[int] = (),
) -> list[_Statement]:
    """Return the changes from `found` to `publication`, without the members in `awaited`.

    Detachable partitions that are members stay, without a filter; others are not added. Tables are
    added and dropped one by one, never set: PostgreSQL would ask for the ownership of those as well
    that are there already.
    """
    name = sql.Identifier(publication.name)
    statements = []
    generated = publication.generated and connection.info.server_version >= 180000
    if (found.operations, found.via_root, found.generated) != (
        publication.operations,
        publication.via_root,
        generated,
    ):
        narrower = found.operations > publication.operations
        same = (found.via_root, found.generated) == (publication.via_root, generated)
        statements.append(
            _Statement(
                sql.SQL("ALTER PUBLICATION {} SET ({})").format(
                    name, publication_options(connection, publication)
                ),
                needed=not (narrower and same),
            )
        )
    tables = table_names(connection, publication.table_oids)
    filtered_otherwise = _filtered_otherwise(plan, publication, found)
    staying = {*tables, *publication.detachable_oids}
    if leaving := (found.table_oids - staying).difference(awaited):
        statements += _leave(connection, plan, publication, found, leaving)
    if filtered_otherwise:
        statements.append(
            _drop_tables(connection, publication.name, filtered_otherwise, needed=True)
        )
    kept = found.table_oids - filtered_otherwise
    if coming := {oid: table for oid, table in tables.items() if oid not in kept}:
        statements.append(_Statement(add_tables(publication.name, coming, publication.filters)))
    return statements


def _filtered_otherwise(
    plan: Plan, publication: ServerPublication, found: Existing
) -> frozenset[int]:
    """Return the members that stay, with other filters."""
    oids = (publication.filters.keys() | found.filters.keys()) & found.table_oids
    return frozenset(
        oid
        for oid in oids.intersection(publication.member_oids)
        if not _filtered_alike(plan, oid, publication.filters.get(oid), found.filters.get(oid))
    )


def _filtered_alike(
    plan: Plan, oid: int, wanted: tuple[str, ...] | None, found: str | None
) -> bool:
    if wanted is None or found is None:
        return wanted is None and found is None
    return wanted == (found,) or not adds_to(
        found, wanted, plan.tables[oid].columns, or_leaves=True
    )


def _leave(
    connection: _Connection,
    plan: Plan,
    publication: ServerPublication,
    found: Existing,
    leaving: Collection[int],
) -> list[_Statement]:
    """Return the removal of members that are no longer read.

    Most do no harm. Those that must go with what is added are read elsewhere, too, in another way:
    under the root instead of by leaf, with more operations than their identity allows, or with a
    filter. And those without an identity must go, as long as their UPDATEs fail.
    """
    elsewhere: set[int] = set()
    everywhere: set[int] = set()
    for other in plan.server_publications:
        everywhere |= other.member_oids
        under_root = other.via_root and not found.via_root
        if other.name != publication.name and not (
            under_root and other.operations >= found.operations
        ):
            elsewhere |= other.member_oids
    harmful = _families(plan, elsewhere) | (_families(plan, everywhere) & found.filters.keys())
    if not publication.operations.union(found.operations).isdisjoint(IDENTIFYING):
        harmful |= blocked_by_membership(connection, set(leaving) - harmful)
    statements = []
    if at_once := harmful.intersection(leaving):
        statements.append(_drop_tables(connection, publication.name, at_once))
    for tables in batches(table_names(connection, set(leaving) - at_once)):
        text = drop_tables(publication.name, tables)
        statements.append(_Statement(text, needed=False, leaving=(publication.name, tables)))
    return statements


def _drop_tables(
    connection: _Connection, name: str, oids: Iterable[int], *, needed: bool = False
) -> _Statement:
    return _Statement(drop_tables(name, table_names(connection, oids)), needed=needed)
