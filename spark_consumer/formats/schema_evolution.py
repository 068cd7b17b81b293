"""How a table's columns follow those of its topic. Plain values in, steps or a refusal out.

Rows that are in the table must end with the values that PostgreSQL's rows have after the same ALTER
TABLE. A topic says what a column is, not how it came to be that; what could have been several
things, with several outcomes, is refused, and a copy of the table settles it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.kafka.layout import Column, ColumnPlan, Layout

__all__ = [
    "Add",
    "Drop",
    "Known",
    "Rename",
    "Step",
    "Widen",
    "follow",
    "known_after",
    "matched",
    "planned",
    "refuse_doubt",
    "rename_chains",
    "widens",
]

_COPY_AGAIN: Final = f"{COPY_AGAIN}: the copy begins with the columns as they are then"


@dataclass(frozen=True, slots=True)
class Known:
    """A column as the table's last commit recorded it.

    Attributes:
        pg_type: PostgreSQL's type.
        number: PostgreSQL's attnum; None when not known.
    """

    pg_type: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """A new column.

    Attributes:
        missing: Value of existing rows, as PostgreSQL prints it; None is NULL.
        exists: Whether the table has the column already, from an interrupted attempt.
    """

    field: StructField
    missing: str | None
    exists: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """Removal of a column with its values."""

    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Another name for a column, which keeps its values."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Widen:
    """A wider type for a column, which keeps its values."""

    name: str
    to: DataType


Step: TypeAlias = Add | Drop | Rename | Widen


def follow(
    fields: Sequence[StructField],
    known: Mapping[str, Known],
    layout: Layout,
    written: StructType,
    label: str,
) -> list[Step]:
    """Return the steps that make a table's columns those of a writer schema.

    Args:
        fields: Columns of the table.
        known: Columns as the table's last commit recorded them, by name.
        layout: Columns of the writer schema.
        written: Types of those columns as Spark decodes them, by Avro field.
        label: Name of the table in messages.

    Raises:
        TableError: the values that rows should have are ambiguous, or no format can do it.
    """
    there = {field.name: field for field in fields}
    wanted = {column.name: column for column in layout.columns}
    renamed = _renames(known, layout)
    chains = rename_chains(known, layout)
    _refuse_exchanges(renamed, chains, label)
    steps = [step for chain in chains for step in _rename(chain, there, known, wanted, label)]
    was = {**known, **{new: known[old] for old, new in renamed.items()}}
    again = {
        name
        for name, column in wanted.items()
        if name in known and name in there and _is_another(was[name], column)
    }
    gone = [name for name in there if name not in wanted or name in again]
    steps += [Drop(name) for name in gone]
    came = []
    for name, column in wanted.items():
        kind = written[column.field].dataType
        if name in again or name not in there:
            came.append(column)
            steps.append(Add(_field(column, kind), column.missing, exists=False))
        elif name not in was:
            if not _is_same(there[name].dataType, kind):
                raise _refusal(label, name, there[name].dataType, kind)
            steps.append(Add(_field(column, kind), column.missing, exists=True))
        else:
            steps += _retyped(there[name], was[name].pg_type, column, kind, label)
    if computed := [column.name for column in came if column.computed]:
        raise TableError(
            f"{label}: column {computed[0]!r} came with values that PostgreSQL has computed for the"
            " rows that are there, and they are not in the topic",
            hint=_COPY_AGAIN,
        )
    if unknown := [column.name for column in came if column.number is None]:
        raise TableError(
            f"{label}: column {unknown[0]!r} came, and the source's catalog did not say any more"
            " whether it is a new one, and what the rows that are there have in it",
            hint=_COPY_AGAIN,
        )
    unnumbered = [name for name in gone if name not in known or known[name].number is None]
    if came and unnumbered:
        raise TableError(
            f"{label}: column {unnumbered[0]!r} went and {came[0].name!r} came at once: a new name"
            " and a new column look the same",
            hint=_COPY_AGAIN,
        )
    return steps


def _renames(known: Mapping[str, Known], layout: Layout) -> dict[str, str]:
    numbers = {was.number: name for name, was in known.items() if was.number is not None}
    return {
        numbers[column.number]: column.name
        for column in layout.columns
        if column.number in numbers and numbers[column.number] != column.name
    }


def rename_chains(known: Mapping[str, Known], layout: Layout) -> list[list[str]]:
    """Return runs of names in which each column is renamed to the next one's name.

    Columns that have exchanged their names are in none.
    """
    renamed = _renames(known, layout)
    chains = [[name] for name in renamed if name not in renamed.values()]
    for chain in chains:
        while chain[-1] in renamed:
            chain.append(renamed[chain[-1]])
    return chains


def refuse_doubt(chain: Sequence[str], label: str) -> NoReturn:
    """Refuse a table that has all names of a chain, whose first one is another column's again.

    Raises:
        TableError: always.
    """
    raise TableError(
        f"{label}: column {chain[0]!r} was renamed to {chain[-1]!r}, and both names are those of"
        " columns before and after that: whether it is done does not show",
        hint=_COPY_AGAIN,
    )


def _refuse_exchanges(
    renamed: Mapping[str, str], chains: Sequence[Sequence[str]], label: str
) -> None:
    if sum(map(len, chains)) != len(renamed) + len(chains):
        cycle = next(n for n in renamed if not any(n in chain for chain in chains))
        raise TableError(
            f"{label}: column {cycle!r} and others have exchanged their names, and a table in which"
            " that is done looks as it did before",
            hint=_COPY_AGAIN,
        )


def _rename(
    chain: Sequence[str],
    there: dict[str, StructField],
    known: Mapping[str, Known],
    wanted: Mapping[str, Column],
    label: str,
) -> list[Step]:
    """Return the remaining steps of a chain; the last column first, which frees its name.

    At most one name of the chain is missing, wherever the job was killed. If none is, the first
    step is to drop the column that has the last name. At the end the first name is missing, unless
    a new column has it.
    """
    steps: list[Step] = []
    missing = next((at for at, name in enumerate(chain) if name not in there), None)
    if missing is None:
        if chain[0] in wanted:
            if chain[-1] in known:
                refuse_doubt(chain, label)
            return []
        missing = len(chain) - 1
        steps.append(Drop(chain[missing]))
    for at in range(missing, 0, -1):
        there[chain[at]] = there.pop(chain[at - 1])
        steps.append(Rename(chain[at - 1], chain[at]))
    return steps


def _is_another(was: Known, column: Column) -> bool:
    return None not in (was.number, column.number) and was.number != column.number


def _field(column: Column, kind: DataType) -> StructField:
    return StructField(column.name, kind, True, {"comment": column.pg_type})


def _retyped(
    there: StructField, before: str, column: Column, kind: DataType, label: str
) -> list[Step]:
    if widens(there.dataType, kind):
        return [Widen(column.name, kind)]
    if not _is_same(there.dataType, kind) and not _fits(kind, there.dataType):
        raise _refusal(label, column.name, there.dataType, kind)
    loses = before != column.pg_type and _LOSING.search(there.dataType.simpleString())
    if loses and not (_is_open_text(column.pg_type) and _is_varying(before)):
        raise TableError(
            f"{label}: column {column.name!r} became {column.pg_type}, it was {before}: what its"
            " values are now is not in the topic",
            hint=_COPY_AGAIN,
        )
    return []


def _is_same(one: DataType, other: DataType) -> bool:
    # A format's mapping of columns may leave metadata in the fields of a struct.
    return one.simpleString() == other.simpleString()


def _refusal(label: str, name: str, there: DataType, comes: DataType) -> TableError:
    return TableError(
        f"{label}: column {name!r} is {there.simpleString()} in the table and"
        f" {comes.simpleString()} in the topic, which cannot be turned into one another",
        hint=_COPY_AGAIN,
    )


_LOSING: Final = re.compile("string|struct|variant|binary")
"""Columns whose values another type may change without that their own type shows it."""
_LENGTH: Final = re.compile(r"character varying(?:\((\d+)\))?|text|varchar(?:\((\d+)\))?")


def _is_varying(pg_type: str) -> bool:
    return _LENGTH.fullmatch(pg_type) is not None


def _is_open_text(pg_type: str) -> bool:
    """Whether a type is text without a limit, in which any varchar's values are unchanged."""
    return pg_type in ("text", "character varying", "varchar")


