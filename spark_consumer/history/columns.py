"""Columns of a history: those of its own, then those of the table.

A version is a row of the table from one change on (`_from_...`) until another (`_to_...`; NULL
while it is the current one). LSNs are those at which the transactions end: a version is part of the
table at an LSN if `_from_lsn <= lsn AND (_to_lsn IS NULL OR _to_lsn > lsn)`. A version whose two
LSNs are equal began and ended within one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_consumer.errors import TableError
from spark_consumer.formats.schema_evolution import (
    Add,
    Known,
    Rename,
    Step,
    Widen,
    follow,
    refuse_doubt,
    rename_chains,
    widens,
)
from spark_consumer.kafka.layout import Column, ColumnPlan, Layout
from spark_consumer.names import free_name

__all__ = [
    "ENDS",
    "IDENTITY",
    "OWN",
    "STARTS",
    "Columns",
    "check_names",
    "evolved",
    "own_field",
    "plan",
]

_KINDS: Final[tuple[tuple[str, str, DataType], ...]] = (
    ("lsn", "bigint", LongType()),
    ("seq", "bigint", LongType()),
    ("time", "timestamp with time zone", TimestampType()),
    ("op", "text", StringType()),
    ("xid", "bigint", LongType()),
    ("origin", "text", StringType()),
)
STARTS: Final = tuple(f"_from_{name}" for name, _, _ in _KINDS)
"""Columns of the change that begins a version."""
ENDS: Final = tuple(f"_to_{name}" for name, _, _ in _KINDS)
"""Columns of the change that ends it."""

# First: formats have statistics of the first columns, by which files of ended versions are skipped.
OWN: Final[tuple[StructField, ...]] = (
    StructField("_row", StringType(), True, {"comment": "text"}),
    *(
        StructField(f"_{side}_{name}", kind, True, {"comment": pg_type})
        for side in ("from", "to")
        for name, pg_type, kind in _KINDS
    ),
)
"""Columns of every history."""

IDENTITY: Final = ("_row", "_from_lsn", "_from_seq")
"""Columns that identify a version."""


def own_field(name: str) -> str:
    """Return the field of a history's own column in frames; no Avro field has that name."""
    return f"-{name}"


_OWN_PLANS: Final = {
    field.name: ColumnPlan(
        own_field(field.name),
        field.name,
        str(field.metadata["comment"]),
        field.dataType.simpleString(),
    )
    for field in OWN
}
_RESERVED: Final = {name.casefold() for name in _OWN_PLANS}


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a history while it has those of a layout.

    Attributes:
        every: All of them, in order.
        live: Those of the layout.
        identity: Those that identify a version.
    """

    every: tuple[ColumnPlan, ...]
    live: tuple[ColumnPlan, ...]
    identity: tuple[ColumnPlan, ...]


def plan(fields: Sequence[StructField], layout: Layout) -> Columns:
    """Return the columns of a history that has those of a layout.

    Raises:
        TableError: it lacks one, so another writer has changed it.
    """
    named = {column.name: column for column in layout.columns}
    if missing := {*named, *_OWN_PLANS}.difference(field.name for field in fields):
        raise TableError(
            f"the history has no column {min(missing)!r}",
            hint="another program has changed it: move its folder away, and it begins again",
        )
    every = []
    for number, field in enumerate(fields):
        kind = field.dataType.simpleString()
        if field.name in _OWN_PLANS:
            every.append(_OWN_PLANS[field.name])
        elif field.name in named:
            column = named[field.name]
            every.append(ColumnPlan(column.field, field.name, column.pg_type, kind))
        else:
            comment = str(field.metadata.get("comment", ""))
            every.append(ColumnPlan(own_field(str(number)), field.name, comment, kind))
    live = tuple(one for one in every if one.name in named)
    return Columns(tuple(every), live, tuple(_OWN_PLANS[name] for name in IDENTITY))


def check_names(names: Iterable[str], label: str) -> None:
    """Refuse a table that has a column called as one of a history's own.

    Raises:
        TableError: it has; the message names it.
    """
    for name in names:
        if name.casefold() in _RESERVED:
            raise TableError(
                f"{label}: a column is called {name!r}, as one of a history's own",
                hint="rename it, or take the table out of consumer.history",
            )


def evolved(
    fields: Sequence[StructField],
    known: Mapping[str, Known],
    layout: Layout,
    written: StructType,
    label: str,
    *,
    copied: bool,
) -> list[Step]:
    """Return the steps that give a history the columns of a writer schema, and lose none.

    A column that goes stays, with the values of the versions that had it. If another one takes its
    name, or it gets a type for which its values would have to be converted, it is renamed to
    `<name>__<number>`.

    Args:
        fields: Columns of the history.
        known: Published columns as its last commit recorded them, by name.
        layout: Columns of the writer schema.
        written: Types of those columns as Spark decodes them, by Avro field.
        label: Name of the history in messages.
        copied: Whether a copy begins: every version ends, and no row has values to follow.

    Raises:
        TableError: as for `follow`, unless a copy begins; or a name is one of the history's own.
    """
    check_names((column.name for column in layout.columns), label)
    there = {field.name: field.dataType for field in fields if field.name not in _OWN_PLANS}
    if not copied:
        live = [field for field in fields if field.name in known]
        follow(live, known, layout, written, label)
    taken = {*there, *_OWN_PLANS, *(column.name for column in layout.columns)}
    steps: list[Step] = []

    def move(name: str, to: str) -> None:
        steps.append(Rename(name, to))
        there[to] = there.pop(name)

    def keep(name: str) -> None:
        number = 1
        while free_name(f"{name}__{number}", taken) != f"{name}__{number}":
            number += 1
        taken.add(f"{name}__{number}")
        move(name, f"{name}__{number}")

    def free(name: str, *, but: str | None = None) -> None:
        # Engines do not distinguish names by case.
        for one in [one for one in there if one.casefold() == name.casefold() and one != but]:
            keep(one)

    was = dict(known)
    wanted = {column.name for column in layout.columns}
    # Those that have exchanged their names are other columns: only a copy can follow that.
    for chain in rename_chains(known, layout):
        # At most one name is missing, wherever an earlier attempt ended.
        missing = next((at for at, name in enumerate(chain) if name not in there), None)
        if missing is None:
            if chain[0] in wanted and not copied:
                refuse_doubt(chain, label)
            missing = len(chain) - 1
        for at in range(len(chain) - 1, 0, -1):
            old, new = chain[at - 1], chain[at]
            was[new] = was.pop(old)
            if at <= missing:
                free(new, but=old)
                move(old, new)
    for column in layout.columns:
        name, kind = column.name, written[column.field].dataType
        if name in there and not (name in was and _goes_on(was[name], column, there[name], kind)):
            keep(name)
        if name not in there:
            free(name)
            field = StructField(name, kind, True, {"comment": column.pg_type})
            steps.append(Add(field, None if copied else column.missing, exists=False))
            there[name] = kind
        elif widens(there[name], kind):
            steps.append(Widen(name, kind))
    return steps


def _goes_on(was: Known, column: Column, there: DataType, kind: DataType) -> bool:
    """Whether a column is the one that a history has under its name, with a type that holds it."""
    if None not in (was.number, column.number) and was.number != column.number:
        return False
    if there.simpleString() == kind.simpleString() or widens(there, kind):
        return True
    if isinstance(there, DecimalType) and isinstance(kind, DecimalType):
        return there.scale == kind.scale and widens(kind, there)
    return isinstance(there, LongType) and isinstance(kind, IntegerType)
