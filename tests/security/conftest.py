"""The scene of the security tests, and a role that may log in and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection, scene

__all__ = ["scene"]


@dataclass(frozen=True)
class Attacker:
    """A role of one test's own."""

    name: str
    dsn: str

    def connect(self) -> Connection:
        """A new autocommit connection as this role."""
        return psycopg.connect(self.dsn, autocommit=True)


@pytest.fixture
def attacker(database: Database) -> Iterator[Attacker]:
    """A role with LOGIN and nothing else."""
    name = f"mallory_{database.name}"
    role = sql.Identifier(name)
    with database.connect() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        try:
            yield Attacker(name, make_conninfo(database.dsn, user=name))
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))
