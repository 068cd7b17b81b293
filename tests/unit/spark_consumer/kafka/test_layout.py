"""What the job reads from an envelope's schema."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import schemas
from gateway.envelope.schema import describe
from schemas.settings.tables import Envelope
from spark_consumer.errors import ContractError
from spark_consumer.kafka.layout import value_layout
from spark_consumer.kafka.schema_contract import parsed_schema
from tests.unit.envelope.columns import T1

ENVELOPE: dict[str, Any] = dict(schemas.load("envelope"))


def test_the_columns_are_those_of_the_row() -> None:
    assert [column.field for column in value_layout(ENVELOPE).columns] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [["null", "string"], "string", ["null", "Other"], {}, 7, None])
def test_a_schema_whose_row_after_the_change_is_of_another_type_is_no_envelope(kind: Any) -> None:
    schema = copy.deepcopy(ENVELOPE)
    schema["fields"][1]["type"] = kind

    with pytest.raises(ContractError, match="is not an envelope"):
        value_layout(schema)


@pytest.mark.parametrize(
    ("envelope", "why"),
    [
        (Envelope("row", truncates=False), "the format row"),
        (Envelope("debezium", truncates=False), "a topic without `t` records"),
        (Envelope("pgsluice", truncates=False), "a topic without `t` records"),
    ],
)
def test_a_topic_of_which_no_equal_table_can_be_made_is_refused(
    envelope: Envelope, why: str
) -> None:
    written = describe("public", "t1", T1, envelope=envelope).value_schema

    with pytest.raises(ContractError, match=why):
        value_layout(parsed_schema(1, json.dumps(written)))


def test_debezium_s_envelope_has_the_same_columns() -> None:
    written = describe("public", "t1", T1, envelope=Envelope("debezium")).value_schema

    assert value_layout(parsed_schema(1, json.dumps(written))) == value_layout(ENVELOPE)
