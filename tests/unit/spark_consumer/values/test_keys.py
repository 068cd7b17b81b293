"""When two values of a key are equal to the Spark job."""

from __future__ import annotations

import pytest

from spark_consumer.errors import TableError
from spark_consumer.values.keys import canonical


@pytest.mark.parametrize("pg_type", ["characters.name", "numeric_codes.code", "intervals.label"])
def test_a_type_in_a_schema_called_like_another_type_is_compared_as_text(pg_type: str) -> None:
    assert canonical("v", "string", pg_type, key=True) == "v"


@pytest.mark.parametrize(
    "pg_type", ["jsonb", "citext", "public.citext", "jsonb[]", "interval day to minute[]"]
)
def test_a_key_of_a_type_whose_equality_is_not_known_is_refused(pg_type: str) -> None:
    with pytest.raises(TableError, match="a key column of type"):
        canonical("v", "string", pg_type, key=True)

    assert canonical("v", "string", pg_type, key=False) == "v"


@pytest.mark.parametrize("pg_type", ["jsonb", "interval", "character(3)"])
def test_a_value_that_is_no_text_is_compared_by_spark(pg_type: str) -> None:
    assert canonical("v", "bigint", pg_type, key=True) == "v"
