"""Secrets of local servers, seen by another user of the machine."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry
from gateway.core.errors import ConfigError
from gateway.jars import ivy as jars
from gateway.jars.cache import cache_folder
from gateway.jars.java import java_home
from spark_consumer.spark.session import on_the_command_line
from tests.support.backends.servers import BRIEF_JAVA, Database
from tests.support.gateway.scene import cli
from tests.support.run.waiting import PATIENCE

SECRET = "seen-by-nobody-else"
REGISTRY_USER = "gateway:known-to-one-user"
JOB = """
import json, sys
from pathlib import Path
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.session import open_session

settings = ConsumerSettings(kafka={}, registry_url="", spark=json.loads(sys.argv[1]))
with open_session(settings) as spark:
    env = spark._jvm.org.apache.spark.SparkEnv.get()
    for each in env.blockManager().diskBlockManager().localDirsString():
        print(Path(each).parent.parent, oct(Path(each).parent.stat().st_mode & 0o777))
"""
"""Prints where there are folders for rows that are sorted, and who may see what is there."""


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
        ("spark.sql.catalog.lake.jdbc.password", SECRET),
        ("spark.sql.catalog.lake.credential", f"client:{SECRET}"),
        ("spark.sql.catalog.lake.uri", f"jdbc:postgresql://db/lake?user=u&password={SECRET}"),
        ("spark.sql.catalog.lake.header.Authorization", f"Bearer {SECRET}"),
        ("spark.driver.memory", "2g"),
    ]
    assert on_the_command_line(settings) == [("spark.driver.memory", "2g")]


def test_programs_come_from_no_folder_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSLUICE_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written to by other users"):
        jars.folder("kafka")
    tmp_path.chmod(0o755)
    assert cache_folder() == tmp_path


@pytest.mark.postgres
def test_init_writes_through_no_link(database: Database, tmp_path: Path) -> None:
    folder, target = tmp_path / "shop", tmp_path / "target"
    folder.mkdir()
    (folder / "replication.sql").symlink_to(target)

    made = cli("init", database.dsn, "--folder", str(folder))

    assert made.code == 1
    assert "cannot be written: File exists" in made.err
    assert not target.exists()


@pytest.mark.spark
@pytest.mark.java
def test_rows_that_spark_sorts_on_disk_are_in_a_folder_of_its_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    places = [str(tmp_path / "one"), str(tmp_path / "other")]

    job = subprocess.run(
        [sys.executable, "-c", JOB, json.dumps({"spark.local.dir": ",".join(places)})],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"},
            "JAVA_HOME": str(java_home()),
            "JAVA_TOOL_OPTIONS": BRIEF_JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )

    assert job.returncode == 0, job.stderr
    assert job.stdout.split("\n")[:-1] == [f"{place} 0o700" for place in places]
    assert [list(Path(place).iterdir()) for place in places] == [[], []], "left behind"


@pytest.mark.kafka
@pytest.mark.java
def test_the_demos_kafka_lets_nobody_in_without_its_password() -> None:
    with EmbeddedKafka(password=SECRET) as server:
        shown = command_lines()
        assert_private(server.folder)
        own, guest = server.client_settings, {"bootstrap.servers": server.bootstrap_servers}
        wrong = own | {"sasl.password": "guessed"}
        assert AdminClient(dict(own)).list_topics(timeout=10 * PATIENCE).brokers
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
