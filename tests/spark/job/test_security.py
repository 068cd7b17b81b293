"""The job over TLS, with passwords and the rights of docs/operations.md."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.core.lsn import parse_lsn
from spark_consumer.errors import AccessError
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.secured import (
    CONSUMER,
    DATABASE,
    PASSWORD,
    REGISTRY_USER,
    Secured,
    grant_documented_acls,
    grant_documented_rights,
    secured_servers,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t1 WHERE (a > 1);"
    "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with secured_servers(tmp_path) as made:
        yield made


def test_the_documented_rights_are_enough_for_the_job(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    with secured.postgres.connect(DATABASE) as connection:
        connection.execute(
            "CREATE TABLE t1 (a int PRIMARY KEY, b text);"
            "CREATE TABLE t2 (); CREATE TABLE t3 ();"
            "INSERT INTO t1 VALUES (1, 'x'), (2, 'y'), (3, 'z')"
        )
        grant_documented_rights(secured.postgres)
        grant_documented_acls(secured.admin(), {"subscription": "s"})
        (end,) = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone() or ()
    # By the owner, who needs nobody's leave; what the gateway may is shown elsewhere.
    project = secured.project(tmp_path, DEFINITIONS)
    project.dsn = secured.postgres.dsn(DATABASE)
    environment = secured.environment()
    del environment["PGSLUICE_SOURCE__DSN_FILE"]
    gateway = project.start("--endpos", str(end), environment=environment)
    try:
        assert gateway.wait() == 0, gateway.log()
    finally:
        project.stop_all()
    registry = secured.registry_properties()
    settings = ConsumerSettings(
        kafka={**secured.kafka_properties(CONSUMER), "sasl.password": PASSWORD},
        registry_url=registry.pop("url"),
        registry={**registry, "basic.auth.user.info": REGISTRY_USER},
        warehouse=str(tmp_path / "warehouse"),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=("s",),
        endpos=parse_lsn(str(end)),
    )

    assert run(settings, spark, stopping=threading.Event()) == 0

    table = spark.read.format("delta").load(str(tmp_path / "warehouse/s/public/t1"))
    assert sorted(tuple(row) for row in table.collect()) == [(2, "y"), (3, "z")]

    locked_out = replace(
        settings,
        registry={**registry, "basic.auth.user.info": "gateway:wr0ng"},
        checkpoint=str(tmp_path / "another"),
        warehouse=str(tmp_path / "elsewhere"),
    )
    with pytest.raises(AccessError, match=r"refuses access: status 401"):
        run(locked_out, spark, stopping=threading.Event())
