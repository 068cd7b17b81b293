"""How queries over few records are evaluated."""

from __future__ import annotations

import pytest

from spark_consumer.spark.tuning import SMALL_QUERIES, query_settings

MIB = 1024 * 1024


@pytest.mark.parametrize(("table", "small"), [(0, True), (32 * MIB, True), (32 * MIB + 1, False)])
def test_a_table_that_is_not_large_is_read_by_interpreted_expressions(
    table: int, small: bool
) -> None:
    assert query_settings(table) == (SMALL_QUERIES if small else {})


def test_a_table_of_unknown_size_may_be_large() -> None:
    assert query_settings(None) == {}
