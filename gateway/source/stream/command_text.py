"""Text of the walsender commands about a slot. Pure.

Source: PostgreSQL manual, "Streaming Replication Protocol"; repl_gram.y.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from gateway.core.errors import ConfigError
from gateway.core.lsn import Lsn, format_lsn

__all__ = ["OUTPUT_PLUGIN", "create_slot_command", "drop_slot_command", "start_command"]

OUTPUT_PLUGIN: Final = "pgoutput"

_SLOT_NAME: Final = re.compile(r"\A[a-z0-9_]{1,63}\Z")


def create_slot_command(
    name: str, *, two_phase: bool, can_fail_over: bool, server_version: int
) -> str:
    """Return the command that creates a logical slot for pgoutput.

    Args:
        name: Name of the slot, unquoted.
        two_phase: Decode prepared transactions at PREPARE.
        can_fail_over: Whether the server has slots that standbys synchronise.
        server_version: As libpq gives it: 160004 is 16.4.

    Raises:
        ConfigError: not a slot name, or `two_phase` on a server that does not have it.
    """
    _check_name(name)
    if two_phase and server_version < 150000:
        raise ConfigError("two_phase needs PostgreSQL 15 or later on the source")
    options = ["SNAPSHOT 'nothing'"]
    if two_phase:
        options.append("TWO_PHASE true")
    if can_fail_over:
        options.append("FAILOVER true")
    listed = f" ({', '.join(options)})"
    if server_version < 150000:
        listed = " NOEXPORT_SNAPSHOT"
    return f'CREATE_REPLICATION_SLOT "{name}" LOGICAL {OUTPUT_PLUGIN}{listed}'


def drop_slot_command(name: str, *, wait: bool) -> str:
    """Return the command that drops a slot; with `wait`, once no process uses it.

    Raises:
        ConfigError: not a slot name.
    """
    _check_name(name)
    return f'DROP_REPLICATION_SLOT "{name}"{" WAIT" if wait else ""}'


def start_command(
    slot: str,
    publications: Sequence[str],
    start_lsn: Lsn,
    *,
    version: int,
    streaming: Literal["off", "on", "parallel"],
    messages: bool,
    binary: bool,
    origin: Literal["any", "none"] | None,
    two_phase: bool,
) -> str:
    """Return the command that starts the stream; see `ReplicationConnection.start`.

    Raises:
        ConfigError: not a slot name.
    """
    _check_name(slot)
    options = {
        "proto_version": str(version),
        "publication_names": ",".join(_quote_identifier(name) for name in publications),
    }
    if streaming != "off":
        options["streaming"] = streaming
    if messages:
        options["messages"] = "true"
    if binary:
        options["binary"] = "true"
    if origin is not None:
        options["origin"] = origin
    if two_phase:
        options["two_phase"] = "on"
    listed = ", ".join(f"{name} {_quote_literal(value)}" for name, value in options.items())
    return f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(start_lsn)} ({listed})'


def _check_name(name: str) -> None:
    if _SLOT_NAME.match(name) is None:
        raise ConfigError(
            f"{name!r} is not a name for a replication slot",
            key="source.slot",
            hint="1 to 63 characters: lower-case letters, digits and the underscore",
        )


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quote_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
