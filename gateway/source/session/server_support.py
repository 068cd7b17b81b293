"""Check that a server is supported: its version, wal_level and the role's right. Pure."""

from __future__ import annotations

from typing import Final

from gateway.core.errors import AccessError, FatalError
from gateway.core.identifiers import one_line, quote_identifier
from gateway.source.session.connection import ServerFacts

__all__ = ["NEWEST_TESTED", "may_not_replicate", "unsupported", "untested", "without_logical_wal"]

NEWEST_TESTED: Final = 18


def unsupported(facts: ServerFacts, *, allow_untested: bool) -> list[FatalError]:
    """Return why the gateway cannot read a server, or does not because it is untested."""
    problems = (None if allow_untested else untested(facts), without_logical_wal(facts))
    return [problem for problem in problems if problem is not None]


def untested(facts: ServerFacts) -> FatalError | None:
    """Return why the server is not to be used, if it is newer than what has been tested."""
    major = facts.version_num // 10000
    if major <= NEWEST_TESTED:
        return None
    return FatalError(
        f"the source server is PostgreSQL {major}; this release is tested up to {NEWEST_TESTED}",
        hint="use a newer release of pgsluice; source.allow_untested = true tries it all the same: "
        "the meaning of publications may have changed",
    )


def without_logical_wal(facts: ServerFacts) -> FatalError | None:
    """Return why changes cannot be decoded from the server's WAL, if they cannot.

    Since PostgreSQL 19 the first logical slot raises the level by itself, from ``replica`` on.

    Source: "effective_wal_level" in the manual of PostgreSQL 19.
    """
    enough = {"logical"} if facts.effective_wal_level is None else {"logical", "replica"}
    if facts.wal_level in enough or facts.effective_wal_level == "logical":
        return None
    return FatalError(
        f"the source server has wal_level = {facts.wal_level}",
        hint=f"set wal_level = {'replica' if 'replica' in enough else 'logical'} in "
        "postgresql.conf and restart the server",
    )


def may_not_replicate(facts: ServerFacts) -> AccessError | None:
    """Return why the session's role cannot start a replication connection, if it cannot."""
    if facts.can_replicate:
        return None
    return AccessError(
        f"role {facts.user} may not replicate",
        hint=one_line(f"ALTER ROLE {quote_identifier(facts.user)} REPLICATION;")
        + " or, on Amazon RDS, GRANT rds_replication to it",
    )
