"""Who may change schemas in the registry steers the readers of the Spark job by what they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_consumer.errors import ContractError
from spark_consumer.kafka.layout import value_layout
from spark_consumer.kafka.schema_contract import parsed_schema
from tests.support.spark.records import Col, value_schema

COLUMNS = [
    Col("a", "int", "integer", number=1),
    Col("b", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "numeric"),
    Col("c", "string", "text", "C ", 3, "x"),
]
STEERING: dict[str, Any] = {
    "spark.sql.catalyst.type": "array<" * 5_000 + "int" + ">" * 5_000,
    "avro.java.string": "Bogus",
    "java-class": "java.net.URL",
    "java-key-class": "java.io.File",
    "aliases": ["b"],
    "order": "ignore",
    "more": 10**2_000,
}


def columns_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return list(schema["fields"][0]["type"][1]["fields"])


def test_of_a_schema_only_what_a_gateway_writes_is_kept() -> None:
    schema = value_schema("public", "t", COLUMNS)
    hostile = json.loads(json.dumps(schema))
    for column in columns_of(hostile):
        column.update(STEERING)
        kind = column["type"][1]
        column["type"][1] = {**({"type": kind} if isinstance(kind, str) else kind), **STEERING}
    hostile.update(STEERING)

    found = parsed_schema(1, json.dumps(hostile))

    assert parsed_schema(1, json.dumps(schema)) == schema
    assert not [name for name in STEERING if f'"{name}":' in json.dumps(found)]
    assert value_layout(found) == value_layout(schema)
    assert columns_of(found)[1]["type"][1] == columns_of(schema)[1]["type"][1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pg_column", 5),
        ("pg_column", ["a"]),
        ("pg_type", 7),
        ("pg_missing", {"a": 1}),
        ("pg_attnum", "x"),
        ("pg_computed", "yes"),
    ],
)
def test_what_is_said_of_a_column_has_its_type(name: str, value: object) -> None:
    schema = value_schema("public", "t", COLUMNS)
    columns_of(schema)[0][name] = value

    with pytest.raises(ContractError, match=f"{name} of the field a"):
        parsed_schema(1, json.dumps(schema))


@pytest.mark.parametrize(
    "symbols", [None, "ab", ["a", "a"], [5], [["a"]], ["\x1b"], [f"s{n}" for n in range(40_001)]]
)
def test_an_enumeration_that_is_none_is_refused(symbols: object) -> None:
    schema = value_schema("public", "t", COLUMNS)
    kind = {"type": "enum", "name": "E", "symbols": symbols}
    schema["fields"].append({"name": "x", "type": kind})

    with pytest.raises(ContractError, match="it has an enumeration"):
        parsed_schema(1, json.dumps(schema))
