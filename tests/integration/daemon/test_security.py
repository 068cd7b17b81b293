"""TLS and passwords on every connection, with the rights of docs/operations.md and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.core.errors import AccessError, FatalError, GatewayError
from gateway.core.records import Batch
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.progress import KafkaProgress, read_progress
from gateway.sink.topics.topics import (
    TopicSpec,
    describe_topics,
    ensure_topics,
    progress_topic_spec,
)
from pgsluice_client import Reader, ReadError, Row, Transaction, UnavailableError
from schemas.settings.tables import ConsumerTable
from spark_consumer.errors import AccessError as JobAccessError
from spark_consumer.kafka.topics import Topics
from spark_consumer.settings import with_connections
from spark_consumer.spark.failures import every_table
from tests.support.backends.secured import (
    CONSUMER,
    DATABASE,
    GATEWAY,
    PASSWORD,
    READER,
    REGISTRY_USER,
    TABLES,
    Secured,
    make_authority,
    secured_tables,
)
from tests.support.backends.tokens import MARK
from tests.support.gateway.process import GatewayProcess, GatewayProject
from tests.support.gateway.scene import Ended, cli
from tests.support.gateway.sink_scene import FixedIds, finish
from tests.support.models.rebuild import Rebuilt
from tests.support.run.waiting import wait_until, within

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.java]

ENDLESS_S = 600.0
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t1, t2 WHERE (b = 'x'), t3;"
    "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_tables(tmp_path_factory.mktemp("secured")) as made:
        yield made


@dataclass(frozen=True)
class Prepared:
    """`pgsluice check` before and after the owner has run the statements of ``check --sql``."""

    before: Ended
    after: Ended


@pytest.fixture(scope="module")
def prepared(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    project = secured.project(tmp_path_factory.mktemp("prepared"), DEFINITIONS)
    config, environment = ("--config", str(project.write())), secured.environment()
    before = cli("check", *config, environment=environment)
    statements = cli("check", "--sql", *config, environment=environment)
    with secured.postgres.connect(DATABASE) as connection:
        connection.execute(statements.out.encode())
    return Prepared(before, cli("check", *config, environment=environment))


def password_printed(secured: Secured, password: str) -> dict[str, str]:
    """`Secured.environment` with a command that prints the source's password."""
    environment = secured.environment()
    del environment["PGSLUICE_SOURCE__DSN_FILE"]
    (secured.secrets / "token").write_text(f"{password}\n")
    without, _, _ = secured.dsn().partition(" password=")
    return environment | {
        "PGSLUICE_SOURCE__DSN": f"{without} sslmode=verify-full sslrootcert={secured.authority.ca}",
        "PGSLUICE_SOURCE__PASSWORD_COMMAND": f"cat '{secured.secrets / 'token'}'",
    }


@pytest.fixture
def project(secured: Secured, tmp_path: Path) -> Iterator[GatewayProject]:
    made = secured.project(tmp_path, DEFINITIONS)
    yield made
    made.stop_all()


def run_to_the_end(
    secured: Secured, project: GatewayProject, environment: Mapping[str, str] | None = None
) -> GatewayProcess:
    with secured.postgres.connect(DATABASE) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    environment = secured.environment() if environment is None else environment
    gateway = project.start("--endpos", str(row[0]), environment=environment)
    gateway.wait()
    return gateway


def test_the_documented_rights_are_enough_for_the_gateway(
    secured: Secured, prepared: Prepared, project: GatewayProject
) -> None:
    assert prepared.before.code == 1, prepared.before.out
    assert "may not make the gateway's publications" in prepared.before.out
    assert prepared.after.code == 0, prepared.after.out

    copied = run_to_the_end(secured, project)
    with secured.postgres.connect(DATABASE) as connection:
        for table in TABLES:
            connection.execute(f"UPDATE {table} SET a = a + 10, b = 'X'".encode())
            connection.execute(f"DELETE FROM {table} WHERE a = 11".encode())
        streamed = run_to_the_end(secured, project, password_printed(secured, PASSWORD))

        assert "streaming" in streamed.log()
        with secured.reader() as reader:
            for table, where in TABLES.items():
                expected = connection.execute(f"SELECT a, b FROM {table} WHERE {where}".encode())
                rebuilt = Rebuilt().apply(reader.read(f"s.public.{table}"))
                assert sorted(rebuilt.rows()) == sorted(expected.fetchall())
    for gateway in (copied, streamed):
        assert gateway.wait() == 0, gateway.log()
        assert PASSWORD not in gateway.log()


