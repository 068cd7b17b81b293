"""Readers of the rebuilt tables: docs/spark.md, Readers, is this file's table."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable
from pyspark.errors import UnsupportedOperationException

from schemas.settings.consumer import Readers
from schemas.settings.tables import TableFormatName
from spark_consumer.apply.driver import writer as driver_writer
from spark_consumer.errors import TableError
from spark_consumer.formats.delta import merge
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg import merge as iceberg_merge
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.iceberg.session import catalog_of
from spark_consumer.formats.protocol import TableFormat
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic, VariantSchemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]
ID, GONE = Col("id", "int", "integer", None, 1), Col("gone", "string", "text", None, 3)
BEFORE = [ID, Col("n", "int", "integer", None, 2), GONE, Col("b", "string", "text", None, 4)]
AFTER = [ID, Col("n", "long", "bigint", None, 2), Col("c", "string", "text", None, 4)]
BIG = 2**40
EXPECTED = [(1, 10, "changed"), (3, BIG, "copied"), (4, 4, "copied"), (7, BIG, "new")]


def opened(kind: TableFormatName, readers: Readers) -> TableFormat:
    return DeltaFormat(readers=readers) if kind == "delta" else IcebergFormat(readers)


def filled(spark: SparkSession, folder: Path, tables: TableFormat) -> tuple[Direct, TableTopic]:
    """A table with rows that are deleted and changed."""
    topic = TableTopic(StaticSchemas(), "s.public.t", BEFORE, ["id"])
    table = Direct(spark, folder, topic, tables)
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2, 3, 4):
        topic.change("r", 0x90, 0, after={"id": key, "n": key, "gone": "x", "b": "copied"})
    table.apply(held=False)
    topic.change("d", 0xA0, 1, before={"id": 2})
    topic.change("u", 0xA0, 3, after={"id": 1, "n": 10, "gone": "x", "b": "changed"})
    table.apply(held=False)
    return table, topic


def alter(table: Direct, topic: TableTopic, more: Collection[Col] = ()) -> Direct:
    """Alter the columns of a table that is filled, with further ones that are 5 in all rows."""
    topic.columns = [*AFTER, *more]
    came = dict.fromkeys((column.field for column in more), 5)
    topic.change("u", 0xB0, 1, after={"id": 3, "n": BIG, "c": None, **came}, unchanged=["c"])
    topic.change("c", 0xB0, 3, after={"id": 7, "n": BIG, "c": "new", **came})
    table.apply(held=False)
    assert table.rows() == [(*row, *came.values()) for row in EXPECTED]
    return table


@pytest.fixture
def _marking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows of tables of any size be marked, where that is possible."""
    mark_all(monkeypatch)


def mark_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(driver_writer, "LARGEST_BYTES", -1)
    patch.setattr(merge, "VECTOR_BYTES", -1)
    patch.setattr(iceberg_merge, "VECTOR_BYTES", -1)


def has_vectors(path: str) -> bool:
    """Whether a table has, or had, deletion vectors."""
    return any(Path(path).rglob("*.bin")) or any(Path(path).rglob("*.puffin"))


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[TableFormatName, Readers], str]:
    """The folder of a table for each format and setting; rows are marked where that is possible."""
    found: dict[tuple[TableFormatName, Readers], str] = {}
    kinds: tuple[TableFormatName, ...] = ("delta", "iceberg")
    settings: tuple[Readers, ...] = ("current", "widest")
    with pytest.MonkeyPatch.context() as patch:
        mark_all(patch)
        for kind in kinds:
            for readers in settings:
                folder = tmp_path_factory.mktemp(f"{kind}-{readers}")
                table = alter(*filled(spark, folder, opened(kind, readers)))
                found[kind, readers] = table.path
    return found


def sorted_rows(rows: Any) -> Rows:
    return sorted(tuple(row) for row in rows)


def metadata_file(path: str) -> str:
    """The newest file of an Iceberg table's metadata."""
    files = Path(path, "metadata").glob("v*.metadata.json")
    return str(max(files, key=lambda file: int(file.name.split(".")[0][1:])))


def duckdb_rows(query: str, *extensions: str) -> Rows:
    with duckdb.connect() as connection:
        for name in extensions:
            package = import_module(f"duckdb_extension_{name}")
            (file,) = Path(package.__path__[0]).rglob("*.duckdb_extension")
            connection.load_extension(str(file))
        return sorted_rows(connection.execute(query).fetchall())


