"""What `verify` asks of the source: chunks, and no transaction that is longer than one."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.commands.verify.source import SourceReader, SourceTable
from gateway.source.catalog.tables import read_tables
from tests.support.backends.servers import Connection, Database

pytestmark = pytest.mark.postgres

ROWS, CHUNK = 1000, 100


def began(connection: Connection) -> str | None:
    """When the reader's transaction began; None when it has none."""
    row = connection.execute(
        "SELECT xact_start::text FROM pg_stat_activity"
        " WHERE application_name = 'pgsluice verify' AND datname = current_database()"
    ).fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])


def test_a_table_is_read_in_transactions_of_a_chunk_each(database: Database) -> None:
    with database.connect() as watching, SourceReader(database.dsn, CHUNK) as reader:
        watching.execute(
            "CREATE TABLE t (a text, b int, PRIMARY KEY (b, a));"
            "INSERT INTO t SELECT CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, n / 2"
            f" FROM generate_series(0, {ROWS - 1}) AS n"
        )
        row = watching.execute("SELECT 't'::regclass::oid").fetchone()
        assert row is not None
        table = read_tables(watching, [row[0]])[row[0]]
        seen: list[tuple[str, ...]] = []
        transactions: Counter[str | None] = Counter()

        for values in reader.rows(SourceTable(table, (), ("a", "b"), ("a", "b"))):
            seen.append(tuple(value.decode() for value in values if value is not None))
            transactions[began(watching)] += 1
            if len(seen) == ROWS // 2:
                # Nothing holds on to what a later chunk has.
                watching.execute(f"DELETE FROM t WHERE b = {ROWS // 2 - 1}")

        assert seen == [(side, str(n)) for n in range(ROWS // 2 - 1) for side in ("even", "odd")]
        assert list(transactions.values()) == [CHUNK] * (ROWS // CHUNK - 1) + [CHUNK - 2]
        assert None not in transactions
        assert began(watching) is None
