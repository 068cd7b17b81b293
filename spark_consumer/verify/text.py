"""One text for equal values, whether they come from PostgreSQL, from a topic or from a Delta table.

It is what the type's output function prints under the settings that the gateway uses itself
(DateStyle ISO, TimeZone UTC, bytea_output hex), but for floating point numbers: of those it is the
bits, as a decimal number, since Java prints other digits than PostgreSQL; and of a VARIANT it is
what Spark prints. NULL is None. A value of
a column that is no key is its `mark` alone when it is long.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    StructField,
    StructType,
    VariantType,
)

from schemas.array_text import NotPlainError, array_items
from schemas.vector_text import sparsevec_parts, vector_items
from spark_consumer.names import quoted
from spark_consumer.values.conversions import (
    array_text,
    is_vector,
    printed_sql,
    sparsevec_text,
    vector_text,
)
from spark_consumer.values.variants import variant_text

__all__ = [
    "Row",
    "digest",
    "mark",
    "marks",
    "marks_sql",
    "plain_text",
    "row_digest_sql",
    "shown",
    "value_text",
]

Row: TypeAlias = tuple[str | None, ...]
"""A row: the mark of each value."""

LONG_BYTES: Final = 64


def value_text(text: str, kind: DataType) -> str:
    """Return the text of a value that PostgreSQL printed, for a column of type `kind`."""
    match kind:
        case FloatType():
            (bits,) = struct.unpack(">i", struct.pack(">f", float(text)))
            return str(bits)
        case DoubleType():
            (bits,) = struct.unpack(">q", struct.pack(">d", float(text)))
            return str(bits)
        case ArrayType(elementType=FloatType() | DoubleType() as item):
            return _each(text, partial(value_text, kind=item))
        case StructType(names=["dimensions", "indices", "values"]):
            return _each_of_sparse(text, partial(value_text, kind=FloatType()))
        case VariantType():
            return variant_text(text, _java_double)
    return text


def _java_double(value: float) -> str:
    """Return what Java prints, in 0.1 ms. Most numbers of a json are decimals to Spark."""
    jvm: Any = SparkContext._jvm
    return str(jvm.java.lang.Double.toString(value))


def _each(array: str, convert: Callable[[str], str]) -> str:
    """Return the text of an array or a vector, each of whose numbers is converted.

    An array that no table can hold stays as it is, so equals no array of a table: the source may
    have one that was not published.
    """
    if array[-1:] == "]":  # a vector's
        return f"[{','.join(convert(one.decode()) for one in vector_items(array.encode()))}]"
    try:
        items = [None if one is None else one.decode() for one in array_items(array.encode())]
    except NotPlainError:
        return array
    return f"{{{','.join('NULL' if one is None else convert(one) for one in items)}}}"


def _each_of_sparse(vector: str, convert: Callable[[str], str]) -> str:
    """Return the text of a sparse vector, each of whose values is converted."""
    dimensions, indices, values = sparsevec_parts(vector.encode())
    numbers = (convert(one.decode()) for one in values)
    pairs = (f"{index}:{number}" for index, number in zip(indices, numbers, strict=True))
    return f"{{{','.join(pairs)}}}/{dimensions}"


def plain_text(text: str, kind: DataType) -> str:
    """Invert `value_text`: return text that PostgreSQL reads as the same value."""
    match kind:
        case FloatType():
            return repr(struct.unpack(">f", struct.pack(">i", int(text)))[0])
        case DoubleType():
            return repr(struct.unpack(">d", struct.pack(">q", int(text)))[0])
        case ArrayType(elementType=FloatType() | DoubleType() as item):
            return _each(text, partial(plain_text, kind=item))
        case StructType(names=["dimensions", "indices", "values"]):
            return _each_of_sparse(text, partial(plain_text, kind=FloatType()))
    return text


def mark(text: str | None, *, key: bool = False) -> str | None:
    """Return the text of a value: ``=`` and its text; for a long one ``#``, length and MD5."""
    if text is None:
        return None
    if key or len(text) * 4 <= LONG_BYTES or len(encoded := text.encode()) <= LONG_BYTES:
        return "=" + text
    return f"#{len(encoded)}:{hashlib.md5(encoded, usedforsecurity=False).hexdigest()}"


