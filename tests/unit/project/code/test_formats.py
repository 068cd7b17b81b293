"""A table format is one folder: nothing else of the job uses a name that only one format has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

JOB = Path(__file__).resolve().parents[4] / "spark_consumer"
FORMATS = JOB / "formats"
ONLY_OF = {
    "delta": re.compile(
        r"import delta\b|from delta\b|DeltaTable|DeltaLog|_delta_log|org\.apache\.spark\.sql\.delta"
        r"|io\.delta|spark\.databricks|userMetadata|maxValues|physicalName|format\(.delta"
        r"|\"_metadata|\bfile_path\b|\brow_index\b|executeCompaction"
    ),
    "iceberg": re.compile(
        r"IcebergTable|org\.apache\.iceberg|HadoopTables|TableMetadata|SparkActions"
        r"|format\(.iceberg|newRowDelta|mergeInto|sequenceNumber|default_iceberg"
    ),
}
OF_FORMATS = re.compile(r"versionAsOf|\.merge\(")
SESSION = {
    '"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",',
    '"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",',
    '"spark.databricks.delta.snapshotPartitions": "1",',
}
"""Settings that a session must have before it starts, in `spark_consumer.spark.session`."""


def lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]


def used(outside: set[Path], names: re.Pattern[str]) -> set[str]:
    """The lines of the job outside some folders that use such names."""
    return {
        f"{file.relative_to(JOB)}: {line}"
        for file in JOB.rglob("*.py")
        if outside.isdisjoint(file.parents)
        for line in lines(file)
        if names.search(line) and line not in SESSION
    }


@pytest.mark.parametrize("name", ONLY_OF)
def test_only_the_folder_of_a_format_uses_what_is_its_own(name: str) -> None:
    folder = FORMATS / name

    assert used({folder}, ONLY_OF[name]) == set()
    assert any(ONLY_OF[name].search(line) for file in folder.glob("*.py") for line in lines(file))


def test_only_the_folders_of_formats_use_what_several_have() -> None:
    assert used({FORMATS / name for name in ONLY_OF}, OF_FORMATS) == set()
