"""Secrets of local servers, seen by another user of the machine."""

from __future__ import annotations

import stat
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gateway.embedded.kafka import EmbeddedKafka
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.embedded.registry import EmbeddedRegistry
from spark_consumer.session import on_the_command_line

SECRET = "seen-by-nobody-else"
REGISTRY_USER = "gateway:known-to-one-user"


def command_lines() -> bytes:
    """The command lines of all processes, which every user of the machine can read."""
    found = b""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += process.read_bytes()
        except OSError:
            continue
    return found


def assert_private(path: Path) -> None:
    """Nobody but its owner can do anything with it."""
    assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), path


@pytest.mark.postgres
@pytest.mark.parametrize("major", [14, 18])
def test_local_postgres_asks_for_a_password_that_no_command_line_shows(
    major: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_ENVIRONMENT", SECRET)
    with EmbeddedPostgres(major) as server:
        shown = command_lines()
        assert SECRET.encode() not in shown, "the environment of a server is on a command line"
        passfile = Path(str(conninfo_to_dict(server.dsn())["passfile"]))
        password = passfile.read_text().strip().rpartition(":")[2]
        assert_private(passfile)
        assert_private(server.folder)
        with server.connect() as connection:
            connection.execute("CREATE ROLE guest LOGIN")
        for user in ("postgres", "guest"):
            nobody = make_conninfo(server.dsn(user=user), passfile="/nonexistent")
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(nobody)

    assert len(password) >= 32
    assert password.encode() not in shown


def test_secrets_of_spark_reach_its_jvm_past_the_command_line() -> None:
    settings = [
        ("spark.hadoop.fs.s3a.secret.key", SECRET),
        ("spark.hadoop.fs.s3a.access.key", SECRET),
        ("spark.ssl.keyPassword", SECRET),
        ("spark.driver.memory", "2g"),
    ]
    assert on_the_command_line(settings) == [("spark.driver.memory", "2g")]


@pytest.mark.kafka
@pytest.mark.java
def test_the_demos_kafka_lets_nobody_in_without_its_password() -> None:
    with EmbeddedKafka(password=SECRET) as server:
        shown = command_lines()
        assert_private(server.folder)
        own, guest = server.client_settings, {"bootstrap.servers": server.bootstrap_servers}
        wrong = own | {"sasl.password": "guessed"}
        assert AdminClient(dict(own)).list_topics(timeout=10).brokers
        for settings in (guest, wrong):
            silent = settings | {"log_level": "0"}
            with pytest.raises(KafkaException):
                AdminClient(dict(silent)).list_topics(timeout=2)

    assert SECRET.encode() not in shown


@pytest.mark.java
@pytest.mark.slow
def test_local_registry_keeps_its_user_out_of_its_command_line() -> None:
    with EmbeddedRegistry(user=REGISTRY_USER) as server:
        shown = command_lines()
        assert_private(server.folder)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{server.url}/subjects", timeout=30)

    assert REGISTRY_USER.partition(":")[2].encode() not in shown
