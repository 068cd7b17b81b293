"""Errors of a table's copy, and of a condition on its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import psycopg

from gateway.core.errors import FatalError, GatewayError, TransientError
from gateway.definitions.model import Table
from gateway.source.session.server_errors import classify_server_error, is_text_too_long

__all__ = [
    "ConditionError",
    "TableChanged",
    "TableGone",
    "TableLocked",
    "TableUnreadable",
    "check_shape",
    "copy_error",
]

# Errors of a condition: data exceptions, and errors in its text.
_OF_CONDITIONS: Final = ("22", "42", "38", "39", "P0", "54")

# In `check_enable_rls` of PostgreSQL; the table's name, which its owner has chosen, follows.
_BY_ROW_SECURITY: Final = "query would be affected by row-level security"
_TABLE_FILE: Final = re.compile(r"\b(?:base|global|pg_tblspc)/\d", re.ASCII)
# Errors that only the files of one table, or the plan of its query, can cause while it is read.
_OF_TABLES: Final = {
    "53400": "raise the limit for the role of source.dsn (temp_file_limit), then `pgsluice resume`",
    "58030": "a file of the table cannot be read: repair it, then `pgsluice resume`",
    "58P01": "a file of the table is not there: restore it, then `pgsluice resume`",
}


class TableChanged(TransientError):
    """The table is no longer as the plan has it: a new plan is needed."""


class TableLocked(TransientError):
    """Another session has locked the table for longer than a read waits; the connection is good."""


class ConditionError(TransientError):
    """The condition that narrows what is read cannot be evaluated."""


class TableUnreadable(FatalError):
    """The table cannot be read, for a reason of its own: this role may not, or its data is damaged.

    It is held; the other tables go on.
    """


class TableGone(TableChanged):
    """The table was dropped: it does not come back, and the rest is published without it."""


def check_shape(table: Table, shape: Sequence[str]) -> None:
    """Refuse a table whose columns are not those of the plan.

    Args:
        table: The table in the plan.
        shape: Number, type, modifier and name of each present column; empty if it was dropped.

    Raises:
        TableGone: see there.
        TableChanged: see there.
    """
    if not shape:
        raise TableGone(
            f"copying {table}: it is not there any more",
            hint="define it again, or leave it out, and reload",
        )
    known = [f"{c.attnum},{c.type_oid},{c.type_modifier},{c.name}" for c in table.columns]
    if list(shape) != known:
        raise TableChanged(f"copying {table}: its columns are not those of the plan any more")


def copy_error(
    error: psycopg.Error, table: Table, *, conditions: bool, masked: bool = False
) -> GatewayError:
    """Convert an error of the server while a table is read.

    Args:
        error: As psycopg raised it.
        table: The table that is read.
        conditions: Whether the read has conditions on its rows.
        masked: Whether the table has masked columns, whose values the server's text may quote.
    """
    doing = f"copying {table}"
    text = error.diag.message_primary or str(error)
    if error.sqlstate == "42501" and text.startswith(_BY_ROW_SECURITY):
        return TableUnreadable(
            f"{doing}: row security hides rows of it from this role",
            hint="ALTER ROLE ... BYPASSRLS for the role of source.dsn; the stream of changes "
            "is not subject to row security either",
            cause="bypass_rls",
        )
    shown = f"SQLSTATE {error.sqlstate}" if masked and error.sqlstate else text
    if error.sqlstate == "55000" and "restricted" in text:
        if table.kind == "p" and "foreign" in text:
            return TableUnreadable(
                f"{doing}: one of its partitions is a foreign table, which is not read: {shown}",
                hint="publish its other partitions, or detach that one",
                cause="foreign_partition",
            )
        return TableChanged(f"{doing}: it is no table any more: {shown}")
    altered = f"{doing}: it was altered since the definitions were read: {shown}"
    if error.sqlstate in ("42P01", "3F000"):
        # Not `TableGone`: the name may be back before anybody has looked at the catalog.
        return TableChanged(altered)
    too_long = is_text_too_long(
        error.sqlstate, detail=error.diag.message_detail, hint=error.diag.message_hint
    )
    if conditions and (too_long or (error.sqlstate or "").startswith(_OF_CONDITIONS)):
        return ConditionError(f"{doing}: the condition on its rows fails: {shown}")
    if error.sqlstate == "42703":
        return TableChanged(altered)
    is_other_file = error.sqlstate == "58P01" and not _TABLE_FILE.search(text)
    if error.sqlstate in _OF_TABLES and not is_other_file:
        # Elsewhere they are transient, or concern the WAL.
        return TableUnreadable(
            f"{doing}: {shown} (SQLSTATE {error.sqlstate})", hint=_OF_TABLES[error.sqlstate]
        )
    found = classify_server_error(error.sqlstate, shown, doing=doing)
    if error.sqlstate == "55P03":
        return TableLocked(found.message, hint=found.hint)
    if isinstance(found, FatalError):
        return TableUnreadable(found.message, hint=found.hint, cause=found.cause)
    return found
