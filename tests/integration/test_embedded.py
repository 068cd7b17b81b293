"""The embedded parts are the real ones, and they go when they are told to."""

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.processes import ServerError
from devkit.embedded.registry import EmbeddedRegistry
from tests.support.backends.broker import create_topics
from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.process import TopicReader
from tests.support.run.waiting import wait_until


def record_schema(*fields: dict[str, object]) -> Schema:
    return Schema(json.dumps({"type": "record", "name": "t", "fields": list(fields)}), "AVRO")


def is_running(pid: int) -> bool:
    """Whether the process is there and not merely waiting for its parent to look."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def processes_below(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in children}


@pytest.mark.postgres
@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
def test_postgres_decodes_through_pgoutput(database: Database, postgres_major: int) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 5)")
        connection.execute(
            "SELECT pg_create_logical_replication_slot('s_' || %s, 'pgoutput')", [database.name]
        )
        connection.execute("INSERT INTO t VALUES (1), (10)")

        messages = connection.execute(
            "SELECT get_byte(data, 0) FROM pg_logical_slot_get_binary_changes('s_' || %s, NULL,"
            " NULL, 'proto_version', '1', 'publication_names', 'p')",
            [database.name],
        ).fetchall()

        assert bytes(tag for (tag,) in messages) == b"BRIC"
        assert connection.info.server_version // 10000 == postgres_major


@pytest.mark.postgres
def test_databases_are_dropped_with_their_subscriptions_and_slots(
    database: Database, make_database: DatabaseFactory
) -> None:
    subscriber = make_database("subscriber")
    with database.connect() as source, subscriber.connect() as target:
        for connection in (source, target):
            connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        source.execute("CREATE PUBLICATION p FOR TABLE t")
        source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [database.name])
        target.execute(
            f"CREATE SUBSCRIPTION s CONNECTION '{database.server_dsn}' PUBLICATION p"
            f" WITH (create_slot = false, slot_name = '{database.name}')"
        )
        source.execute("INSERT INTO t VALUES (1)")
        wait_until(lambda: target.execute("TABLE t").fetchall() == [(1,)], 60, "the row")

    make_database.drop_all()

    with psycopg.connect(database.server.dsn(), autocommit=True) as connection:
        left = connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"
            " UNION ALL SELECT datname FROM pg_database WHERE datname = ANY(%s)",
            [database.name, [database.name, subscriber.name]],
        ).fetchall()
    assert left == []


@pytest.mark.postgres
def test_postgres_survives_kill_and_keeps_its_slot() -> None:
    with EmbeddedPostgres() as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS a")
            connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        assert server.pid is not None
        before = {server.pid, *processes_below(server.pid)}

        server.kill()

        assert not any(is_running(pid) for pid in before)
        server.restart()
        with server.connect() as connection:
            assert connection.execute("TABLE t").fetchall() == [(1,)]
            assert connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == [
                ("s",)
            ]


@pytest.mark.postgres
def test_postgres_stop_leaves_no_process_and_no_folder() -> None:
    server = EmbeddedPostgres().start()
    assert server.pid is not None
    processes = {server.pid, *processes_below(server.pid)}
    folder = server.folder

    server.stop()

    assert not any(is_running(pid) for pid in processes)
    assert not folder.exists()


@pytest.mark.postgres
def test_postgres_keeps_its_data_where_it_should_and_removes_it() -> None:
    parent = Path("/var/tmp")
    with EmbeddedPostgres(parent=parent) as server, server.connect() as connection:
        folder = server.folder
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)

    assert folder.parent == parent
    assert Path(str(data)).parent == folder
    assert not folder.exists()


@pytest.mark.postgres
def test_a_server_that_cannot_start_shows_its_log() -> None:
    server = EmbeddedPostgres(config={"no_such_setting": "1"})

    with pytest.raises(ServerError, match="no_such_setting"):
        server.start()


@pytest.mark.postgres
def test_a_server_ends_with_a_process_that_was_killed() -> None:
    program = (
        "from devkit.embedded.postgres import EmbeddedPostgres\n"
        "server = EmbeddedPostgres().start()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        processes = {int(pid), *processes_below(int(pid))}

        owner.send_signal(signal.SIGKILL)

        wait_until(lambda: not any(map(is_running, processes)), 60, "the server to end")
        wait_until(lambda: not Path(folder).exists(), 60, "its folder to go")


@pytest.mark.kafka
@pytest.mark.java
def test_kafka_shows_committed_transactions_only(kafka: str) -> None:
    topic = f"embedded-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka})
    create_topics(admin, [NewTopic(topic, 1, 1)])
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (
        ("kept", producer.commit_transaction),
        ("dropped", producer.abort_transaction),
        ("kept too", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        end(30)

    values = consume(kafka, topic, 2)

    assert values == [b"kept", b"kept too"]


@pytest.mark.kafka
@pytest.mark.java
def test_topics_are_read_to_the_end_of_a_commit_that_is_on_its_way(
    kafka: str, registry: str
) -> None:
    topic = f"embedded-{uuid.uuid4().hex}"
    create_topics(AdminClient({"bootstrap.servers": kafka}), [NewTopic(topic, 1, 1)])
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, None)
    producer.flush(30)

    class Reader(TopicReader):
        def uncommitted_end(self, topic: str, partition: int) -> int:
            end = super().uncommitted_end(topic, partition)
            producer.commit_transaction(30)
            return end

    with Reader(kafka, registry) as reader:
        assert len(reader.read(topic)) == 1


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.slow
def test_kafka_survives_kill_and_keeps_its_records() -> None:
    with EmbeddedKafka() as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        create_topics(admin, [NewTopic("t", 1, 1)])
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        producer.produce("t", b"before")
        assert producer.flush(30) == 0
        before = broker.pid
        assert before is not None

        broker.kill()

        assert not is_running(before)
        broker.restart()
        assert broker.bootstrap_servers == servers
        assert consume(servers, "t", 1) == [b"before"]


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.slow
def test_kafka_behind_a_proxy_is_reached_through_it_alone_and_directly() -> None:
    with Proxy() as proxy, EmbeddedKafka(advertised_port=proxy.port) as broker:
        proxy.forward_to(broker.proxied_port)
        direct = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        create_topics(direct, [NewTopic("t", 1, 1)])
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "transactional.id": "t",
                "message.timeout.ms": 20_000,
                "transaction.timeout.ms": 30_000,
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"through")
        producer.commit_transaction(30)
        assert consume(broker.bootstrap_servers, "t", 1) == [b"through"]

        proxy.freeze()
        producer.begin_transaction()
        producer.produce("t", b"frozen")
        assert producer.flush(0.5) == 1
        assert consume(broker.bootstrap_servers, "t", 1) == [b"through"]


@pytest.mark.java
def test_registry_gives_one_schema_one_id_and_refuses_an_incompatible_one(registry: str) -> None:
    subject = f"embedded-{uuid.uuid4().hex}"
    first = record_schema({"name": "a", "type": "int"})
    wider = record_schema(
        {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"], "default": None}
    )
    with SchemaRegistryClient({"url": registry}) as client:
        schema_id = client.register_schema(f"{subject}-1", first)

        assert client.register_schema(f"{subject}-2", first) == schema_id
        assert client.register_schema(f"{subject}-1", wider) != schema_id
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema(f"{subject}-1", record_schema({"name": "a", "type": "string"}))
        assert refused.value.http_status_code == 409


@pytest.mark.java
@pytest.mark.slow
def test_registry_stop_leaves_no_process() -> None:
    server = EmbeddedRegistry().start()
    pid = server.pid
    assert pid is not None

    server.stop()

    assert not is_running(pid)


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first ``count`` committed values of a topic with one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    values: list[bytes | None] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) >= count

    try:
        consumer.subscribe([topic])
        wait_until(enough, 60, f"{count} records of {topic}")
    finally:
        consumer.close()
    return values
