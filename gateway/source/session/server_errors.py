"""Errors of the source server as errors of the gateway, by SQLSTATE.

Errors of COPY are in `gateway.source.copy.errors`, those of the replication connection in
`gateway.source.stream.errors`, and those of connecting in
`gateway.source.session.connect_errors`.

Source: PostgreSQL manual, "PostgreSQL Error Codes".
"""

from __future__ import annotations

import re
from typing import Any, Final

import psycopg

from gateway.core.errors import (
    AccessError,
    FatalError,
    GatewayError,
    SlotBusyError,
    SlotError,
    TransientError,
)

__all__ = ["classify_server_error", "is_text_too_long", "read_only"]

_PASSING: Final = frozenset({"08", "40", "53", "57"})
"""SQLSTATE classes of transient errors: connection, rollback, resources, operator intervention."""

_HINTS: Final = {
    "42501": "grant the role of source.dsn what it lacks (REPLICATION, SELECT on the tables, "
    "USAGE on their schemas)",
    "53400": "raise max_replication_slots (a restart of the server), or drop a slot not needed",
    "55006": "another process reads the slot: stop it, or wait until the server notices that it "
    "has gone (wal_sender_timeout)",
    "55P03": "another session holds a lock on the table",
}

# Names of files stay as they are in translated messages.
_WAL_SEGMENT: Final = re.compile(r"\b[0-9A-F]{24}\b", re.ASCII)
_LIBRARY: Final = re.compile(r"\$libdir/|\.(?:so|dylib|dll)\b")
_NO_LIBRARY: Final = (
    "the server lacks a library that an extension, a type or a function needs: install the "
    "extension's package again, or drop what uses it"
)
_NO_FILE: Final = "the server lacks a file that it needs; the server's log says more"


def classify_server_error(sqlstate: str | None, text: str, *, doing: str) -> GatewayError:
    """Convert an error of the server into one of the gateway, by its SQLSTATE.

    The text of a class 22 error (data exception) can quote a value and is not shown.

    Args:
        text: The server's primary message, or libpq's own.
        sqlstate: SQLSTATE of the error; None when the connection broke without one.
        doing: Activity of the gateway, for the message: "creating slot x".
    """
    message = " ".join(text.split())
    if sqlstate is None:
        return TransientError(f"connection to the source server lost while {doing}: {message}")
    if sqlstate.startswith("22"):
        return FatalError(
            f"the source server raised SQLSTATE {sqlstate} while {doing}",
            hint="a row makes an expression fail; the server's log has the details",
        )
    shown = f"{doing}: {message} (SQLSTATE {sqlstate})"
    hint = _HINTS.get(sqlstate)
    if sqlstate == "58P01":
        if _WAL_SEGMENT.search(message):
            return SlotError(shown, hint="the server has removed WAL that is still needed")
        return FatalError(shown, hint=_NO_LIBRARY if _LIBRARY.search(message) else _NO_FILE)
    if sqlstate == "55006":
        return SlotBusyError(shown, hint=hint)
    if sqlstate in ("55P03", "58030", "53400") or sqlstate[:2] in _PASSING:
        return TransientError(shown, hint=hint)
    if sqlstate == "42501":
        return AccessError(shown, hint=hint, cause="privilege")
    return FatalError(shown, hint=hint)


def is_text_too_long(sqlstate: str | None, *, detail: str | None, hint: str | None) -> bool:
    """Whether a function has refused a text for its length, with the SQLSTATE of "out of memory".

    A failed allocation has a detail and a full lock table a hint: these may pass.

    Source: str_tolower in formatting.c; MemoryContextAllocationFailure in mcxt.c; LockAcquire in
    lock.c.
    """
    return sqlstate == "53200" and not detail and not hint


def read_only(connection: psycopg.Connection[Any], failed: str, *, on_standby: str) -> FatalError:
    """Return the error for a failed operation of a session that may only read.

    Args:
        connection: Connection of that session.
        failed: Sentence without its reason.
        on_standby: Hint if the server is a standby.
    """
    if connection.info.parameter_status("in_hot_standby") == "on":
        return FatalError(f"{failed} on a standby", hint=on_standby)
    return FatalError(
        f"{failed}: transactions of this role only read (default_transaction_read_only is on)",
        hint="set it to off for the role of source.dsn: "
        "ALTER ROLE ... SET default_transaction_read_only = off",
    )
