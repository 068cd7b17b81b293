"""The contract of a table format, kept by each; and what the job uses of which Delta."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped]
from py4j.protocol import MEMORY_COMMAND_NAME  # type: ignore[import-untyped]

from spark_consumer.errors import SettingsError, TransientConsumerError
from spark_consumer.formats.changes import KeyedChanges, ValueChanges, WriteMode
from spark_consumer.formats.choice import format_at
from spark_consumer.formats.commit_metadata import NO_VERSION, Commit, Found
from spark_consumer.formats.delta import check
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.table import DeltaTable
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import Table, TableFormat
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.position import Position
from spark_consumer.spark.files import Folder
from tests.support.run.seeds import in_turn
from tests.support.spark.memory_format import MemoryFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FORMATS: dict[str, Callable[[], TableFormat]] = {
    "Delta": DeltaFormat,
    "public Delta": lambda: DeltaFormat(private=False),
    "Iceberg": IcebergFormat,
    "in memory": MemoryFormat,
}
ID = ColumnPlan("id", "id", "bigint", "bigint")


def commit(serial: int) -> Commit:
    return Commit(Position("j", serial, serial, None, "t", "id", {0: serial}), {}, serial)


def append(spark: SparkSession, table: Table, value: int, serial: int, found: Found | None) -> None:
    rows = spark.range(value, value + 1)
    table.write(rows, commit(serial), found, WriteMode.APPEND)


def overwrite(
    spark: SparkSession, table: Table, value: int, serial: int, found: Found | None
) -> None:
    rows = spark.range(value, value + 1)
    table.write(rows, commit(serial), found, WriteMode.REPLACE_ROWS)


def upsert(spark: SparkSession, table: Table, value: int, serial: int, found: Found | None) -> None:
    source = spark.sql(
        f"SELECT struct({value}L AS id) AS k, 'put' AS action, struct({value}L AS id) AS v,"
        " array('id') AS sent, false AS made"
    )
    changes = KeyedChanges(source, [ID], [ID], "TRUE", 0, 1, 0, 1)
    assert table.upsert(changes, commit(serial), found) == 0


def exchange(
    spark: SparkSession, table: Table, value: int, serial: int, found: Found | None
) -> None:
    source = spark.sql(f"SELECT 'insert' AS action, struct({value}L AS id) AS v")
    table.exchange(ValueChanges(source, [ID]), commit(serial), found)


@pytest.mark.parametrize(
    "name",
    [
        "Delta",
        "Iceberg",
        *in_turn(__name__, ["public Delta", "public Delta, at once", "in memory"]),
    ],
)
def test_of_two_writes_on_top_of_one_state_the_second_changes_nothing(
    spark: SparkSession, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = FORMATS[name.partition(",")[0]]()
    if name not in FORMATS:
        # Both have looked before either writes: Delta's transaction identifier alone decides.
        monkeypatch.setattr(DeltaTable, "_check", lambda *arguments: None)
    session = spark.newSession()
    table = tables.table(session, str(tmp_path / "t"), "table t")
    assert (table.version(), table.find()) == (NO_VERSION, None)
    table.write(session.range(1), commit(0), None, WriteMode.REPLACE_TABLE)
    expected, versions = {0}, [table.version()]

    for serial, write in enumerate((append, upsert, exchange, overwrite), 1):
        found = table.find()
        assert found is not None and found.commit == commit(serial - 1)
        # A process that has read the same state, and is a moment later.
        other = tables.table(spark.newSession(), table.path, "table t")
        write(session, table, serial, serial, found)
        with pytest.raises(TransientConsumerError):
            write(other.spark, other, 100 + serial, serial, found)

        expected = {serial} if write is overwrite else {*expected, serial}
        assert {row.id for row in table.rows().collect()} == expected
        versions.append(table.version())

    assert versions == sorted(set(versions))
    assert table.position_at(versions[1]) == commit(1).position
    old = tables.rows_at(session, table.path, versions[1])
    assert {row.id for row in old.collect()} == {0, 1}


def test_a_table_that_is_not_there_is_asked_for_in_few_calls_of_the_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, path = [], str(tmp_path / "t")
    send = GatewayClient.send_command

    def counted(client: GatewayClient, command: str, *arguments: Any, **options: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):  # Objects that Python needs no more.
            calls.append(command)
        return send(client, command, *arguments, **options)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    assert format_at(spark, path) is None

    # One exception of the JVM's takes about eighty, beside those that are needed.
    assert 0 < len(calls) < 100
    folder = Folder(spark, path)
    assert not folder.has()
    # A folder that a first commit has begun to fill, and a file where a folder is looked for.
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    assert format_at(spark, path) is format_at(spark, str(tmp_path / "file")) is None
    assert folder.has() and folder.has("metadata") and not folder.has("_delta_log")


def test_what_differs_from_the_delta_that_the_job_knows_is_found_at_start(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert check.difference(spark) is None
    assert DeltaFormat.checked(spark, "auto").private
    assert caplog.messages == []

    def reason() -> str:
        caplog.clear()
        assert not DeltaFormat.checked(spark, "auto").private
        (message,) = caplog.messages
        return message

    with monkeypatch.context() as patch:
        patch.setitem(check._CALLED, "DeltaLog", ("Snapshot update(boolean)",))
        assert reason().endswith(": DeltaLog has no Snapshot update(boolean)")
    with monkeypatch.context() as patch:
        patch.setitem(check._CALLED, "NoSuchClass", ())
        assert reason().endswith(": it has no class NoSuchClass")
    with monkeypatch.context() as patch:
        patch.setattr(check, "_RELEASE", "3.3")
        assert reason().endswith(": it is version 4.4.0, not 3.3")
    assert not DeltaFormat.checked(spark, "never").private

    with monkeypatch.context() as patch:
        patch.setattr(check, "_TABLE", "io.delta.tables.Nothing")
        with pytest.raises(SettingsError, match=r"no class io\.delta\.tables\.Nothing: one of the"):
            check.check_delta(spark)
