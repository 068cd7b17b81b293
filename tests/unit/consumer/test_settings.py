"""The Spark job's own configuration file."""

from __future__ import annotations

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
        "PGSLUICE_SOURCE__DSN": "not for the job",
    }

    found = load_settings(file, environment)

    assert found.subscriptions == ("s1", "s2")
    assert found.warehouse == str(file.parent / "tables")
    assert found.checkpoint == "s3a://bucket/checkpoint"
    assert found.kafka == {"bootstrap.servers": "localhost:9092", "sasl.password": "hidden"}
    assert found.kafka_java == {"sasl.mechanism": "OAUTHBEARER"}
    assert (found.max_batch_records, found.parallel_tables) == (500, 5)
    assert found.registry_url == "http://localhost:8081"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("warehose = 'x'", r"\[consumer\] has no key warehose"),
        ("parallel_tables = 'many'", r"\[consumer\] parallel_tables is not of type int"),
        ("subscriptions = 7", r"\[consumer\] subscriptions is not of type tuple"),
    ],
)
def test_a_key_that_cannot_work_is_named(file: Path, line: str, complaint: str) -> None:
    name = line.partition(" ")[0]
    kept = [text for text in FILE.splitlines() if not text.startswith(name)]
    file.write_text("\n".join([*kept, line]))

    with pytest.raises(SettingsError, match=complaint):
        load_settings(file, {})
