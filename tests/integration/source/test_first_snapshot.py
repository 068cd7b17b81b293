"""The snapshot before which nothing is read."""

from __future__ import annotations

from threading import Event

import psycopg
import pytest

from gateway.core.errors import AccessError
from gateway.runtime.copy.first_snapshot import FirstSnapshot
from gateway.source.copy.chunk_reader import ChunkReader
from tests.support.backends.servers import Database

pytestmark = pytest.mark.postgres


def test_a_role_that_gets_no_transaction_id_is_named_rather_than_given_too_early_a_snapshot(
    database: Database,
) -> None:
    role = f"reader_{database.name}"
    function = "FUNCTION pg_current_xact_id()"
    dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
    with database.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            with ChunkReader(dsn) as reader:
                FirstSnapshot("waiting", Event()).wait(reader, lambda snapshot: None)
            connection.execute(f"REVOKE EXECUTE ON {function} FROM PUBLIC".encode())
            with (
                ChunkReader(dsn) as reader,
                pytest.raises(AccessError, match="denied for function pg_current_xact_id"),
            ):
                FirstSnapshot("waiting", Event()).wait(reader, lambda snapshot: None)
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
