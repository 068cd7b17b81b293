"""Tables whose filters cannot be read, because other sessions have locked them.

The server prints a filter, and tries one out, under a lock on its table. Any role can lock a table
that it owns, for as long as it likes: the table is held then, and all others go on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import psycopg

from gateway.core.errors import DefinitionError
from gateway.source.session.blockers import lock_holders

__all__ = [
    "NEXT_LOCK_TIMEOUT",
    "REMEMBERED_LOCK_TIMEOUT",
    "RememberedFilters",
    "TableLockedError",
    "locked",
]

NEXT_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '100ms'"
"""Statement after one wait: an owner of many tables could make the gateway wait for each."""

REMEMBERED_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '10ms'"
"""Statement before a filter that is remembered: the stream waits while the catalog is read."""
_MOST_REMEMBERED: Final = 10_000


class RememberedFilters(dict[Hashable, str]):
    """Last renderings of filters, for tables that somebody has locked since then.

    A key has everything that decides on the rendering. Rights are not in it.
    """

    def remember(self, key: Hashable, rendering: str) -> None:
        """Remember a rendering; when there are too many, all others are forgotten."""
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        self[key] = rendering


class TableLockedError(DefinitionError):
    """A filter cannot be read, because another session has locked a table.

    Attributes:
        table_oid: OID of that table.
    """

    def __init__(self, message: str, table_oid: int) -> None:
        super().__init__(message, hint="let that session end, or end it", cause="lock")
        self.table_oid = table_oid


def locked(connection: psycopg.Connection[Any], oid: int, name: str) -> TableLockedError:
    """Return the error for a table on which a lock could not be had in time.

    Args:
        connection: In a transaction; from now on it waits less for other locks.
        oid: OID of the table.
        name: Its name.
    """
    connection.execute(NEXT_LOCK_TIMEOUT)
    holders = lock_holders(connection, [oid], vacuum=False)
    return TableLockedError(
        f"the row filter on {name} cannot be read: a lock on it is held by "
        f"{holders or 'another session'}",
        oid,
    )