def _fits(narrow: DataType, wide: DataType) -> bool:
    """Whether a table's `wide` column can keep its type after the source's became `narrow`."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and widens(narrow, wide)
    return isinstance(narrow, IntegerType) and isinstance(wide, LongType)


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether a column of type `narrow` can become `wide`, another type, without loss.

    Source: Delta Lake's type widening, the widest of the formats; others write the rows again.
    """
    match narrow, wide:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            digits = wide.precision - wide.scale >= narrow.precision - narrow.scale
            return digits and wide.scale >= narrow.scale and wide != narrow
        case IntegerType(), DecimalType():
            return wide.precision - wide.scale >= 10
        case LongType(), DecimalType():
            return wide.precision - wide.scale >= 20
    return False


def matched(fields: Sequence[StructField], layout: Layout) -> tuple[ColumnPlan, ...]:
    """Return the columns of a layout, in the order of a table that has all of them."""
    by_name = {column.name: column for column in layout.columns}
    return tuple(
        ColumnPlan(
            by_name[field.name].field,
            field.name,
            by_name[field.name].pg_type,
            field.dataType.simpleString(),
        )
        for field in fields
    )


def planned(layout: Layout, written: StructType) -> tuple[ColumnPlan, ...]:
    """Return the columns of a table created for a layout, whose rows have the type `written`."""
    return tuple(
        ColumnPlan(c.field, c.name, c.pg_type, written[c.field].dataType.simpleString())
        for c in layout.columns
    )


def known_after(layout: Layout, before: Mapping[str, Known] | None = None) -> dict[str, Known]:
    """Return the columns for a position; a number that a schema lacks is kept by name."""
    found = {}
    for column in layout.columns:
        number = column.number
        if number is None and before is not None and column.name in before:
            number = before[column.name].number
        found[column.name] = Known(column.pg_type, number)
    return found
