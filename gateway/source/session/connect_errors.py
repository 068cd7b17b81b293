"""Classification of connection errors: refused by the server, or transient.

Only an answer of the server itself is a refusal. libpq has no SQLSTATE for a failed connection, and
the server's text may be in any language; when the server has answered, it is therefore asked again
with libpq's trace on, which has the SQLSTATE. Unknown failures count as transient. ``PQping`` is no
substitute: a server that is back by then would look as if it had refused.

Source: pqBuildErrorMessage3 in fe-protocol3.c; PQtrace; PostgreSQL manual, "PostgreSQL Error
Codes".
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg import conninfo, pq
from psycopg.pq import abc

from gateway.core.descriptors import wait_for_socket
from gateway.core.dsn import Dsn
from gateway.core.errors import AccessError, FatalError, GatewayError, TransientError

__all__ = ["classify_connect_failure", "explain_connect_failure"]

_SERVER_SPOKE: Final = re.compile(r"failed: [^:\n]{1,40}:  \S")
"""The severity of an error response, in the server's language, colon and two blanks."""

_REFUSING: Final = frozenset({"0A", "22", "28", "3D", "42"})
"""SQLSTATE classes: not supported, data, authorisation, database, rights and names."""

_HINTS: Final[Mapping[str, str]] = {
    "28P01": "check the user and password of source.dsn (PGPASSWORD and ~/.pgpass work, too)",
    "28000": "the role must exist and be allowed to log in, and the server's pg_hba.conf must let "
    "it connect from this host to this database",
    "3D000": "source.dsn must name the database that has the tables",
    "42501": "ALTER ROLE ... REPLICATION for the role of source.dsn, and GRANT CONNECT ON DATABASE "
    "... to it",
}
_PRINTED_HINT: Final = (
    "the password comes from the password command: check that it is for this user, host and port, "
    "and that the role may log in with it (docs/managed-services.md)"
)
_FULL: Final = "53300"

# Failures that libpq detects by itself, without the network. Its own texts are not translated here.
_OWN_FINDINGS: Final = (
    (
        re.compile(r"fe_sendauth: no password supplied"),
        AccessError,
        "give a password in source.dsn, PGPASSWORD or ~/.pgpass",
    ),
    (
        re.compile(
            r"certificate verify failed|server certificate for|root certificate file"
            r"|certificate file .* does not exist|private key file"
            r"|server does not support SSL"
        ),
        AccessError,
        "check sslmode, sslrootcert and the server's certificate",
    ),
    (re.compile(r"invalid (\S+ value|port number)"), FatalError, "correct source.dsn"),
)
_ERROR_RESPONSE: Final = re.compile(rb'\tErrorResponse\t.* C "([0-9A-Z]{5})"')


def classify_connect_failure(complete: str, text: str) -> GatewayError:
    """Convert a failure to connect into an error, after asking once more if necessary.

    Args:
        complete: Connection string that was used.
        text: Message of libpq.
    """
    sqlstate = _ask_for_sqlstate(complete) if _SERVER_SPOKE.search(text) else None
    error = explain_connect_failure(_without_secrets(complete, text), sqlstate)
    if Dsn.command_of(complete) is not None and sqlstate is not None and sqlstate[:2] == "28":
        error.hint = _PRINTED_HINT
    return error


def explain_connect_failure(message: str, sqlstate: str | None) -> GatewayError:
    """Decide by the server's SQLSTATE, None without an answer, or by libpq's own findings."""
    if sqlstate == _FULL:
        return TransientError(
            f"the source server has no free connection: {message}",
            hint="raise max_connections or max_wal_senders, or close what is not needed",
        )
    if sqlstate is not None and sqlstate[:2] in _REFUSING:
        withdrawn = sqlstate == "42501" or sqlstate.startswith("28")
        refusal = AccessError if withdrawn else FatalError
        return refusal(
            f"the source server refuses the connection: {message} (SQLSTATE {sqlstate})",
            hint=_HINTS.get(sqlstate, "try the same DSN with psql on this machine"),
        )
    for pattern, kind, hint in _OWN_FINDINGS:
        if pattern.search(message):
            return kind(f"no connection to the source server: {message}", hint=hint)
    return TransientError(
        f"the source server cannot be reached: {message}",
        hint="start it, or correct host and port in source.dsn",
    )


def _ask_for_sqlstate(complete: str) -> str | None:
    """Connect once more; return the SQLSTATE with which the server refuses.

    None if it no longer refuses, did not answer, or if there is no trace on this platform.
    """
    if sys.platform != "linux":
        return None
    conn = pq.PGconn.connect_start(complete.encode())
    # In memory, because a trace has the password, too. libpq buffers until `untrace` and never
    # closes the descriptor.
    trace = os.memfd_create("libpq trace")
    try:
        conn.trace(trace)
        _poll(conn, _timeout_s(complete))
        conn.untrace()
        found = _ERROR_RESPONSE.findall(os.pread(trace, os.fstat(trace).st_size, 0))
    except psycopg.Error:
        return None
    finally:
        conn.finish()
        os.close(trace)
    return found[-1].decode() if found else None


def _poll(conn: abc.PGconn, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while conn.status != pq.ConnStatus.BAD and time.monotonic() < deadline:
        status = conn.connect_poll()
        if status not in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
            return
        reads = status == pq.PollingStatus.READING
        left = max(0.0, deadline - time.monotonic())
        wait_for_socket(conn.socket, left, read=reads, write=not reads)


def _timeout_s(complete: str) -> float:
    return float(conninfo.conninfo_to_dict(complete).get("connect_timeout") or 10)


def _without_secrets(complete: str, text: str) -> str:
    message = " ".join(text.split())
    for name, value in conninfo.conninfo_to_dict(complete).items():
        if name in ("password", "sslpassword", "passfile", "options") and value:
            message = message.replace(str(value), "***")
    return message
