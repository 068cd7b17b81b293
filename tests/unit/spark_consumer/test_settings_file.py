"""The Spark job's own configuration file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_consumer.errors import SettingsError
from spark_consumer.settings_file import load_settings

FILE = """
[source]
dsn = "postgresql://the.job.does.not.read/this"
[kafka]
"bootstrap.servers" = "localhost:9092"
[registry]
url = "http://localhost:8081"
[consumer]
subscriptions = ["s1", "s2"]
warehouse = "tables"
checkpoint = "s3a://bucket/checkpoint"
max_batch_records = 500
kafka_java = { "sasl.mechanism" = "OAUTHBEARER" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "consumer.toml"
    path.write_text(FILE)
    return path


def test_the_job_reads_its_own_tables_and_secrets_from_the_environment(file: Path) -> None:
    (file.parent / "secret").write_text("hidden\n")
    environment = {
        "PGSLUICE_KAFKA__SASL_PASSWORD_FILE": str(file.parent / "secret"),
        "PGSLUICE_CONSUMER__PARALLEL_TABLES": "5",
        "PGSLUICE_SOURCE__DSN_FILE": "/not/for/the/job",
    }

    found = load_settings(file, environment)

    assert found.subscriptions == ("s1", "s2")
    assert found.warehouse == str(file.parent / "tables")
    assert found.checkpoint == "s3a://bucket/checkpoint"
    assert found.kafka == {"bootstrap.servers": "localhost:9092", "sasl.password": "hidden"}
    assert found.kafka_java == {"sasl.mechanism": "OAUTHBEARER"}
    assert (found.max_batch_records, found.parallel_tables) == (500, 5)
    assert found.registry_url == "http://localhost:8081"


def test_what_the_file_does_not_say_is_as_declared(file: Path) -> None:
    found = load_settings(file, {"PGSLUICE_CONSUMER__WAREHOUSE": "here"})

    assert found.warehouse == "here"
    assert (found.shutdown_timeout_s, found.min_partitions, found.spark) == (10.0, None, {})
    assert load_settings(file, {"PGSLUICE_CONSUMER__SHUTDOWN_TIMEOUT_S": "3"}) == replace(
        load_settings(file, {}), shutdown_timeout_s=3.0
    )


def test_all_wrong_settings_are_named_each_in_a_line_of_its_own(file: Path) -> None:
    file.write_text(FILE.replace("max_batch_records = 500", "max_batch_records = 0\nview = 1"))

    with pytest.raises(SettingsError) as caught:
        load_settings(file, {})

    first, *each = str(caught.value).splitlines()
    assert first == "2 settings are wrong:"
    assert [line.split(":")[0] for line in each] == [
        "  consumer.max_batch_records",
        "  consumer.view",
    ]
