"""Errors of a walsender that end a command or a stream, with hints."""

from __future__ import annotations

from typing import Final

from psycopg import pq
from psycopg.pq import abc

from gateway.core.errors import FatalError, GatewayError, SlotBusyError, SlotError
from gateway.source.session.server_errors import classify_server_error

__all__ = ["classify_result", "missing_publication", "primary_message"]

_PUBLICATION_FUNCTIONS: Final = (b"get_publication_oid", b"GetPublicationByName")
_SLOT_FUNCTIONS: Final = (
    b"ReplicationSlotAcquire",
    b"ReplicationSlotCreate",
    b"ReplicationSlotDrop",
    b"CreateDecodingContext",
    b"StartLogicalReplication",
)
_LEVEL_FUNCTIONS: Final = (b"CheckLogicalDecodingRequirements", b"CheckSlotRequirements")
_SLOT_HINTS: Final = {
    "42704": "nothing confirms what was not sent: if there is a watermark, drop it and repeat the "
    "initial copy",
    "42710": "another gateway has made it meanwhile: this one stands by",
    "55000": "drop the slot with 'pgsluice slot drop' and repeat the initial copy; raise "
    "max_slot_wal_keep_size or idle_replication_slot_timeout so that it lasts",
}


def classify_result(result: abc.PGresult, *, doing: str) -> GatewayError:
    """Convert an error result into an error, by SQLSTATE and by the server function that raised it.

    The functions' names are the same whatever language the server's messages are in.
    """
    raw = result.error_field(pq.DiagnosticField.SQLSTATE)
    sqlstate = None if raw is None else raw.decode()
    text = primary_message(result)
    place = result.error_field(pq.DiagnosticField.SOURCE_FUNCTION) or b""
    if place in _PUBLICATION_FUNCTIONS and sqlstate == "42704":
        return missing_publication(text)
    if place in _SLOT_FUNCTIONS and sqlstate in ("42704", "42710", "55000"):
        detail = result.error_field(pq.DiagnosticField.MESSAGE_DETAIL) or b""
        shown = f"{text} {detail.decode(errors='replace')}".rstrip()
        if sqlstate == "42710":
            return SlotBusyError(f"{doing}: {shown}", hint=_SLOT_HINTS[sqlstate])
        return SlotError(f"{doing}: {shown}", hint=_SLOT_HINTS[sqlstate])
    if sqlstate == "55000" and place in _LEVEL_FUNCTIONS:
        return FatalError(
            f"{doing}: {text}",
            hint="set wal_level = logical in postgresql.conf and restart the server",
        )
    return classify_server_error(sqlstate, text, doing=doing)


def missing_publication(text: str) -> FatalError:
    """Return the error for missing changes, because the server did not find a publication."""
    return FatalError(
        f"the server decodes without a publication: {text}",
        hint="somebody dropped a publication of the gateway's, or it is younger than the slot's "
        "position: changes are missing from the stream; drop the slot and repeat the initial copy",
    )


def primary_message(result: abc.PGresult) -> str:
    """Return the primary message of an error or notice, on one line."""
    text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return "no message" if text is None else " ".join(text.decode(errors="replace").split())
