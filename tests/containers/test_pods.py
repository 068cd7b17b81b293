"""The image for Spark on Kubernetes: a driver and an executor, started with what the manifest says.

There is no Kubernetes here. The driver's pod and the executor's are containers with the arguments
and the environment that Spark gives them, and a standalone master takes the application.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.support.containers.system import ROOT, System

ROWS = """
SELECT count(*) FILTER (WHERE region = 'NSW'), count(*) FILTER (WHERE region = 'VIC') FROM orders
"""


@pytest.fixture
def pods(system: System) -> Iterator[System]:
    """A master and an executor that look for a driver."""
    try:
        yield system
    finally:
        system.compose("rm", "--stop", "--force", "--volumes", "driver", "executor", "master")


def test_the_operators_application_rebuilds_the_tables_on_an_executor(pods: System) -> None:
    spec = yaml.safe_load((ROOT / "deploy/kubernetes/spark/application.yaml").read_text())["spec"]
    settings = {
        **spec["sparkConf"],
        "spark.master": "spark://master:7077",
        "spark.driver.memory": "768m",
        "spark.driver.host": "driver",
        "spark.driver.port": "7078",
        # As on Kubernetes, where it waits for four fifths of them.
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.cores.max": "2",
    }
    pods.sql("INSERT INTO orders SELECT g, 'NSW', 1, g FROM generate_series(50000, 50999) g")
    end = pods.sql("SELECT pg_current_wal_lsn()")
    pods.compose("up", "--no-build", "--pull=never", "--detach", "--wait", "master")
    pods.compose("up", "--no-build", "--pull=never", "--detach", "executor")

    once = ("run", "--rm", "--use-aliases", "-T", "driver")
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    job = [spec["mainApplicationFile"], *spec["arguments"], "--endpos", end]
    pods.compose(*once, "driver", *conf, *job, timeout_s=300)

    listed = pods.compose(*once, "pgsluice-consume", *spec["arguments"], "--tables", "--json")
    rows = {
        found["subscription"]: {table["table"]: table["rows"] for table in found["tables"]}
        for found in map(json.loads, listed.splitlines())
    }
    nsw, vic = map(int, pods.sql(ROWS).split("|"))
    assert rows["nsw"]["public.orders"] == nsw >= 1000
    assert rows["vic"]["public.orders"] == vic
    said = pods.compose("logs", "--no-color", "executor")
    assert "Finished task" in said
    # Java's and Spark's options of the manifest reach the executor's JVM, blanks and all.
    assert "Unrecognized option" not in said
