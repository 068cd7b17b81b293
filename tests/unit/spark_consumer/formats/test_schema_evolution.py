"""How a Delta table's columns follow the topic's: steps, or a refusal; never a guess."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from spark_consumer.errors import TableError
from spark_consumer.formats.schema_evolution import Add, Drop, Known, Rename, Step, Widen, follow
from spark_consumer.kafka.layout import Column, Layout

INT, TEXT, BIGINT = IntegerType(), StringType(), LongType()
SPAN = StructType().add("months", INT).add("days", INT).add("microseconds", BIGINT)
KINDS: dict[str, DataType] = {
    "integer": INT,
    "bigint": BIGINT,
    "text": TEXT,
    "character varying(3)": TEXT,
    "character(3)": TEXT,
    "character varying(5)[]": ArrayType(TEXT),
    "character varying(2)[]": ArrayType(TEXT),
    "interval": SPAN,
    "interval(0)": SPAN,
    "numeric(10,2)": DecimalType(10, 2),
    "numeric(12,2)": DecimalType(12, 2),
    "geometry(Point,4326)": BinaryType(),
    "geometry(PointZ,4326)": BinaryType(),
    "json": VariantType(),
    "jsonb": VariantType(),
    "numeric(10,1)": DecimalType(10, 1),
}


def steps(before: list[Column], after: list[Column]) -> list[Step]:
    fields = [StructField(c.name, KINDS[c.pg_type]) for c in before]
    known = {c.name: Known(c.pg_type, c.number) for c in before}
    written = StructType([StructField(c.field, KINDS[c.pg_type]) for c in after])
    return follow(fields, known, Layout(tuple(after)), written, "table t")


def column(name: str, pg_type: str = "integer", number: int | None = None) -> Column:
    return Column(name, name, pg_type, number=number)


def added(name: str, kind: DataType, pg_type: str, missing: str | None = None) -> Add:
    return Add(StructField(name, kind, True, {"comment": pg_type}), missing, exists=False)


A = column("a", number=1)


def test_what_delta_notes_in_a_struct_is_no_change() -> None:
    """Delta numbers the fields of structs, too, if it maps the names of columns."""
    mapped = StructType(
        [
            StructField(field.name, field.dataType, True, {"delta.columnMapping.id": number})
            for number, field in enumerate(SPAN)
        ]
    )
    layout = Layout((column("a", "interval", 1),))
    written = StructType([StructField("a", SPAN)])

    known = {"a": Known("interval", 1)}
    assert follow([StructField("a", mapped)], known, layout, written, "table t") == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([A], [A], []),
        ([A], [A, column("b", number=2)], [added("b", INT, "integer")]),
        (
            [A],
            [A, Column("b", "b", "integer", missing="5", number=2)],
            [added("b", INT, "integer", "5")],
        ),
        ([A, column("b", number=2)], [A], [Drop("b")]),
        ([A, column("b", number=2)], [A, column("c", number=2)], [Rename("b", "c")]),
        (
            [A, column("b", number=2), column("c", "bigint", number=3)],
            [A, column("b", "bigint", number=3)],
            [Drop("b"), Rename("c", "b")],
        ),
        (
            [A, column("b", number=2), column("c", "bigint", number=3)],
            [A, column("c", number=2), column("d", "bigint", number=3)],
            [Rename("c", "d"), Rename("b", "c")],
        ),
        (
            [A, column("b", number=2)],
            [A, column("b", "text", number=3)],
            [Drop("b"), added("b", TEXT, "text")],
        ),
        (
            [A, column("b", number=2)],
            [A, column("b", number=3)],
            [Drop("b"), added("b", INT, "integer")],
        ),
        (
            [A, column("b", number=2)],
            [A, column("c", number=3)],
            [Drop("b"), added("c", INT, "integer")],
        ),
        ([A], [column("a", "bigint", 1)], [Widen("a", BIGINT)]),
        ([column("a", "bigint", 1)], [A], []),
        (
            [column("a", "numeric(10,2)", 1)],
            [column("a", "numeric(12,2)", 1)],
            [Widen("a", DecimalType(12, 2))],
        ),
        ([column("a", "numeric(12,2)", 1)], [column("a", "numeric(10,2)", 1)], []),
        ([column("a", "character varying(3)", 1)], [column("a", "text", 1)], []),
    ],
    ids=[
        "nothing",
        "added",
        "added with a default",
        "dropped",
        "renamed",
        "renamed to one that is dropped",
        "renamed in a chain",
        "another of the same name and another type",
        "another of the same name and type",
        "one for another",
        "wider",
        "narrower, and the values fit",
        "more digits",
        "fewer digits",
        "varchar to text",
    ],
)
def test_what_can_be_known_is_followed(
    before: list[Column], after: list[Column], expected: list[Step]
) -> None:
    assert steps(before, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ([A], [column("a", "text", 1)], "'a' is int .* string in the topic"),
        (
            [column("a", "numeric(10,2)", 1)],
            [column("a", "numeric(10,1)", 1)],
            r"'a' is decimal\(10,2\) .* decimal\(10,1\)",
        ),
        (
            [column("a", "text", 1)],
            [column("a", "character(3)", 1)],
            r"'a' became character\(3\), it was text",
        ),
        (
            [column("a", "character varying(5)[]", 1)],
            [column("a", "character varying(2)[]", 1)],
            r"'a' became character varying\(2\)\[\], it was character varying\(5\)\[\]",
        ),
        (
            [column("a", "interval", 1)],
            [column("a", "interval(0)", 1)],
            r"'a' became interval\(0\), it was interval",
        ),
        (
            [column("a", "geometry(Point,4326)", 1)],
            [column("a", "geometry(PointZ,4326)", 1)],
            r"'a' became geometry\(PointZ,4326\), it was geometry\(Point,4326\)",
        ),
        (
            [column("a", "json", 1)],
            [column("a", "jsonb", 1)],
            "'a' became jsonb, it was json",
        ),
        (
            [A, column("b", number=2), column("c", number=3)],
            [A, column("c", number=2), column("b", number=3)],
            "'b' and others have exchanged their names",
        ),
        ([A], [A, column("c")], "'c' came, and the source's catalog did not say"),
        ([A, column("b")], [A, column("c", number=5)], "'b' went and 'c' came at once"),
        ([A, column("b", number=2)], [A, column("c")], "'c' came, and the source's catalog"),
        (
            [A],
            [A, Column("b", "b", "integer", number=2, computed=True)],
            "'b' came with values that PostgreSQL has computed",
        ),
    ],
    ids=[
        "another type",
        "a scale cut off",
        "padded",
        "an array of text cut off",
        "an interval rounded",
        "another kind of geometry",
        "numbers with exponents written out",
        "two that change places",
        "one that is not in the catalog",
        "one that is no longer in the catalog",
        "one that is not yet in the catalog",
        "computed",
    ],
)
def test_what_could_be_several_things_is_refused(
    before: list[Column], after: list[Column], complaint: str
) -> None:
    with pytest.raises(TableError, match=complaint):
        steps(before, after)


@pytest.mark.parametrize("last", ["d", None], ids=["one is dropped", "none is dropped"])
def test_columns_that_take_each_other_s_names_do_so_wherever_the_job_is_killed(
    last: str | None,
) -> None:
    before = [column("b", number=2), column("c", number=3), *([column("d", number=4)] * bool(last))]
    after = Layout((column("c", number=2), column("d", number=3)))
    known = {c.name: Known(c.pg_type, c.number) for c in before}
    written = StructType([StructField(c.field, INT) for c in after.columns])
    numbers = {c.name: c.number for c in before}

    while left := follow([StructField(n, INT) for n in numbers], known, after, written, "table t"):
        # As if the job were killed behind its first step each time.
        match left[0]:
            case Drop(name):
                del numbers[name]
            case Rename(name, to):
                assert to not in numbers
                numbers[to] = numbers.pop(name)
            case step:
                pytest.fail(f"{step}")

    assert numbers == {"c": 2, "d": 3}


def test_a_step_that_was_done_before_the_job_was_killed_is_not_done_again() -> None:
    fields = [StructField("a", INT), StructField("b", INT)]
    layout = Layout((A, Column("b", "b", "integer", missing="5", number=2)))
    written = StructType(fields)

    found = follow(fields, {"a": Known("integer", 1)}, layout, written, "table t")

    comment = {"comment": "integer"}
    assert found == [Add(StructField("b", INT, True, comment), "5", exists=True)]


def test_a_name_that_a_new_column_has_again_is_not_taken_away_twice() -> None:
    """Column a became c, and another a came; then the job was killed before its commit."""
    layout = Layout((column("c", number=1), column("a", number=4)))
    written = StructType([StructField("c", INT), StructField("a", INT)])
    known = {"a": Known("integer", 1)}

    again = [Drop("a"), added("a", INT, "integer")]
    assert follow(list(written), known, layout, written, "table t") == again
    # If there was a c before, the table is as it would be without the renaming.
    known["c"] = Known("integer", 2)
    with pytest.raises(TableError, match=r"'a' was renamed to 'c', .* does not show"):
        follow(list(written), known, layout, written, "table t")
