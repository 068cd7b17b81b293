"""Connections to the source database: their settings and timeouts, and facts of the server.

Every session has the same settings (`SESSION_SETTINGS`), so that a row reads the same whether it
came from the copy or from the stream, also a value that is printed by the search_path (`regclass`).
The settings are given with the start-up packet: they take precedence over ALTER ROLE and ALTER
DATABASE ... SET.

No session runs code of other roles: names are looked up in ``pg_catalog`` alone, a relation that
has become a view is not read (`gateway.source.copy.relation_guard`), and row security is an error
instead of a policy that runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import psycopg
from psycopg import conninfo

from gateway.core.background import OnWait, keep_waiting
from gateway.core.dsn import Dsn
from gateway.core.errors import ConfigError, FatalError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.source.session.server_errors import classify_server_error
from gateway.source.session.session import Session, open_session, restrict

__all__ = [
    "MAY_REPLICATE",
    "SEARCH_PATH",
    "SESSION_SETTINGS",
    "ServerFacts",
    "connect",
    "connection_string",
    "replication_settings",
    "server_facts",
    "wal_flush_lsn",
]

SEARCH_PATH: Final = "pg_catalog,pg_temp"
"""With ``pg_temp`` named, it is searched last; otherwise it would be first."""

SESSION_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "extra_float_digits": "3",
        "bytea_output": "hex",
        "TimeZone": "UTC",
        "search_path": SEARCH_PATH,
        "row_security": "off",
    }
)
"""Settings that the text format of values depends on, besides the encoding (always UTF8); which
names are found; and that no policy of row security hides rows, or runs."""

_WITHOUT_TIMEOUTS: Final = {
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}

_GRACE_S: Final = 5.0

_CONNECTION_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "4",
    "tcp_user_timeout": "60000",
}
"""A network that is cut silently is noticed within a minute; values of the DSN take precedence."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Identity and version of the source server.

    Attributes:
        system_identifier: Decimal digits; the same for a primary and its standbys.
        timeline: Current timeline; on a standby that of its last restart point.
        version_num: ``server_version_num``, for example 160004.
        can_replicate: Whether the role may stream: by its attribute, or on Amazon RDS, where no
            role can have it, by membership of ``rds_replication``.
        effective_wal_level: None before PostgreSQL 19, which only has `wal_level`.
    """

    system_identifier: str
    database: str
    timeline: int
    version_num: int
    encoding: str
    wal_level: str
    in_recovery: bool
    max_replication_slots: int
    max_wal_senders: int
    max_slot_wal_keep_size: str
    user: str
    can_replicate: bool
    effective_wal_level: str | None = None


def connection_string(
    dsn: str,
    *,
    application_name: str,
    settings: Mapping[str, str] = SESSION_SETTINGS,
    replication: bool = False,
) -> str:
    """Return `dsn` with encoding, keepalives, time limits, and `settings` after its own options.

    Its password command is kept.

    Raises:
        ConfigError: `dsn` does not parse; the message has no part of it.
    """
    try:
        given = conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        raise ConfigError(
            "not a PostgreSQL connection string",
            key="source.dsn",
            hint="write postgresql://user@host:port/database, or host=... port=... dbname=...; "
            "percent-encode special characters in a URI",
        ) from None
    options = str(given.get("options") or os.environ.get("PGOPTIONS", ""))
    for name, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace(" ", "\\ ")
        options += f" -c {name}={escaped}"
    parameters: dict[str, str | int] = {
        **_CONNECTION_DEFAULTS,
        "fallback_application_name": application_name,
        **{name: value for name, value in given.items() if value is not None},
        "options": options.strip(),
        "client_encoding": "UTF8",
    }
    if replication:
        parameters["replication"] = "database"
    return Dsn(conninfo.make_conninfo("", **parameters), Dsn.command_of(dsn))


def connect(
    dsn: str,
    *,
    application_name: str = "pgsluice",
    settings: Mapping[str, str] = SESSION_SETTINGS,
    statement_timeout_s: float = 60.0,
    lock_timeout_s: float = 10.0,
    on_wait: OnWait = keep_waiting,
) -> Session:
    """Open an autocommit connection for queries.

    The server ends a statement at `statement_timeout_s`, the gateway `_GRACE_S` later: no
    cancellation comes through a connection that is open but silent.

    Args:
        dsn: As the user gave it.
        application_name: Shown in pg_stat_activity unless the DSN has its own.
        settings: Session settings beside the timeouts, in addition to the DSN's options.
        statement_timeout_s: Timeout of statements; 0 for none, and a minute of silence.
        lock_timeout_s: Timeout of locks; 0 for none.
        on_wait: Called while connecting, and while waiting for answers.

    Raises:
        ConfigError: the DSN does not parse.
        TransientError: the server cannot be reached, is starting, or has no free connection.
        FatalError: the server refuses this user, password or database.
        BaseException: the exception of `on_wait`.
    """
    complete = connection_string(
        dsn,
        application_name=application_name,
        settings={
            **settings,
            **_WITHOUT_TIMEOUTS,
            "statement_timeout": str(int(statement_timeout_s * 1000)),
            "lock_timeout": str(int(lock_timeout_s * 1000)),
        },
    )
    session = open_session(complete, on_wait=on_wait)
    session.plain = connection_string(dsn, application_name=application_name, settings={})
    try:
        restrict(session)
    except psycopg.Error as error:
        session.close()
        raise classify_server_error(error.sqlstate, str(error), doing="connecting") from None
    if statement_timeout_s:
        session.silence_s = statement_timeout_s + _GRACE_S
    return session


def replication_settings() -> dict[str, str]:
    """Return the settings of a walsender's session: `SESSION_SETTINGS`, and no time limits."""
    return {
        **SESSION_SETTINGS,
        **_WITHOUT_TIMEOUTS,
        "statement_timeout": "0",
        "lock_timeout": "0",
    }