@pytest.mark.usefixtures("prepared")
def test_tokens_of_a_plugin_are_checked_by_the_broker_and_renewed_by_every_client(
    secured: Secured, project: GatewayProject
) -> None:
    project.extra = {**project.extra, "kafka": secured.token_properties(GATEWAY)}
    environment = secured.environment()
    del environment["PGSLUICE_KAFKA__SASL_PASSWORD_FILE"]
    consumer = secured.token_properties(CONSUMER)
    registry = {**secured.registry_properties(), "basic.auth.user.info": REGISTRY_USER}
    gateway = project.start(environment=environment)
    gateway.wait_for("streaming")
    (told,) = Topics(with_connections(ConsumerTable(), consumer, registry)).describe(
        ["s.public.t1"]
    )
    assert told == "s.public.t1"

    with (
        secured.postgres.connect(DATABASE) as connection,
        Reader("s", secured.token_properties(READER), registry, topics=["s.public.t1"]) as reader,
    ):
        # Clients share a token for half of its life, so each of them has another one by then.
        renewed = secured.tokens.issued[GATEWAY] + 3
        wait_until(lambda: secured.tokens.issued[GATEWAY] >= renewed, 60, "three new tokens")
        connection.execute("INSERT INTO t1 VALUES (1000, 'token')")
        wanted = {"a": 1000, "b": "token"}
        wait_until(lambda: wanted in rows_of(reader.poll()), 60, "the row", poll_s=0)
    assert gateway.terminate() == 0, gateway.log()
    assert MARK not in gateway.log()


def rows_of(transaction: Transaction | None) -> list[Row | None]:
    return [] if transaction is None else [change.after for change in transaction.changes]


@pytest.mark.parametrize("fault", ["key", "expiry"])
def test_a_token_that_the_broker_does_not_accept_is_a_refusal(secured: Secured, fault: str) -> None:
    with pytest.raises(AccessError, match="SASL") as caught:
        describe_topics(secured.token_properties(GATEWAY, fault), ["t"], timeout_s=60)

    assert MARK not in str(caught.value)


def test_each_server_is_named_when_its_certificate_is_not_trusted(
    secured: Secured, project: GatewayProject, tmp_path: Path
) -> None:
    other = make_authority(tmp_path / "another")
    environment = {
        **secured.environment(),
        "PGSLUICE_SOURCE__DSN": secured.dsn(ca=other.ca),
        "PGSLUICE_REGISTRY__SSL_CA_LOCATION": str(other.ca),
    }
    del environment["PGSLUICE_SOURCE__DSN_FILE"]

    checked = cli("check", "--config", str(project.write()), environment=environment)

    assert checked.code == 1
    assert "source: " in checked.out and "certificate verify failed" in checked.out
    assert "schema registry" in checked.out and "CERTIFICATE_VERIFY_FAILED" in checked.out
    assert PASSWORD not in checked.out


def test_each_server_is_named_when_the_password_is_wrong(
    secured: Secured, project: GatewayProject
) -> None:
    environment = {
        **password_printed(secured, "wr0ng"),
        "PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO": REGISTRY_USER.replace(PASSWORD, "wr0ng"),
    }
    del environment["PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO_FILE"]

    checked = cli("check", "--config", str(project.write()), environment=environment)

    assert checked.code == 1
    assert "password authentication failed" in checked.out
    assert "the password comes from the password command" in checked.out
    assert "basic.auth.user.info" in checked.out
    assert "wr0ng" not in checked.out


@pytest.mark.parametrize("wrong", ["password", "authority"])
@pytest.mark.parametrize("contact", ["topics", "transactions"])
def test_kafka_is_not_asked_for_long_why_it_does_not_let_us_in(
    secured: Secured, tmp_path: Path, wrong: str, contact: str
) -> None:
    properties = {**secured.kafka_properties(GATEWAY), "sasl.password": PASSWORD}
    if wrong == "password":
        properties["sasl.password"] = "wr0ng"
    else:
        properties["ssl.ca.location"] = str(make_authority(tmp_path / "another").ca)

    # A small part of the time that the call may take.
    with within(30, "the call"), pytest.raises(FatalError) as caught:
        if contact == "topics":
            describe_topics(properties, ["t"], timeout_s=ENDLESS_S)
        else:
            with make_sink(properties) as sink:
                sink.open(ENDLESS_S)

    assert {"password": "SASL", "authority": "certificate"}[wrong] in caught.value.message
    assert "wr0ng" not in str(caught.value)


