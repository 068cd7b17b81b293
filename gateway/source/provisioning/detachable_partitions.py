"""Partitions that are members of the gateway's own publications beside their trees.

A partition that a publication has by itself stays published when it is detached. pgoutput asks for
the membership as of each change: if the gateway's publication had the tree alone, what is written
between the DETACH and the next look at the catalog would never be sent, and if the partition is
attached again by then, nothing would ever show it.

While it is attached, its membership makes no difference to what is sent. It is therefore added when
that is possible, in a transaction of its own, and no table waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from gateway.definitions.model import Plan
from gateway.source.provisioning.privileges import own_publications
from gateway.source.provisioning.publication_sql import (
    LOCK_TIMEOUT,
    add_tables,
    shown,
    table_names,
)
from gateway.source.provisioning.publication_state import read_existing
from gateway.source.session.blockers import locked_tables
from gateway.source.session.connection import classify_server_error

__all__ = ["MissingPartitions", "add_partitions", "missing_partitions"]

_Connection = psycopg.Connection[Any]
_Tables = Mapping[int, tuple[str, str]]

_AT_ONCE: Final = 500
"""Partitions in one statement, each of which takes a place in the server's lock table."""


@dataclass(frozen=True, slots=True)
class MissingPartitions:
    """Statements that add the partitions that are not members yet.

    Attributes:
        by_gateway: Those that the session's role may run.
        by_owner: Those for an owner of the partitions and of the publications.
    """

    by_gateway: tuple[str, ...] = ()
    by_owner: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        yield from (*self.by_gateway, *self.by_owner)


def add_partitions(connection: _Connection, plan: Plan) -> list[str]:
    """Add the partitions that the role may add and that nobody has locked.

    The trees of `plan` are in the publications already. A partition that cannot be added is left to
    the next call, and to `missing_partitions`.

    Returns:
        The executed statements.

    Raises:
        FatalError, TransientError: the catalog cannot be read, or the connection is gone.
    """
    done = []
    try:
        for name, addable, _ in _missing(connection, plan):
            if not addable:
                continue
            locked = locked_tables(connection, addable)
            free = sorted(addable.keys() - locked)
            for first in range(0, len(free), _AT_ONCE):
                some = {oid: addable[oid] for oid in free[first : first + _AT_ONCE]}
                statement = add_tables(name, some)
                try:
                    with connection.transaction():
                        connection.execute(LOCK_TIMEOUT)
                        connection.execute(statement)
                except psycopg.Error:  # a lock or a right since then: `missing_partitions` has it
                    if connection.closed:
                        raise
                else:
                    done.append(statement)
        return shown(connection, done)
    except psycopg.Error as error:
        raise _classified(error) from None


def missing_partitions(connection: _Connection, plan: Plan) -> MissingPartitions:
    """Return what is left of the partitions that `plan` wants as members.

    Raises:
        FatalError, TransientError: the catalog cannot be read.
    """
    try:
        missing = list(_missing(connection, plan))
        return MissingPartitions(
            tuple(shown(connection, (add_tables(n, mine) for n, mine, _ in missing if mine))),
            tuple(shown(connection, (add_tables(n, rest) for n, _, rest in missing if rest))),
        )
    except psycopg.Error as error:
        raise _classified(error) from None


def _missing(connection: _Connection, plan: Plan) -> Iterator[tuple[str, _Tables, _Tables]]:
    """Yield each publication, the partitions that the role may add, and the others."""
    wanted = {p.name: p for p in plan.server_publications if p.detachable_oids}
    if not wanted:
        return
    existing = read_existing(connection, list(wanted))
    for name, publication in wanted.items():
        members = existing[name].table_oids if name in existing else frozenset()
        tables = table_names(connection, set(publication.detachable_oids) - members)
        if not tables:
            continue
        rights = own_publications(connection, [name], tables)
        may = name not in rights.unowned if name in existing else rights.may_create
        foreign = rights.foreign if may and not _reads_only(connection) else tables.keys()
        yield (
            name,
            {oid: table for oid, table in tables.items() if oid not in foreign},
            {oid: table for oid, table in tables.items() if oid in foreign},
        )


def _reads_only(connection: _Connection) -> bool:
    names = ("in_hot_standby", "default_transaction_read_only")
    return any(connection.info.parameter_status(name) == "on" for name in names)


def _classified(error: psycopg.Error) -> Exception:
    text = error.diag.message_primary or str(error)
    doing = "adding partitions to the gateway's publications"
    return classify_server_error(error.sqlstate, text, doing=doing)
