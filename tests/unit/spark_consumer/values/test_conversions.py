"""Values that become expressions of Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StructField

from spark_consumer.values.conversions import MOST_LITERALS, literal


def test_an_array_that_would_make_a_plan_too_large_is_refused() -> None:
    numbers = StructField("a", ArrayType(IntegerType()), True, {"comment": "integer[]"})
    text = f"{{{','.join(['7'] * (MOST_LITERALS + 1))}}}"

    with pytest.raises(ValueError, match="an array of more than 1,000 items"):
        literal(text, numbers)
