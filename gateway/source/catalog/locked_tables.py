"""Tables whose filters cannot be read, because other sessions have locked them.

The server prints a filter, and tries one out, under a lock on its table. Any role can lock a table
that it owns, for as long as it likes: the table is held then, and all others go on.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from gateway.core.errors import DefinitionError
from gateway.source.session.blockers import lock_holders

__all__ = ["NEXT_LOCK_TIMEOUT", "TableLockedError", "locked"]

NEXT_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '100ms'"
"""Statement after one wait: an owner of many tables could make the gateway wait for each."""


class TableLockedError(DefinitionError):
    """A filter cannot be read, because another session has locked a table.

    Attributes:
        table_oid: OID of that table.
    """

    def __init__(self, message: str, table_oid: int) -> None:
        super().__init__(message, hint="let that session end, or end it")
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
