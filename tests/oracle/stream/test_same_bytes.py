"""Random values of every type: text mode, binary mode and copies make the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final, cast

import fastavro
import pytest

from schemas.settings.tables import TYPE_CHOICES
from tests.support.backends.servers import Database
from tests.support.gateway.process import Read, TopicReader
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.majors import alternating
from tests.support.run.seeds import in_turn, setseed
from tests.support.workloads.values import (
    ARRAYS,
    CHOSEN,
    SCALARS,
    TYPES,
    columns_sql,
    rows_sql,
)

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.seeded]

TEXT_ONLY: Final = ("money", "money[]")
"""Types that a binary stream cannot have (docs/operations.md)."""
NATIVE: Final = {n: v for n, v in {**SCALARS, **ARRAYS}.items() if n not in TEXT_ONLY}
TABLES: Final = {
    "native": NATIVE,
    "printed": {n: v for n, v in NATIVE.items() if n in CHOSEN or n in ARRAYS},
    "bag": NATIVE,
}
ROWS: Final = 60

PROCESSED: Final = {"ts_ms"}
"""Fields that say when a gateway processed the change."""
POSITION: Final = {
    *("op", "transaction", "source.snapshot", "source.ts_ms", "source.txId", "source.lsn"),
    *("source.commit_lsn", "source.seq", "__op", "__lsn"),
}
"""Fields in which a row of a copy differs from the insert of that row."""


class FieldReader(TopicReader):
    """Reads keys and values as the bytes of each field, by its name; records have fields, too."""

    def __init__(self, bootstrap: str, registry: str) -> None:
        super().__init__(bootstrap, registry)
        self._fields: dict[bytes, list[tuple[str, Any]]] = {}

    def decode(self, wire: str | bytes | None) -> dict[str, Any] | None:
        """The bytes of the fields in their order, and those before the first one."""
        if wire is None:
            return None
        assert isinstance(wire, bytes)
        head, source = wire[:5], BytesIO(wire)
        source.seek(5)
        if head not in self._fields:
            schema = self.schema(int.from_bytes(head[1:]))
            self._fields[head] = list(fields_of(plain(schema), {}))
        found = {"head": head}
        for name, parsed in self._fields[head]:
            start = source.tell()
            fastavro.schemaless_reader(source, parsed, None)
            found[name] = wire[start : source.tell()]
        assert source.tell() == len(wire)
        return found


def plain(schema: Any) -> Any:
    """A schema without logical types: Python has no dates before the year 1, nor infinite ones."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if isinstance(schema, dict):
        return {name: plain(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def fields_of(
    schema: dict[str, Any], named: dict[str, Any], within: str = ""
) -> Iterator[tuple[str, Any]]:
    """The fields of a record and of records in it, each as the schema of a record with only it."""
    for field in schema["fields"]:
        name = f"{within}{field['name']}"
        if isinstance(field["type"], dict) and field["type"]["type"] == "record":
            yield from fields_of(field["type"], named, f"{name}.")
        else:
            only = {**schema, "name": f"only_{name.replace('.', '_')}", "fields": [field]}
            yield name, fastavro.parse_schema(only, cast("Any", named))


def flat(record: Read, subscription: str, left_out: set[str] = PROCESSED) -> dict[str, Any]:
    """A record's place, headers, and the bytes of the fields in its key and value, by name."""
    value = (record.value or {}).items()
    return {
        "topic": record.topic.removeprefix(subscription),
        "partition": record.partition,
        "headers": record.headers,
        **{f"key {name}": data for name, data in (record.key or {}).items()},
        **{f"value {name}": data for name, data in value if name not in left_out},
    }


def differences(
    records: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]
) -> list[tuple[int, str, Any, Any]]:
    """The parts in which records differ, and the number of the record."""
    assert len(records) == len(others)
    return [
        (number, name, one.get(name), other.get(name))
        for number, (one, other) in enumerate(zip(records, others, strict=True))
        for name in one.keys() | other.keys()
        if one.get(name) != other.get(name)
    ]


@alternating(__name__, 16, 18)
@pytest.mark.parametrize("kind", in_turn(__name__, ["pgsluice", "debezium", "row"]))
def test_text_binary_and_copy_make_the_same_bytes_of_every_type(
    kind: str, database: Database, kafka: str, registry: str, tmp_path: Path
) -> None:
    scenes: dict[str, Scene] = {}

    def made(way: str, options: str, publications: str = "p, b") -> Scene:
        name = f"{way}_{database.name}"
        scenes[way] = Scene(
            tmp_path / way,
            database.dsn,
            kafka,
            registry,
            name,
            "CREATE PUBLICATION p FOR TABLE native, printed; CREATE PUBLICATION b FOR TABLE bag;"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {publications} WITH ({options});",
            {
                "gateway": {"name": "same"},
                "envelope": {"format": kind},
                "types": dict.fromkeys(TYPE_CHOICES, "native"),
                "types.columns": {f"public.printed.{n}": "text" for n in TABLES["printed"]},
            },
        )
        return scenes[way]

    try:
        with database.connect() as connection:
            connection.execute(
                f"{TYPES} CREATE TABLE native (id int PRIMARY KEY, {columns_sql(NATIVE)});"
                f"CREATE TABLE printed (id int PRIMARY KEY, {columns_sql(TABLES['printed'])});"
                f"CREATE TABLE bag (id int, {columns_sql(NATIVE)});"
                "ALTER TABLE bag REPLICA IDENTITY FULL".encode()
            )
            text = made("text", "copy_data = false")
            binary = made("binary", "copy_data = false, binary = true")
            for one in (text, binary):
                assert f"binary={one is binary}" in one.run_to("0/1").err
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(setseed())
            for table, values in TABLES.items():
                connection.execute(rows_sql(table, values.values(), 1, ROWS).encode())
            # The format `row` does not copy a table without a key.
            copy = made("copy", "copy_data = true", "p" if kind == "row" else "p, b")
            copy.run_to("0/1")
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET id = id + 1000 WHERE id % 7 = 0".encode())
                connection.execute(f"UPDATE {table} SET \"time\" = '1:00' WHERE id < 9".encode())
                connection.execute(f"DELETE FROM {table} WHERE id % 9 = 0".encode())
            end = current_lsn(connection)
            for one in (text, binary):
                one.run_to(end)
    finally:
        for one in scenes.values():
            one.close()

    with FieldReader(kafka, registry) as reader:
        for table in TABLES:
            streamed, binaries = (reader.read(one.topic(table)) for one in (text, binary))
            assert (
                differences(
                    [flat(record, text.slot) for record in streamed],
                    [flat(record, binary.slot) for record in binaries],
                )
                == []
            ), table
            assert sum(record.op != "c" for record in streamed) > ROWS // 7, table
            if kind == "row" and table == "bag":
                continue
            copied = [record for record in reader.read(copy.topic(table)) if record.op == "r"]
            inserted = streamed[:ROWS]
            assert len(copied) == len(inserted)
            assert differences(by_key(copied, copy.slot), by_key(inserted, text.slot)) == [], table


def by_key(records: Sequence[Read], subscription: str) -> list[dict[str, Any]]:
    """Rows in the order of their keys, without what their operations and positions are."""
    rows = [flat(record, subscription, PROCESSED | POSITION) for record in records]
    for row in rows:
        del row["headers"]
    return sorted(rows, key=lambda row: bytes(row["key id"]))