READERS: dict[tuple[TableFormatName, str], Callable[[str], Rows]] = {
    ("delta", "deltalake, QueryBuilder"): lambda path: sorted_rows(
        polars.DataFrame(
            QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
        ).rows()
    ),
    ("delta", "deltalake, to_pyarrow_table"): lambda path: sorted_rows(
        polars.DataFrame(DeltaTable(path).to_pyarrow_table()).rows()
    ),
    ("delta", "Polars, scan_delta"): lambda path: sorted_rows(
        polars.scan_delta(path).collect().rows()
    ),
    ("delta", "DuckDB, delta_scan"): lambda path: duckdb_rows(
        f"SELECT * FROM delta_scan('{path}')", "delta"
    ),
    ("iceberg", "PyIceberg"): lambda path: sorted_rows(
        polars.DataFrame(StaticTable.from_metadata(metadata_file(path)).scan().to_arrow()).rows()
    ),
    ("iceberg", "Polars, scan_iceberg"): lambda path: sorted_rows(
        polars.scan_iceberg(metadata_file(path)).collect().rows()
    ),
    ("iceberg", "DuckDB, iceberg_scan"): lambda path: duckdb_rows(
        f"SELECT * FROM iceberg_scan('{metadata_file(path)}')", "avro", "iceberg"
    ),
}


REFUSED = {
    "deltalake, QueryBuilder": r"features required: \[TypeWidening\]",
    "deltalake, to_pyarrow_table": "reader features: .* not yet supported",
    "Polars, scan_delta": "which polars does not support",
}
"""Readers that refuse a table of `readers = "current"` that has everything, and their words."""


@pytest.mark.parametrize(("kind", "reader"), READERS)
@pytest.mark.parametrize("readers", ["current", "widest"])
def test_a_reader_has_the_right_rows_or_refuses(
    tables: dict[tuple[TableFormatName, Readers], str],
    monkeypatch: pytest.MonkeyPatch,
    kind: TableFormatName,
    reader: str,
    readers: Readers,
) -> None:
    # Polars warns of its other planner, which is a package of its own.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    read, path = READERS[kind, reader], tables[kind, readers]
    if readers == "current" and reader in REFUSED:
        with pytest.raises(Exception, match=REFUSED[reader]):
            read(path)
    else:
        assert read(path) == EXPECTED


PARTS = {"metadata": b"\x01\x01\x00\x01a", "value": b"\x02\x01\x00\x00\x06\x20\x02\x96\x00\x00\x00"}
"""The two parts of a VARIANT, here `{"a": 1.50}`. Source: Parquet's VariantEncoding.md."""

OF_VARIANTS: dict[str, Any] = {
    "deltalake, QueryBuilder": PARTS,
    "deltalake, to_pyarrow_table": PARTS,
    "DuckDB, delta_scan": {"a": Decimal("1.50")},
    "DuckDB, iceberg_scan": {"a": Decimal("1.50")},
}
"""Values of readers of tables with VARIANT; all others refuse them."""


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_reader_has_variants_as_such_or_in_their_parts_or_refuses(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: TableFormatName
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    columns = [ID, Col("b", "string", "jsonb", None, 2)]
    topic = TableTopic(VariantSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind, "current"))
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": '{"a": 1.50}'})
    topic.change("r", 0x90, 0, after={"id": 2, "b": None})
    table.apply()

    for reader in (name for one, name in READERS if one == kind):
        read = READERS[kind, reader]
        if reader in OF_VARIANTS:
            assert read(table.path) == [(1, OF_VARIANTS[reader]), (2, None)]
        else:
            with pytest.raises(Exception, match=r"no variant set|TableMetadataWrapper"):
                read(table.path)


def test_tables_for_all_readers_have_no_features(
    tables: dict[tuple[TableFormatName, Readers], str],
) -> None:
    for kind in ("delta", "iceberg"):
        assert has_vectors(tables[kind, "current"])
        assert not has_vectors(tables[kind, "widest"])
    log = Path(tables["delta", "widest"], "_delta_log").glob("*.json")
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    assert {one["protocol"]["minReaderVersion"] for one in actions if "protocol" in one} == {1}
    metadata = json.loads(Path(metadata_file(tables["iceberg", "widest"])).read_text())
    assert metadata["format-version"] == 2


