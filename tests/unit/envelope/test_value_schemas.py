"""Schemas of the formats: what Debezium's consumers and sinks without an envelope read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fastavro
import pytest

import schemas
from gateway.core.errors import SchemaError
from gateway.definitions.model import Element
from gateway.envelope.schema import describe
from schemas.settings.tables import Envelope, TypesTable
from tests.unit.envelope.columns import INT4, NATIVE, T1, TEXT, EnvelopeColumn, column, numeric

DEBEZIUM = Envelope("debezium")
CONNECT = Envelope("debezium", connect_times=True)
ROW = Envelope("row", truncates=False)


@pytest.mark.parametrize(("envelope", "name"), [(DEBEZIUM, "debezium"), (ROW, "row")])
def test_the_manuals_t1_has_the_schema_of_the_contract(envelope: Envelope, name: str) -> None:
    described = describe("public", "t1", T1, ("a", "c"), envelope=envelope)

    assert described.value_schema == schemas.load(f"envelope-{name}")


def test_a_topic_without_truncates_says_so() -> None:
    plain = describe("public", "t1", T1).value_schema
    without = describe("public", "t1", T1, envelope=Envelope(truncates=False)).value_schema

    assert without == {**plain, "pg_truncates": False}


def avro_of(of: EnvelopeColumn, envelope: Envelope, types: TypesTable) -> Any:
    schema = describe("public", "t", [of], envelope=envelope, types=types).value_schema
    fastavro.parse_schema(schema)
    (field,) = schema["fields"][0]["type"][1]["fields"]
    assert field["type"][0] == "null"
    return field["type"][1]


def named(avro: str, name: str, **more: str) -> dict[str, Any]:
    return {"type": avro, **more, "connect.version": 1, "connect.name": name}


TIME = "io.debezium.time."
DATA = "io.debezium.data."
CONNECT_S = "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("oid", "micros", "connect"),
    [
        pytest.param(
            1082,
            named("int", TIME + "Date"),
            named("int", CONNECT_S + "Date", logicalType="date"),
            id="date",
        ),
        pytest.param(
            1083,
            named("long", TIME + "MicroTime"),
            named("int", CONNECT_S + "Time", logicalType="time-millis"),
            id="time",
        ),
        pytest.param(
            1114,
            named("long", TIME + "MicroTimestamp"),
            named("long", CONNECT_S + "Timestamp", logicalType="timestamp-millis"),
            id="timestamp",
        ),
        pytest.param(
            1184,
            named("string", TIME + "ZonedTimestamp"),
            named("string", TIME + "ZonedTimestamp"),
            id="timestamptz",
        ),
        pytest.param(2950, named("string", DATA + "Uuid"), None, id="uuid"),
        pytest.param(114, named("string", DATA + "Json"), None, id="json"),
        pytest.param(3802, named("string", DATA + "Json"), None, id="jsonb"),
        pytest.param(142, named("string", DATA + "Xml"), None, id="xml"),
        pytest.param(3614, named("string", DATA + "Tsvector"), None, id="tsvector"),
        pytest.param(25, "string", None, id="text"),
        pytest.param(1186, "string", None, id="interval"),
        pytest.param(17, "bytes", None, id="bytea"),
    ],
)
def test_debezium_s_semantic_types(oid: int, micros: object, connect: object) -> None:
    """Source: Debezium's PostgresValueConverter.schemaBuilder, and the time precision modes

    ``microseconds`` and ``connect`` of its TemporalPrecisionMode.
    """
    of = column("c", (oid, "its name"))

    assert avro_of(of, DEBEZIUM, TypesTable()) == micros
    assert avro_of(of, CONNECT, TypesTable()) == (connect or micros)


def test_a_decimal_is_connect_s_by_its_logical_type() -> None:
    assert avro_of(numeric("c", 10, 2), DEBEZIUM, TypesTable()) == {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 10,
        "scale": 2,
    }


@pytest.mark.parametrize("oid", [1082, 1083, 1114, 1184])
def test_a_column_named_as_text_is_text(oid: int) -> None:
    types = TypesTable(columns={"public.t.c": "text"})

    assert avro_of(column("c", (oid, "its name")), DEBEZIUM, types) == "string"


def test_the_key_has_the_same_types_and_a_name() -> None:
    key = describe("public", "t", [column("c", (1082, "date"))], ("c",), envelope=DEBEZIUM)

    assert key.key_schema == {
        "type": "record",
        "name": "Key",
        "namespace": "pgsluice.public.t",
        "fields": [{"name": "c", "type": named("int", TIME + "Date")}],
        "connect.name": "pgsluice.public.t.Key",
    }


def test_an_ltree_is_debezium_s_whatever_its_schema() -> None:
    """Source: Debezium's PostgresSchemaFactory.datatypeLtreeSchema."""
    for name in ("ltree", "public.ltree", '"My types".ltree'):
        found = avro_of(column("c", (65_000, name)), DEBEZIUM, TypesTable())
        assert found == named("string", DATA + "Ltree")


