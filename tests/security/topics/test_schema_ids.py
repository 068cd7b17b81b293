"""Floods of unregistered schema ids by a topic writer, and their bounded cost."""

from __future__ import annotations

import copy
import json
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructType

import schemas
from gateway.core.errors import ProtocolError
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry as GatewayRegistry
from spark_consumer.errors import ContractError
from spark_consumer.kafka.batch_profile import survey
from spark_consumer.kafka.markers import Copy, Damaged, Marker, read_markers
from spark_consumer.kafka.registry import Registry
from tests.support.backends.registry_answers import (
    AnsweringRegistry,
    answering_registry,
    schema_answer,
)
from tests.support.spark.records import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKER = schemas.load("transaction")
OURS = 1
PROGRESS = {"kind": "PROGRESS", "end_lsn": 0x100}
GOOD = encode(OURS, MARKER, PROGRESS)
ABSENT = (404, b'{"error_code": 40403, "message": "Schema not found"}')
MANY = 400
FEW = 65
"""Requests that a batch of markers may cost at most."""


def framed(number: int, body: bytes = b"\0" * 20) -> bytes:
    return struct.pack(">bI", 0, number) + body


def described(number: int) -> dict[str, Any]:
    """A schema of markers that is the only one with this description."""
    return {**MARKER, "doc": f"number {number}"}


@pytest.fixture
def attacked() -> Iterator[AnsweringRegistry]:
    with answering_registry(None, {OURS: schema_answer(MARKER)}) as server:
        yield server


def frame(spark: SparkSession, values: list[bytes]) -> DataFrame:
    kind = StructType().add("offset", LongType()).add("value", "binary")
    return spark.createDataFrame(list(enumerate(values)), kind)


@pytest.mark.spark
def test_markers_with_ids_that_nobody_has_registered(
    spark: SparkSession, attacked: AnsweringRegistry
) -> None:
    ids = range(1_000_000, 1_000_000 + MANY)
    attacked.answers |= dict.fromkeys(ids, ABSENT)
    values = [GOOD, *map(framed, ids), GOOD]
    with closing(Registry(attacked.url, {})) as registry:
        read = read_markers(frame(spark, values), registry)

    assert [type(one) for one in read.found] == [Marker]
    assert read.error is not None
    assert "marker at offset 1: the schema registry has no schema" in read.error.message
    assert len(attacked.asked) <= 3, len(attacked.asked)


@pytest.mark.spark
def test_markers_with_a_schema_each_that_somebody_has_registered(
    spark: SparkSession, attacked: AnsweringRegistry
) -> None:
    ids = range(2, 2 + MANY)
    attacked.answers |= {number: schema_answer(described(number)) for number in ids}
    values = [encode(number, MARKER, PROGRESS) for number in (OURS, *ids)]
    with closing(Registry(attacked.url, {})) as registry:
        read = read_markers(frame(spark, values), registry)

    assert read.found and all(isinstance(one, Marker) for one in read.found)
    assert read.error is not None and "has more than" in read.error.message
    assert f"marker at offset {len(read.found)}: " in read.error.message
    assert len(attacked.asked) <= FEW


def _changed(change: str) -> dict[str, Any]:
    """The schema of markers, changed into one that the job cannot read them by."""
    schema: dict[str, Any] = copy.deepcopy(MARKER)
    fields = {field["name"]: field for field in schema["fields"]}
    match change:
        case "a name that is none":
            schema["name"] = "1 Marker"
        case "no record for writers":
            fields["writer"]["type"] = ["null", "string"]
            fields["taken_from"]["type"] = ["null", "string"]
        case "texts for numbers":
            for field in fields["offsets"]["type"]["items"]["fields"]:
                field["type"] = "string"
        case "fields that may be null":
            for field in fields["offsets"]["type"]["items"]["fields"]:
                field["type"] = ["null", field["type"]]
        case "offsets that may be null":
            fields["offsets"]["type"]["items"] = ["null", fields["offsets"]["type"]["items"]]
        case "a kind that is a number":
            fields["kind"]["type"] = "int"
        case "bytes for a text":
            fields["offsets"]["type"]["items"]["fields"][0]["type"] = "bytes"
        case "copies without a reason":
            copied = fields["copy"]["type"][1]["fields"]
            copied[:] = [one for one in copied if one["name"] != "reason"]
        case "a megabyte of description":
            schema["doc"] = "x" * (1 << 20)
    return schema


