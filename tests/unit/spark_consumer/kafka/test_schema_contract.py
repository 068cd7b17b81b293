"""Which writer schemas the job accepts."""

from __future__ import annotations

import json
from dataclasses import replace

from gateway.definitions.model import Element
from gateway.envelope.schema import describe
from schemas.settings.tables import TypesTable
from spark_consumer.kafka.schema_contract import parsed_schema
from tests.unit.envelope.columns import column

PRICE = Element(1700, (10 << 16 | 2) + 4, "numeric", "b")


def test_the_widest_table_with_the_deepest_types_is_accepted() -> None:
    columns = [
        replace(column(f"c{number}", (1231, "numeric(10,2)[]")), element=PRICE)
        for number in range(1600)  # the most columns that PostgreSQL allows
    ]
    schema = describe("public", "t", columns, types=TypesTable(arrays="native")).value_schema

    found = parsed_schema(1, json.dumps(schema))

    row = found["fields"][0]["type"][1]
    assert len(row["fields"]) == 1600
    assert row["fields"][0]["type"][1]["items"][1] == {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 10,
        "scale": 2,
    }
