"""What the job reads from an envelope's schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import schemas
from spark_consumer.errors import ContractError
from spark_consumer.kafka.layout import value_layout

ENVELOPE: dict[str, Any] = dict(schemas.load("envelope"))


def test_the_columns_are_those_of_the_row() -> None:
    assert [column.field for column in value_layout(ENVELOPE).columns] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [["null", "string"], "string", ["null", "Other"], {}, 7, None])
def test_a_schema_whose_row_after_the_change_is_of_another_type_is_no_envelope(kind: Any) -> None:
    schema = copy.deepcopy(ENVELOPE)
    schema["fields"][1]["type"] = kind

    with pytest.raises(ContractError, match="is not an envelope"):
        value_layout(schema)
