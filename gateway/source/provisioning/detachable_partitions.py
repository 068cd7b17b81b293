"""Partitions that are members of the gateway's own publications beside their trees.

A partition that a publication has by itself stays published when it is detached. pgoutput asks for
the membership as of each change: if the gateway's publication had the tree alone, what is written
between the DETACH and the next look at the catalog would never be sent, and if the partition is
attached again by then, nothing would ever show it.

While it is attached, its membership makes no difference to what is sent. It is therefore added when
that is possible, in a transaction of its own, and no table waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import sql

from gateway.definitions.model import Plan
from gateway.source.provisioning.privileges import own_publications
from gateway.source.provisioning.publication_sql import add_tables, drop_tables, shown, table_names
from gateway.source.provisioning.publication_state import read_existing
from gateway.source.provisioning.unawaited_changes import Tables, batches, change_members
from gateway.source.session.server_errors import classify_server_error

__all__ = ["MissingPartitions", "add_partitions", "missing_partitions"]

_Connection = psycopg.Connection[Any]

# No table of such a schema can be named, even by its owner.
_UNNAMEABLE: Final = """
SELECT c.oid::bigint FROM pg_catalog.pg_class AS c
WHERE c.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
  AND NOT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
"""


@dataclass(frozen=True, slots=True)
class MissingPartitions:
    """Partitions that are not members yet, and the statements that add them.

    Attributes:
        by_gateway: Statements that the session's role may run.
        by_owner: Statements for an owner of both the partitions and the publications.
        others: Number of partitions that the session's role cannot add.
        on_standby: Whether that is so because the server is a standby.
        reasons: The server's messages about partitions that it refused in an attempt.
    """

    by_gateway: tuple[str, ...] = ()
    by_owner: tuple[str, ...] = ()
    others: int = 0
    on_standby: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def who(self) -> str:
        """Start of a sentence that goes on with what is to be run."""
        return (
            "on its primary, run"
            if self.on_standby
            else "let an owner of both the partitions and the publications run"
        )


@dataclass(frozen=True, slots=True)
class _Missing:
    """Partitions that one publication lacks.

    Attributes:
        exists: Whether it is there, and stays when the gateway makes its publications.
        addable: Partitions that the session's role may add.
        foreign: The others.
        filtered: Those of `foreign` that are members with a filter.
    """

    publication: str
    exists: bool
    addable: Tables
    foreign: Tables
    filtered: Tables


def add_partitions(connection: _Connection, plan: Plan) -> tuple[list[str], MissingPartitions]:
    """Add the partitions that the role may add and that nobody has locked.

    The trees of `plan` are in the publications already. A partition that cannot be added is left to
    the next call.

    Returns:
        The executed statements, and what is left.

    Raises:
        FatalError, TransientError: the catalog cannot be read, or the connection is gone.
    """
    done: list[sql.Composed] = []
    left: list[_Missing] = []
    reasons: set[str] = set()
    try:
        for missing in _missing(connection, plan):
            name = missing.publication
            changed = change_members(connection, partial(add_tables, name), missing.addable)
            done += changed.statements
            reasons.update(changed.refused.values())
            refused = {oid: missing.addable[oid] for oid in changed.refused}
            kept = missing.addable.keys() - changed.oids - refused.keys()
            left.append(
                _Missing(
                    name,
                    missing.exists,
                    addable={oid: missing.addable[oid] for oid in kept},
                    foreign={**missing.foreign, **refused},
                    filtered=missing.filtered,
                )
            )
        return shown(connection, done), _described(connection, left, sorted(reasons))
    except psycopg.Error as error:
        raise _classified(error) from None


def missing_partitions(
    connection: _Connection, plan: Plan, *, after_others: bool = False
) -> MissingPartitions:
    """Return what is left of the partitions that `plan` wants as members.

    Args:
        connection: Connection to the source server.
        plan: Plan with the partitions.
        after_others: Whether an owner runs the statements after those of `check_publications`.
            Otherwise, there are none for publications that do not exist yet.

    Raises:
        FatalError, TransientError: the catalog cannot be read.
    """
    try:
        missing = list(_missing(connection, plan))
        return _described(connection, missing, after_others=after_others)
    except psycopg.Error as error:
        raise _classified(error) from None


def _missing(connection: _Connection, plan: Plan) -> Iterator[_Missing]:
    wanted = {p.name: p for p in plan.server_publications if p.detachable_oids}
    if not wanted:
        return
    existing = read_existing(connection, list(wanted))
    for name, publication in wanted.items():
        found = existing.get(name)
        if found is not None and not found.plain:
            found = None  # it is made again
        filtered = found.filters.keys() if found is not None else frozenset[int]()
        members = found.table_oids - filtered if found is not None else frozenset[int]()
        tables = table_names(connection, set(publication.detachable_oids) - members)
        if not tables:
            continue
        rights = own_publications(connection, [name], tables)
        may = name not in rights.unowned and (found is not None or rights.may_create)
        foreign = set(tables)
        if may and not _reads_only(connection):
            foreign = {oid for (oid,) in connection.execute(_UNNAMEABLE, [sorted(tables)])}
            foreign |= rights.foreign
        yield _Missing(
            name,
            found is not None,
            addable={oid: table for oid, table in tables.items() if oid not in foreign},
            foreign={oid: table for oid, table in tables.items() if oid in foreign},
            filtered={oid: tables[oid] for oid in sorted(foreign & filtered)},
        )


def _described(
    connection: _Connection,
    missing: list[_Missing],
    reasons: list[str] | None = None,
    *,
    after_others: bool = False,
) -> MissingPartitions:
    by_owner = []
    for one in missing:
        for some in batches(one.foreign) if one.exists or after_others else ():
            filtered = {oid: table for oid, table in some.items() if oid in one.filtered}
            if filtered and not after_others:
                by_owner.append(drop_tables(one.publication, filtered))
            by_owner.append(add_tables(one.publication, some))
    by_gateway = (add_tables(m.publication, some) for m in missing for some in batches(m.addable))
    others = sum(len(one.foreign) for one in missing)
    return MissingPartitions(
        by_gateway=tuple(shown(connection, by_gateway)),
        by_owner=tuple(shown(connection, by_owner)),
        others=others,
        on_standby=others > 0 and connection.info.parameter_status("in_hot_standby") == "on",
        reasons=tuple(reasons or ()),
    )


def _reads_only(connection: _Connection) -> bool:
    names = ("in_hot_standby", "default_transaction_read_only")
    return any(connection.info.parameter_status(name) == "on" for name in names)


def _classified(error: psycopg.Error) -> Exception:
    text = error.diag.message_primary or str(error)
    doing = "adding partitions to the gateway's publications"
    return classify_server_error(error.sqlstate, text, doing=doing)