def connect_of(schema: dict[str, Any]) -> tuple[Any, Any]:
    return schema["connect.name"], schema.get("connect.version")


def test_debezium_s_records_have_its_names_and_versions() -> None:
    """The envelope is version 2, source and transaction are 1, and rows have none.

    Source: Debezium's Envelope.SCHEMA_VERSION, SchemaFactory.sourceInfoSchemaBuilder and
    transactionBlockSchema, TableSchemaBuilder.create.
    """
    schema = describe("public", "t1", T1, ("a", "c"), envelope=DEBEZIUM).value_schema
    kinds = {field["name"]: field["type"] for field in schema["fields"]}

    assert connect_of(schema) == ("pgsluice.public.t1.Envelope", 2)
    assert connect_of(kinds["before"][1]) == ("pgsluice.public.t1.Value", None)
    assert connect_of(kinds["source"]) == ("io.debezium.connector.postgresql.Source", 1)
    assert connect_of(kinds["transaction"][1]) == ("event.block", 1)


def test_debezium_s_source_has_its_fields() -> None:
    """Those that are always null here are nullable, and ``snapshot`` is an Enum.

    Source: Debezium's SchemaFactory.sourceInfoSchemaBuilder and snapshotRecordSchema,
    PostgresSourceInfoStructMaker.init.
    """
    schema = describe("public", "t1", T1, ("a", "c"), envelope=DEBEZIUM).value_schema
    source = schema["fields"][2]["type"]["fields"]
    kinds = {field["name"]: field["type"] for field in source}

    required = {"version": "string", "connector": "string", "name": "string", "db": "string"}
    required |= {"schema": "string", "table": "string", "ts_ms": "long", "lsn": "long"}
    optional = {"sequence": "string", "origin": "string"}
    optional |= dict.fromkeys(("ts_us", "ts_ns", "txId", "xmin", "origin_lsn"), "long")
    assert required.items() <= kinds.items()
    assert {name: ["null", kind] for name, kind in optional.items()}.items() <= kinds.items()
    assert kinds["snapshot"]["connect.parameters"] == {
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,"
        "incremental"
    }


def test_a_row_has_the_types_of_the_envelope() -> None:
    columns = [column("day", (1082, "date")), column("clock", (1083, "time without time zone"))]

    row = describe("public", "t", columns, envelope=ROW).value_schema

    plain = describe("public", "t", columns).value_schema["fields"][0]["type"][1]
    assert row["fields"][:2] == plain["fields"]


NESTED = [
    column("span", (1186, "interval")),
    column("numbers", (3904, "int4range")),
    column("pairs", (65_000, "public.hstore")),
    column("dense", (65_000, "public.vector(3)")),
    column("sparse", (65_000, "public.sparsevec(9)")),
    replace(column("spans", (1187, "interval[]")), element=Element(1186, -1, "interval", "b")),
]


@pytest.mark.parametrize("envelope", [DEBEZIUM, CONNECT, ROW], ids=["debezium", "connect", "row"])
def test_types_of_several_parts_are_those_of_the_envelope(envelope: Envelope) -> None:
    plain = describe("public", "t", NESTED, types=NATIVE).value_schema
    schema = describe("public", "t", NESTED, types=NATIVE, envelope=envelope).value_schema

    fastavro.parse_schema(schema)
    row = schema if envelope is ROW else schema["fields"][0]["type"][1]
    assert row["fields"][: len(NESTED)] == plain["fields"][0]["type"][1]["fields"]


@pytest.mark.parametrize(
    ("oid", "bound"),
    [
        (3908, named("long", TIME + "MicroTimestamp")),
        (3910, named("string", TIME + "ZonedTimestamp")),
        (3912, named("int", TIME + "Date")),
    ],
)
def test_bounds_and_items_have_debezium_s_semantic_types(oid: int, bound: object) -> None:
    element = Element(oid, -1, "a range", "b")
    array = replace(column("c", (65_000, "an array")), element=element)

    found = avro_of(column("c", (oid, "a range")), DEBEZIUM, NATIVE)

    assert [field["type"] for field in found["fields"][:2]] == [["null", bound]] * 2
    assert avro_of(array, DEBEZIUM, NATIVE)["items"] == ["null", found]


@pytest.mark.parametrize("name", ["__op", "__lsn", "__deleted", "__unchanged"])
def test_a_row_s_own_fields_are_not_to_be_columns(name: str) -> None:
    columns = [column("a", INT4), column(name, TEXT)]

    with pytest.raises(SchemaError, match=name):
        describe("public", "t", columns, envelope=ROW)
    describe("public", "t", columns, envelope=DEBEZIUM)