MAY_REPLICATE: Final = """
    (r.rolsuper OR r.rolreplication OR EXISTS (
        SELECT FROM pg_catalog.pg_roles AS rds WHERE rds.rolname = 'rds_replication'
        AND pg_catalog.pg_has_role(r.oid, rds.oid, 'MEMBER')))"""
"""Whether a role ``r`` of pg_roles may create slots; no role of Amazon RDS has the attribute."""
_FACTS: Final = f"""
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()),
       pg_catalog.current_database()::pg_catalog.text,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint())::pg_catalog.text
            ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(
                     pg_catalog.pg_current_wal_lsn()), 1, 8) END,
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('server_version_num')::int,
       pg_catalog.current_setting('server_encoding'),
       pg_catalog.current_setting('wal_level'),
       pg_catalog.current_setting('max_replication_slots')::int,
       pg_catalog.current_setting('max_wal_senders')::int,
       pg_catalog.current_setting('max_slot_wal_keep_size'),
       current_user::pg_catalog.text,
       (SELECT {MAY_REPLICATE} FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user),
       pg_catalog.current_setting('effective_wal_level', true)
"""  # noqa: S608


def server_facts(connection: psycopg.Connection) -> ServerFacts:
    """Return identity and version of the server.

    Raises:
        FatalError: older than 14, or not a UTF8 database.
        TransientError: the connection is gone.
    """
    if connection.info.server_version < 140000:
        raise FatalError(
            f"the source server is PostgreSQL {connection.info.server_version // 10000}",
            hint="pgsluice reads from PostgreSQL 14 and later",
        )
    try:
        row = connection.execute(_FACTS).fetchone()
    except psycopg.Error as error:
        raise classify_server_error(error.sqlstate, str(error), doing="reading facts") from None
    assert row is not None
    in_recovery = bool(row[3])
    facts = ServerFacts(
        system_identifier=str(int(row[0]) & 0xFFFFFFFFFFFFFFFF),
        database=row[1],
        timeline=int(row[2], 10 if in_recovery else 16),
        in_recovery=in_recovery,
        version_num=row[4],
        encoding=row[5],
        wal_level=row[6],
        max_replication_slots=row[7],
        max_wal_senders=row[8],
        max_slot_wal_keep_size=row[9],
        user=row[10],
        can_replicate=bool(row[11]),
        effective_wal_level=row[12],
    )
    if facts.encoding != "UTF8":
        raise FatalError(
            f"database {facts.database} has encoding {facts.encoding}, UTF8 is needed",
            hint="text in records is UTF-8, and conversion in the server can fail in the middle "
            "of the stream; move the data to a database made with ENCODING 'UTF8'",
        )
    return facts


def wal_flush_lsn(connection: psycopg.Connection) -> Lsn:
    """Return the end of the server's flushed WAL; on a standby, of its replayed WAL.

    A walsender sends nothing beyond it, and a crash of the server does not lose it.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        row = connection.execute(
            "SELECT CASE WHEN pg_catalog.pg_is_in_recovery()"
            " THEN pg_catalog.pg_last_wal_replay_lsn()"
            " ELSE pg_catalog.pg_current_wal_flush_lsn() END::pg_catalog.text"
        ).fetchone()
    except psycopg.Error as error:
        raise classify_server_error(error.sqlstate, str(error), doing="reading the LSN") from None
    assert row is not None
    return parse_lsn(row[0])