@pytest.mark.spark
@pytest.mark.parametrize(
    "change",
    [
        "a name that is none",
        "no record for writers",
        "texts for numbers",
        "fields that may be null",
        "offsets that may be null",
        "a kind that is a number",
        "bytes for a text",
        "copies without a reason",
        "a megabyte of description",
    ],
)
def test_a_schema_of_markers_that_does_not_fit_is_named_with_its_offset(
    spark: SparkSession, attacked: AnsweringRegistry, change: str
) -> None:
    schema = _changed(change)
    attacked.answers[2] = schema_answer(schema)
    offsets: list[Any] = [
        {
            "topic": None if "null" in change else "s.public.t",
            "partition": 0,
            "first_offset": 0,
            "next_offset": 1,
            "previous_offset": 0,
            "records": 1,
        }
    ]
    if change == "offsets that may be null":
        offsets = [None]
    if change == "texts for numbers":
        offsets = [dict.fromkeys(offsets[0], "x")]
    if change == "bytes for a text":
        offsets[0]["topic"] = b"s.public.t"
    kind = 1 if change == "a kind that is a number" else "PROGRESS"
    datum = {"kind": kind, "end_lsn": 0x100, "offsets": offsets}
    written = {**MARKER, "fields": schema["fields"]}
    with closing(Registry(attacked.url, {})) as registry:
        read = read_markers(frame(spark, [GOOD, encode(2, written, datum)]), registry)

    assert isinstance(read.found[0], Marker)
    if read.error is None:
        assert isinstance(read.found[1], Damaged), read.found
    else:
        assert "marker at offset 1: schema 2 " in read.error.message


@pytest.mark.spark
def test_kinds_and_states_of_a_later_gateway_do_not_stop_the_reading(
    spark: SparkSession, attacked: AnsweringRegistry
) -> None:
    later: dict[str, Any] = copy.deepcopy(MARKER)
    fields = {field["name"]: field for field in later["fields"]}
    fields["kind"]["type"]["symbols"].append("SNAPSHOT")
    states = fields["copy"]["type"][1]["fields"][2]["type"]
    states["symbols"].append("paused")
    attacked.answers[2] = schema_answer(later)
    state = {"schema": "public", "table": "t", "state": "paused"}
    values = [
        encode(2, later, {"kind": "SNAPSHOT", "end_lsn": 1}),
        encode(2, later, {"kind": "COPY", "end_lsn": 1, "copy": state}),
    ]
    with closing(Registry(attacked.url, {})) as registry:
        read = read_markers(frame(spark, values), registry)

    assert read.error is None
    assert read.found == [Copy(1, "public.t", "paused")]


@pytest.mark.spark
def test_records_of_a_table_with_more_schemas_than_a_table_has(spark: SparkSession) -> None:
    rows = [
        ("s.public.t", 0, n, None, None, n.to_bytes(4, "big"), b"x", "c", None, None)
        for n in range(1, 1002)
    ]
    kind = (
        "topic string, partition int, offset long, key_id binary, key_body binary,"
        " value_id binary, value_body binary, op string, rekey string, fault string"
    )

    with pytest.raises(ContractError, match=r"topic s\.public\.t: records have more than 1000"):
        survey(spark.createDataFrame(rows, kind))


def test_schemas_are_kept_in_bounded_memory(attacked: AnsweringRegistry) -> None:
    large = schema_answer({"type": "record", "name": "r", "fields": [], "doc": "x" * 1_000_000})
    attacked.answers = dict.fromkeys(range(200), large)
    with closing(Registry(attacked.url, {})) as registry:
        tracemalloc.start()
        try:
            for number in range(200):
                registry.schema(number)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert kept < 80_000_000, kept


def test_a_refused_id_costs_a_reader_of_the_gateway_one_request(
    attacked: AnsweringRegistry,
) -> None:
    attacked.answers |= dict.fromkeys(range(2, 2 + MANY), ABSENT)
    with closing(GatewayRegistry({"url": attacked.url})) as registry:
        reader = RegisteredSchemas(registry)
        assert reader.decode(GOOD, "transaction")["kind"] == "PROGRESS"
        for number in (*range(2, 2 + MANY), *range(2, 2 + MANY)):
            with pytest.raises(ProtocolError):
                reader.decode(framed(number), "transaction")
        assert reader.decode(GOOD, "transaction")["kind"] == "PROGRESS"

    assert len(attacked.asked) == 256


def _referring(change: str) -> tuple[int, bytes]:
    """The answer for a schema whose types are in other schemas, which may be that one again."""
    references = {
        "itself": [{"name": "pgsluice.Marker", "subject": "s", "version": 1}],
        "many": [
            {"name": f"pgsluice.R{n}", "subject": f"r{n}", "version": 1} for n in range(10_000)
        ],
        "nothing that is one": 5,
    }
    kind = "pgsluice.Marker" if change == "itself" else "pgsluice.R1"
    fields = [*MARKER["fields"], {"name": "more", "type": ["null", kind]}]
    schema = {**MARKER, "fields": fields}
    body = {"schema": json.dumps(schema), "references": references[change]}
    return 200, json.dumps(body).encode()


@pytest.mark.parametrize("change", ["itself", "many", "nothing that is one"])
def test_a_schema_whose_types_are_in_others_is_refused_and_they_are_not_asked_for(
    attacked: AnsweringRegistry, change: str
) -> None:
    attacked.answers[2] = _referring(change)
    with (
        closing(GatewayRegistry({"url": attacked.url})) as ours,
        pytest.raises(ProtocolError),
    ):
        RegisteredSchemas(ours).decode(framed(2), "transaction")
    with closing(Registry(attacked.url, {})) as registry:
        registry.schema(OURS)
        with pytest.raises(ContractError, match=r"schema 2|id 2"):
            registry.schema(2)

    assert set(attacked.asked) == {OURS, 2} and len(attacked.asked) <= 4
