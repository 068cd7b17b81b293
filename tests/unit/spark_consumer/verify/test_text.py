"""Texts of values that are compared."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    StructType,
    VariantType,
)

from spark_consumer.verify.text import mark, plain_text, shown, value_text

FLOATS = [pytest.param(FloatType(), id="real"), pytest.param(DoubleType(), id="double precision")]


@pytest.mark.parametrize("item", FLOATS)
@pytest.mark.parametrize("text", ["{{1,2}}", "[0:1]={1,2}"])
def test_an_array_that_no_table_can_hold_is_shown_as_it_is(text: str, item: DataType) -> None:
    kind = ArrayType(item)

    assert value_text(text, kind) == plain_text(text, kind) == text
    assert shown(mark(value_text(text, kind)), kind) == text


def test_a_vector_is_compared_by_the_bits_of_its_items() -> None:
    whole = IntegerType()
    sparse = StructType().add("dimensions", whole).add("indices", ArrayType(whole))
    sparse = sparse.add("values", ArrayType(FloatType()))

    assert value_text("[0.5,-0]", ArrayType(FloatType())) == "[1056964608,-2147483648]"
    assert value_text("{2:0.5}/3", sparse) == "{2:1056964608}/3"
    for text, kind in (("[0.5,-2.0]", ArrayType(FloatType())), ("{2:0.5}/3", sparse)):
        assert shown(mark(value_text(text, kind)), kind) == text
    assert plain_text(value_text("{}/3", sparse), sparse) == "{}/3"


@pytest.mark.parametrize("item", FLOATS)
def test_an_array_of_floating_point_numbers_is_compared_by_their_bits(item: DataType) -> None:
    kind = ArrayType(item)

    assert value_text("{0.5,NULL,-0}", kind) != value_text("{0.5,NULL,0}", kind)
    assert plain_text(value_text("{0.5,NULL,-2}", kind), kind) == "{0.5,NULL,-2.0}"


@pytest.mark.parametrize("depth", [10, 990, 1000])
def test_json_of_any_depth_that_spark_parses_is_normalised(depth: int) -> None:
    levels = depth // 2
    text = '[{"b": "x\\"]", "a" : ' * levels + "[ 1.50 , null]" + "} , -0 ]" * levels
    same = '[{"a":' * levels + "[1.5,null]" + ',"b":"x\\"]"},0]' * levels

    assert value_text(text, VariantType()) == same
