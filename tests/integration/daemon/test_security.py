"""TLS and passwords on every connection, with the rights of docs/operations.md and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.errors import AccessError, FatalError, GatewayError
from gateway.core.records import Batch
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.progress import KafkaProgress
from gateway.sink.topics.topics import (
    TopicSpec,
    describe_topics,
    ensure_topics,
    progress_topic_spec,
)
from tests.support.backends.secured import (
    DATABASE,
    GATEWAY,
    PASSWORD,
    REGISTRY_USER,
    TABLES,
    Secured,
    make_authority,
    secured_tables,
)
from tests.support.gateway.process import GatewayProcess, GatewayProject
from tests.support.gateway.scene import cli
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


@pytest.fixture
def project(secured: Secured, tmp_path: Path) -> Iterator[GatewayProject]:
    made = secured.project(tmp_path, DEFINITIONS)
    yield made
    made.stop_all()


def run_to_the_end(secured: Secured, project: GatewayProject) -> GatewayProcess:
    with secured.postgres.connect(DATABASE) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    gateway = project.start("--endpos", str(row[0]), environment=secured.environment())
    gateway.wait()
    return gateway


def test_the_documented_rights_are_enough_for_the_gateway(
    secured: Secured, project: GatewayProject
) -> None:
    config = ("--config", str(project.write()))
    checked = cli("check", *config, environment=secured.environment())
    assert checked.code == 1, checked.out
    assert "may not make the gateway's publications" in checked.out
    statements = cli("check", "--sql", *config, environment=secured.environment())
    with secured.postgres.connect(DATABASE) as connection:
        # The statements that the owner has to run.
        connection.execute(statements.out.encode())
    checked = cli("check", *config, environment=secured.environment())
    assert checked.code == 0, checked.out

    copied = run_to_the_end(secured, project)
    with secured.postgres.connect(DATABASE) as connection:
        for table in TABLES:
            connection.execute(f"UPDATE {table} SET a = a + 10, b = 'X'".encode())
            connection.execute(f"DELETE FROM {table} WHERE a = 11".encode())
        streamed = run_to_the_end(secured, project)

        assert "streaming" in streamed.log()
        with secured.reader() as reader:
            for table, where in TABLES.items():
                expected = connection.execute(f"SELECT a, b FROM {table} WHERE {where}".encode())
                rebuilt = Rebuilt().apply(reader.read(f"s.public.{table}"))
                assert rebuilt.rows() == expected.fetchall()
    for gateway in (copied, streamed):
        assert gateway.wait() == 0, gateway.log()
        assert PASSWORD not in gateway.log()


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
        **secured.environment(),
        "PGSLUICE_SOURCE__DSN": secured.dsn(password="wr0ng"),
        "PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO": REGISTRY_USER.replace(PASSWORD, "wr0ng"),
    }
    for variable in ("PGSLUICE_SOURCE__DSN", "PGSLUICE_REGISTRY__BASIC_AUTH_USER_INFO"):
        del environment[f"{variable}_FILE"]

    checked = cli("check", "--config", str(project.write()), environment=environment)

    assert checked.code == 1
    assert "password authentication failed" in checked.out
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