@pytest.mark.usefixtures("_marking")
@pytest.mark.parametrize(
    ("kind", "first"), [("delta", "current"), ("delta", "widest"), ("iceberg", "widest")]
)
def test_a_table_stays_as_it_is_when_the_setting_changes(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName, first: Readers
) -> None:
    table, topic = filled(spark, tmp_path, opened(kind, first))
    assert has_vectors(table.path) is (first == "current")

    table.tables = opened(kind, "current" if first == "widest" else "widest")
    alter(table, topic)

    # An Iceberg table has the version that it was made with.
    assert has_vectors(table.path) is (kind == "delta")


@pytest.mark.usefixtures("_marking")
def test_a_rewritten_table_stays_clustered_and_is_held_where_that_or_the_rewrite_is_not_possible(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, topic = filled(spark, tmp_path, DeltaFormat(readers="widest"))
    cluster = f"ALTER TABLE delta.`{table.path}` CLUSTER BY"
    came = Col("five", "int", "integer", None, 5, "5")

    spark.sql(f"{cluster} (b)")
    with pytest.raises(TableError, match="clustered by a column that goes"):
        alter(table, topic, [came])
    table.tables = DeltaFormat(private=False, readers="widest")
    with pytest.raises(TableError, match="Delta's public interface"):
        table.apply(held=False)
    left = spark.read.format("delta").load(table.path)
    assert sorted(row.b for row in left.collect()) == ["changed", "copied", "copied"]

    spark.sql(f"{cluster} (id)")
    table.tables = DeltaFormat(readers="widest")
    table.apply(held=False)

    assert table.rows() == [(*row, 5) for row in EXPECTED]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").first()
    assert detail is not None and detail.clusteringColumns == ["id"]
    assert detail.minReaderVersion == 1


@pytest.mark.usefixtures("_marking")
def test_a_name_that_needs_column_mapping_holds_its_table_and_names_the_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [ID, Col("a_x0020_b", "int", "integer", "a b", 2)]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns[:1], ["id"])
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1})
    added = Direct(spark, tmp_path / "added", topic, opened("delta", "widest"))
    added.apply()
    topic.columns = columns
    topic.change("c", 0xA0, 1, after={"id": 2, "a_x0020_b": 3})
    copied = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    copied.truncate(0x90, 0, snapshot="first")
    copied.change("r", 0x90, 0, after={"id": 1, "a_x0020_b": 3})

    for table in (added, Direct(spark, tmp_path / "copied", copied, opened("delta", "widest"))):
        with pytest.raises(TableError, match="the column 'a b' can be in Delta tables with column"):
            table.apply()
    assert added.rows() == [(1,)]


def test_iceberg_s_changelog_has_each_net_change_once_where_it_has_no_deletion_vectors(
    spark: SparkSession, tables: dict[tuple[TableFormatName, Readers], str]
) -> None:
    session = spark.newSession()

    def changes(readers: Readers) -> dict[int, list[tuple[Any, ...]]]:
        """The changes of each snapshot, by the LSN of its cut."""
        path = Path(tables["iceberg", readers])
        catalog = catalog_of(session, str(path.parent))
        session.sql(
            f"CALL {catalog}.system.create_changelog_view(table => '{path.name}',"
            " changelog_view => 'changes', identifier_columns => array('id'))"
        )
        commits = session.sql(
            "SELECT snapshot_id, get_json_object(summary['pgsluice.commit'], '$.end_lsn') AS lsn"
            f" FROM {catalog}.{path.name}.snapshots"
        )
        lsn_of = {row.snapshot_id: int(row.lsn) for row in commits.collect()}
        found: dict[int, list[tuple[Any, ...]]] = {}
        for row in session.table("changes").collect():
            *values, kind, _ordinal, snapshot = row
            found.setdefault(lsn_of[snapshot], []).append((kind, *values))
        return {lsn: sorted(listed) for lsn, listed in sorted(found.items())}

    assert list(changes("widest").values()) == [
        [("INSERT", key, key, "copied") for key in (1, 2, 3, 4)],
        [
            ("DELETE", 2, 2, "copied"),
            ("UPDATE_AFTER", 1, 10, "changed"),
            ("UPDATE_BEFORE", 1, 1, "copied"),
        ],
        [
            ("INSERT", 7, BIG, "new"),
            ("UPDATE_AFTER", 3, BIG, "copied"),
            ("UPDATE_BEFORE", 3, 3, "copied"),
        ],
    ]
    with pytest.raises(UnsupportedOperationException, match=r"Delete files are .* not supported"):
        changes("current")
