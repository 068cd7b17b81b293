"""Which writer schemas the job accepts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.definitions.model import Element
from gateway.envelope.schema import describe
from schemas.settings.consumer import JsonMode
from schemas.settings.tables import Envelope, TypesTable
from spark_consumer.kafka.schema_contract import parsed_schema
from tests.unit.envelope.columns import column

INSTANTS = Element(3910, -1, "tstzrange", "b")
NATIVE = TypesTable(arrays="native", ranges="native")


@pytest.mark.parametrize(
    ("envelope", "bound"),
    [
        (Envelope(), {"type": "long", "logicalType": "timestamp-micros"}),
        (Envelope("debezium"), {"type": "string", "logicalType": "zoned"}),
    ],
    ids=["pgsluice", "debezium"],
)
def test_the_widest_table_with_the_deepest_types_is_accepted(
    envelope: Envelope, bound: object
) -> None:
    columns = [
        replace(column(f"c{number}", (3911, "tstzrange[]")), element=INSTANTS)
        for number in range(1600)  # the most columns that PostgreSQL allows
    ]
    schema = describe("public", "t", columns, types=NATIVE, envelope=envelope).value_schema

    found = parsed_schema(1, json.dumps(schema))

    row = found["fields"][0]["type"][1]
    assert len(row["fields"]) == 1600
    assert row["fields"][0]["type"][1]["items"][1]["fields"][0] == {
        "name": "lower",
        "type": ["null", bound],
    }


def test_only_columns_of_json_and_jsonb_are_variants_and_only_if_the_job_wants_them() -> None:
    columns = [
        column("j", (114, "json")),
        column("b", (3802, "jsonb")),
        replace(column("d", (65_000, "public.facts")), base_type_oid=3802, base_type_name="jsonb"),
        column("t", (25, "text")),
        replace(column("a", (3807, "jsonb[]")), element=Element(3802, -1, "jsonb", "b")),
    ]
    texts = json.dumps(describe("public", "t", columns, types=NATIVE).value_schema)
    forged = json.loads(texts)
    forged["fields"][0]["type"][1]["fields"][3]["type"] = [
        "null",
        {"type": "string", "logicalType": "variant"},
    ]

    def variants(text: str, mode: JsonMode) -> list[str]:
        row = parsed_schema(1, text, mode)["fields"][0]["type"][1]
        return [field["name"] for field in row["fields"] if "variant" in str(field["type"])]

    assert variants(texts, "variant") == ["j", "b", "d"]
    assert variants(texts, "text") == []
    assert variants(json.dumps(forged), "text") == []


def test_a_default_of_any_depth_is_no_part_of_the_types() -> None:
    schema = describe("public", "t", [column("b", (3802, "jsonb"))], types=NATIVE).value_schema
    schema["fields"][0]["default"] = json.loads("[" * 600 + "]" * 600)

    found = parsed_schema(1, json.dumps(schema), "variant")

    (row_field,) = found["fields"][0]["type"][1]["fields"]
    assert "variant" in str(row_field["type"])