def test_a_wrong_password_of_kafka_ends_commands_and_readers_at_once(
    secured: Secured, project: GatewayProject
) -> None:
    environment = {**secured.environment(), "PGSLUICE_KAFKA__SASL_PASSWORD": "wr0ng"}
    del environment["PGSLUICE_KAFKA__SASL_PASSWORD_FILE"]
    config = ("--config", str(project.write()))
    kafka, of_reader = (
        {**secured.kafka_properties(user), "sasl.password": "wr0ng"} for user in (GATEWAY, READER)
    )
    identity = SlotIdentity("1", DATABASE, "another")
    errors: list[str] = []

    with ThreadPoolExecutor(1) as threads, Reader("s", of_reader, {"url": "http://x"}) as reader:
        shown = threads.submit(cli, "tail", "s", *config, environment=environment)
        with within(30, "the call"), pytest.raises(AccessError) as caught:
            read_progress(kafka, "pgsluice.progress", identity, ENDLESS_S)
        errors.append(str(caught.value))
        for _ in range(2):
            with pytest.raises(ReadError, match="check the properties of Kafka") as refused:
                reader.poll()
            errors.append(str(refused.value))
        assert shown.result().code == 1
        errors.append(shown.result().err)

    assert all("SASL authentication error" in text and "wr0ng" not in text for text in errors)


@pytest.mark.parametrize(
    ("missing", "kind", "named"),
    [
        ("sasl.password", ReadError, "sasl.password must be set"),
        ("security.protocol", UnavailableError, "closes connections"),
    ],
)
def test_a_reader_without_a_password_is_not_kept_waiting(
    secured: Secured,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    kind: type[ReadError],
    named: str,
) -> None:
    monkeypatch.setattr("pgsluice_client.reader._REQUEST_S", ENDLESS_S)
    kafka = {**secured.kafka_properties(READER), "sasl.password": PASSWORD}
    del kafka[missing]
    if missing == "security.protocol":  # without it librdkafka ignores the password, and says so
        kafka = {"bootstrap.servers": kafka["bootstrap.servers"]}

    with (
        within(30, "the call"),
        pytest.raises(ReadError, match=named) as refused,
        Reader("s", kafka, {"url": "http://x"}) as reader,
    ):
        reader.poll()

    assert type(refused.value) is kind
    assert "sasl.password" in (refused.value.hint or "")


def test_a_wrong_password_of_kafka_is_what_the_spark_job_says(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_consumer.kafka.topics._TIMEOUT_S", ENDLESS_S)
    kafka = {**secured.kafka_properties(GATEWAY), "sasl.password": "wr0ng"}
    topics = Topics(with_connections(ConsumerTable(), kafka, {"url": "http://x"}))

    with within(30, "the call"), pytest.raises(JobAccessError) as caught:
        topics.describe(["s.public.t1"])

    assert every_table(caught.value) is caught.value
    assert "refuses access" in caught.value.message
    assert "SASL authentication error" in caught.value.message
    assert "wr0ng" not in str(caught.value)


def test_a_topic_that_may_not_be_written_is_named_also_when_others_were_produced_behind_it(
    secured: Secured,
) -> None:
    may, may_not = "s.public.t1", "somebody.elses"
    kafka = {"bootstrap.servers": secured.kafka.bootstrap_servers}
    ensure_topics(
        kafka,
        [TopicSpec(may), TopicSpec(may_not), progress_topic_spec("pgsluice.progress")],
    )
    errors: list[GatewayError] = []
    with make_sink({**secured.kafka_properties(GATEWAY), "sasl.password": PASSWORD}) as sink:
        sink.open()

        def fails(topic: str) -> bool:
            try:
                finish(sink, Batch([(topic, 0, None, b"", [])]))
            except GatewayError as error:
                errors.append(error)
            return bool(errors)

        # The client may have the broker's answer before it is given the first record.
        if not fails(may_not):
            wait_until(lambda: fails(may), 60, "the broker's answer")

    assert type(errors[0]) is AccessError
    assert "not authorised" in errors[0].message
    assert may_not in errors[0].message


def make_sink(properties: dict[str, str]) -> TransactionalSink:
    # The transactional id that the documented rights are for begins with the gateway's prefix.
    identity = SlotIdentity("1", DATABASE, "another")
    return TransactionalSink(properties, identity, KafkaProgress(properties, identity, FixedIds()))
