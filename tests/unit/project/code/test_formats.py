"""A table format is one folder: nothing else of the job uses a name that only Delta has."""

from __future__ import annotations

import re
from pathlib import Path

JOB = Path(__file__).resolve().parents[4] / "spark_consumer"
DELTA = JOB / "formats" / "delta"
OF_DELTA = re.compile(
    r"import delta\b|from delta\b|DeltaTable|DeltaLog|_delta_log|org\.apache\.spark\.sql\.delta"
    r"|io\.delta|spark\.databricks|userMetadata|versionAsOf|maxValues|physicalName|format\(.delta"
    r"|\"_metadata|\bfile_path\b|\brow_index\b|\.merge\(|executeCompaction"
)
SESSION = {
    '"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",',
    '"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",',
    '"spark.databricks.delta.snapshotPartitions": "1",',
}
"""Settings that a session must have before it starts, in `spark_consumer.spark.session`."""


def lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]


def test_only_the_folder_of_delta_uses_what_is_delta_s() -> None:
    used = {
        f"{file.relative_to(JOB)}: {line}"
        for file in JOB.rglob("*.py")
        if DELTA not in file.parents
        for line in lines(file)
        if OF_DELTA.search(line) and line not in SESSION
    }

    assert used == set()
    assert any(OF_DELTA.search(line) for file in DELTA.glob("*.py") for line in lines(file))
