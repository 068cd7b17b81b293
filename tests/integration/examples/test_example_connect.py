"""Debezium's JDBC sink on the gateway's topics makes what a native subscription makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict

from devkit.embedded.registry import API_PATH
from tests.support.backends.connect import EXAMPLES, start_connect
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import TIMEOUT_S, NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.java]

TABLES = """
CREATE TABLE orders (
  id int PRIMARY KEY, customer text, large text, price numeric(10, 2), free numeric, paid boolean,
  small smallint, big bigint, ratio real, weight float8, token uuid, body jsonb, tags text[],
  raw bytea, day date, clock time, period interval, made timestamp, seen timestamptz
);
CREATE TABLE lines (a int, b varchar(9), amount int, PRIMARY KEY (a, b));
"""
PUBLICATION = "CREATE PUBLICATION p FOR TABLE orders WHERE (id > 5), lines WHERE (a < 4);"
# FULL: an UPDATE then has the large values that it does not touch.
SOURCE = f"""{TABLES}
ALTER TABLE orders REPLICA IDENTITY FULL;
ALTER TABLE orders ALTER COLUMN large SET STORAGE EXTERNAL;
{PUBLICATION}
INSERT INTO orders SELECT
  n, 'c' || n, repeat('x', 9000), n * 1.25, n * 1.000000001, n % 2 = 0,
  -n, n * 10000000000, n / 7.0, n / 3.0, gen_random_uuid(), jsonb_build_object('n', n),
  ARRAY['a,b', NULL, n::text], '\\x00ff', '2024-02-28'::date + n, '12:34:56.789012',
  make_interval(months => n, secs => 0.25), '2024-01-01 12:34:56.789012',
  '1815-12-10 23:59:59.999999+02'
FROM generate_series(1, 20) n;
INSERT INTO lines SELECT n % 5, n::text, n FROM generate_series(1, 30) n;
"""
CHANGES = (
    "UPDATE orders SET customer = NULL, paid = NULL, seen = 'infinity' WHERE id = 7",
    "UPDATE orders SET id = 100 WHERE id = 8",
    "UPDATE orders SET id = 1000 WHERE id = 3",  # enters the filter
    "UPDATE orders SET id = -9 WHERE id = 9",  # leaves it
    "DELETE FROM orders WHERE id = 10",
    "INSERT INTO orders (id, free, made) VALUES (2000, 'NaN', '-infinity'), (4, 1, NULL)"
    " ON CONFLICT DO NOTHING",
    "BEGIN; TRUNCATE lines; INSERT INTO lines VALUES (1, 'x', 1), (2, 'y', 2), (4, 'z', 3);"
    "UPDATE lines SET b = 'X', amount = 0 WHERE a = 1; COMMIT",
)


def rows_of(database: Database, table: str) -> list[str]:
    """The rows of a table as PostgreSQL prints them."""
    with database.connect() as connection:
        query = f"SELECT t::text FROM {table} t ORDER BY 1"
        return [row for (row,) in connection.execute(query.encode())]


def stored(kafka: str) -> dict[str, int]:
    """Up to which offset the sink has stored each topic."""
    group = ConsumerGroupTopicPartitions("connect-pgsluice-jdbc-sink")
    admin = AdminClient({"bootstrap.servers": kafka})
    (answer,) = admin.list_consumer_group_offsets([group]).values()
    return {at.topic: at.offset for at in answer.result().topic_partitions}


def test_debezium_s_jdbc_sink_makes_the_native_subscriptions_tables(
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    tmp_path: Path,
) -> None:
    target = make_database("sink")
    address = conninfo_to_dict(target.dsn)
    role = f"{target.name}_writer"
    with target.connect() as connection:
        # A password that the driver accepts: it refuses those with few iterations.
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'of a role of its own'".encode())
        connection.execute(TABLES.encode())
        connection.execute((EXAMPLES / "timestamps.sql").read_bytes())
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
    with database.connect() as connection:
        connection.execute(SOURCE.encode())
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(f"{PUBLICATION} CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;")
        s.run_to("0/1")
        topics = {table: s.topic(table) for table in ("orders", "lines")}
        connect = start_connect(
            tmp_path,
            {
                "BOOTSTRAP_SERVERS": kafka,
                "REGISTRY": registry.replace(API_PATH, "/apis/registry/v2"),
                "TOPICS": ",".join(topics.values()),
                "JDBC_URL": f"jdbc:postgresql://{address['host']}:{address['port']}/{target.name}",
                "JDBC_USER": role,
                "JDBC_PASSWORD": "of a role of its own",
            },
        )

        def equal() -> bool:
            assert connect.returncode() is None, connect.log_tail()
            # A task that has failed is not started again, and the worker lives on.
            assert "Task is being killed" not in connect.log.read_text(), connect.log_tail(120)
            return all(
                rows_of(target, table) == rows_of(native.database, table) for table in topics
            )

        try:
            wait_until(equal, TIMEOUT_S, "the sink to have the copied rows")
            assert [len(rows_of(target, table)) for table in topics] == [15, 24]
            for statement in CHANGES:
                connection.execute(statement.encode())
            end = current_lsn(connection)
            s.run_to(end)
            native.wait_until_applied(end)
            # Everything is read: nothing is to come that would change the tables again. The last
            # offset is that of the mark of a committed transaction.
            ends = {topic: s.uncommitted_end(table) - 1 for table, topic in topics.items()}
            wait_until(lambda: stored(kafka) | ends == stored(kafka), TIMEOUT_S, "the sink to end")
            assert equal()
        finally:
            connect.stop()
    with target.connect() as connection:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
