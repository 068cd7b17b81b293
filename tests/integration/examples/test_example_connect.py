"""Debezium's JDBC sink on the gateway's topics makes what a native subscription makes.

The tables of the sink's database are those of the source, without a cast or anything else that
would help.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict

from devkit.embedded.registry import API_PATH
from gateway.source.provisioning.truncate_trigger import INSTALL, trigger_sql
from tests.support.backends.connect import start_connect
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
PUBLICATION = "CREATE PUBLICATION p FOR TABLE orders WHERE (id > 5), lines WHERE (a < 4)"
WORKLOADS = 20
# FULL: an UPDATE then has the large values that it does not touch.
SOURCE = f"""{TABLES}
ALTER TABLE orders REPLICA IDENTITY FULL;
ALTER TABLE orders ALTER COLUMN large SET STORAGE EXTERNAL;
{PUBLICATION};
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
    "INSERT INTO orders (id, free, seen) VALUES (2000, 'NaN', '-infinity'), (4, 1, NULL)"
    " ON CONFLICT DO NOTHING",
    "BEGIN; TRUNCATE lines; INSERT INTO lines VALUES (1, 'x', 1), (2, 'y', 2), (4, 'z', 3);"
    "UPDATE lines SET b = 'X', amount = 0 WHERE a = 1; COMMIT",
)


TRUNCATE = "BEGIN; TRUNCATE orders; INSERT INTO orders (id) VALUES (5000); COMMIT"
# Of a tombstone, which it drops, a sink that unwraps stores no offset.
LAST = "INSERT INTO orders (id) VALUES (9000)"


def at_random(seed: int, first: int) -> Iterator[str]:
    """Statements with values of every column, and changes of the key, at random.

    The keys begin with `first`, so that what each workload leaves is there in the end.
    """
    pick = random.Random(seed)
    for number in range(40):
        key, moved = first + pick.randint(0, 40), first + pick.randint(0, 40)
        day, micros = pick.randint(-900_000, 2_000_000), pick.randint(-(10**15), 10**16)
        values = {
            "customer": pick.choice(["NULL", "''", "'ä\\'", "repeat('y', 3000)"]),
            "large": pick.choice(["NULL", f"repeat('{number % 10}', 9000)"]),
            "price": pick.choice(["NULL", f"{pick.randint(-(10**9), 10**9)} / 100.0"]),
            "free": pick.choice(["NULL", "'Infinity'", f"{pick.random()}"]),
            "paid": pick.choice(["NULL", "true", "false"]),
            "small": f"{pick.randint(-32768, 32767)}",
            "big": f"{pick.randint(-(2**63), 2**63 - 1)}::bigint",
            "ratio": f"{pick.uniform(-1e30, 1e30)}",
            "weight": f"{pick.uniform(-1e300, 1e300)}",
            "token": pick.choice(["NULL", "gen_random_uuid()"]),
            "body": pick.choice(["NULL", f"""'{{"n": [{number}, null, "x"]}}'"""]),
            "tags": pick.choice(["NULL", "'{}'", "ARRAY['a b', NULL, '\"']"]),
            "raw": pick.choice(["NULL", "''", f"decode(md5('{number}'), 'hex')"]),
            "day": pick.choice(["NULL", f"date '2000-01-01' + {day // 10}"]),
            "clock": pick.choice(["NULL", f"time '00:00' + interval '{abs(micros)} us'"]),
            "period": pick.choice(["NULL", f"interval '{number} days {number} us'"]),
            "made": pick.choice(["NULL", f"timestamp '1970-01-01' + interval '{micros} us'"]),
            "seen": pick.choice(
                ["NULL", "'infinity'", f"timestamptz '1970-01-01Z' + interval '{micros} us'"]
            ),
        }
        changed = dict(pick.sample(sorted(values.items()), 6))
        match pick.randrange(6):
            case 0 | 1:
                names, given = ", ".join(values), ", ".join(values.values())
                yield (
                    f"INSERT INTO orders (id, {names}) VALUES ({key}, {given})"
                    " ON CONFLICT DO NOTHING"
                )
            case 2 | 3:
                sets = ", ".join(f"{name} = {value}" for name, value in changed.items())
                yield f"UPDATE orders SET {sets} WHERE id = {key}"
            case 4:
                free = f"NOT EXISTS (SELECT FROM orders WHERE id = {moved})"
                yield f"UPDATE orders SET id = {moved} WHERE id = {key} AND {free}"
            case _:
                yield f"DELETE FROM orders WHERE id = {key}"


def rows_of(database: Database, table: str) -> list[str]:
    """The rows of a table as PostgreSQL prints them."""
    with database.connect() as connection:
        query = f"SELECT t::text FROM {table} t ORDER BY 1"
        return [row for (row,) in connection.execute(query.encode())]


def stored(kafka: str, sink: str) -> dict[str, int]:
    """Up to which offset the sink has stored each topic."""
    group = ConsumerGroupTopicPartitions(f"connect-pgsluice-{sink}")
    admin = AdminClient({"bootstrap.servers": kafka})
    (answer,) = admin.list_consumer_group_offsets([group]).values()
    return {at.topic: at.offset for at in answer.result().topic_partitions}


@pytest.mark.parametrize("sink", ["jdbc-sink", "unwrapped-sink"])
def test_debezium_s_jdbc_sink_makes_the_native_subscriptions_tables(
    sink: str,
    seed: int,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    tmp_path: Path,
) -> None:
    truncates = sink == "jdbc-sink"  # the other takes them as deletes
    target = make_database("sink")
    address = conninfo_to_dict(target.dsn)
    role = f"{target.name}_writer"
    with target.connect() as connection:
        # A password that the driver accepts: it refuses those with few iterations.
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'of a role of its own'".encode())
        connection.execute(TABLES.encode())
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}".encode())
    with database.connect() as connection:
        connection.execute(SOURCE.encode())
        if not truncates:
            triggers = (trigger_sql(f"public.{table}") for table in ("orders", "lines"))
            connection.execute("".join([INSTALL, *triggers]).encode())
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(
            f"{PUBLICATION}; CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;",
            envelope={
                "format": "debezium",
                "without_truncates": [] if truncates else [f"gw_{database.name}"],
            },
        )
        s.run_to("0/1")
        topics = {table: s.topic(table) for table in ("orders", "lines")}
        connect = start_connect(
            tmp_path,
            sink,
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
            failures = ("Task is being killed", "Failed to start task")
            said = connect.log.read_text()
            assert not any(failure in said for failure in failures), connect.log_tail(120)
            return all(
                rows_of(target, table) == rows_of(native.database, table) for table in topics
            )

        try:
            wait_until(equal, TIMEOUT_S, "the sink to have the copied rows")
            assert [len(rows_of(target, table)) for table in topics] == [15, 24]
            workloads = (at_random(seed + n, 6_001 + 100 * n) for n in range(WORKLOADS))
            before, after = at_random(seed - 1, 1), chain.from_iterable(workloads)
            for statement in (*CHANGES, *before, TRUNCATE, *after, LAST):
                connection.execute(statement.encode())
            end = current_lsn(connection)
            s.run_to(end)
            native.wait_until_applied(end)
            # Everything is read: nothing is to come that would change the tables again. The last
            # offset is that of the mark of a committed transaction.
            ends = {topic: s.uncommitted_end(table) - 1 for table, topic in topics.items()}
            wait_until(
                lambda: stored(kafka, sink) | ends == stored(kafka, sink),
                TIMEOUT_S,
                "the sink to end",
            )
            assert equal()
        finally:
            connect.stop()
    with target.connect() as connection:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