def digest(row: Sequence[str | None]) -> str:
    """Return the MD5 of a row's marks, in hexadecimal digits."""
    return hashlib.md5(joined(row).encode(), usedforsecurity=False).hexdigest()


def joined(row: Sequence[str | None]) -> str:
    """Return the marks of a row as one text, different for different rows."""
    return "".join("-" if one is None else f"{len(one)}:{one}" for one in row)


def joined_sql(columns: Sequence[str]) -> str:
    """Return SQL of `joined`, over columns of marks."""
    names = [quoted(column) for column in columns]
    if not names:
        return "''"
    each = (f"coalesce(concat(length({name}), ':', {name}), '-')" for name in names)
    return f"concat({', '.join(each)})"


def row_digest_sql(columns: Sequence[str]) -> str:
    """Return SQL of `digest`, over columns of marks."""
    return f"md5({joined_sql(columns)})"


def shown(one: str | None, kind: DataType) -> str:
    """Return a mark in readable form."""
    if one is None:
        return "NULL"
    return plain_text(one[1:], kind) if one[0] == "=" else f"({one[1:].partition(':')[0]} bytes)"


def marks(table: DataFrame, key: Sequence[str] = ()) -> DataFrame:
    """Replace each value of a frame by its `mark`; those of the columns in `key` are in full."""
    names = table.columns
    texts = table.select(
        *(F.expr(text_sql(quoted(name), table.schema[name])).alias(name) for name in names)
    )
    return texts.select(*(F.expr(mark_sql(quoted(n), key=n in key)).alias(n) for n in names))


def mark_sql(text: str, *, key: bool = False) -> str:
    """Return SQL of the `mark` of a text, which appears several times in the result."""
    if key:
        return f"concat('=', {text})"
    long = f"concat('#', octet_length({text}), ':', md5({text}))"
    return f"IF(octet_length({text}) > {LONG_BYTES}, {long}, concat('=', {text}))"


def marks_sql(row: str, fields: Mapping[str, StructField], key: Collection[str] = ()) -> str:
    """Return SQL of an array of the marks of a row's values.

    A lambda's variable stands for what would otherwise be repeated wherever a value or a text
    appears: the expression of a wide row stays small, and nothing is evaluated twice.

    Args:
        row: SQL of a struct.
        fields: The columns, by the name of the struct's field.
        key: Names of the fields whose marks are in full.
    """
    if not fields:
        return "CAST(array() AS ARRAY<STRING>)"
    texts = ", ".join(text_sql(f"row.{quoted(name)}", field) for name, field in fields.items())
    mark = mark_sql("text")
    if whole := [str(place) for place, name in enumerate(fields) if name in key]:
        mark = f"IF(place IN ({', '.join(whole)}), {mark_sql('text', key=True)}, {mark})"
    marked = f"transform(array({texts}), (text, place) -> {mark})"
    return f"transform(array({row}), row -> {marked})[0]"


def _bits(value: str, java: str, method: str) -> str:
    return f"CASE WHEN {value} IS NOT NULL THEN reflect('{java}', '{method}', {value}) END"


def text_sql(value: str, field: StructField) -> str:
    """Return Spark SQL of the text of a column's value."""
    bits = _bits_sql(field)
    return printed_sql(value, field) if bits is None else bits(value)


def _bits_sql(field: StructField) -> Callable[[str], str] | None:
    """Return the function from SQL to that of the bits of its numbers, if it has such numbers."""
    match field.dataType:
        case FloatType() | DoubleType() as kind:
            return partial(_bits_of, kind)
        case ArrayType(elementType=FloatType() | DoubleType() as item):
            text = vector_text if is_vector(field) else array_text
            return partial(text, partial(_bits_of, item))
        case StructType(names=["dimensions", "indices", "values"]):
            return partial(sparsevec_text, partial(_bits_of, FloatType()))
    return None


def _bits_of(kind: FloatType | DoubleType, value: str) -> str:
    if isinstance(kind, FloatType):
        return _bits(value, "java.lang.Float", "floatToIntBits")
    return _bits(value, "java.lang.Double", "doubleToLongBits")
