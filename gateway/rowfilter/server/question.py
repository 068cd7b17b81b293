"""Question about rows to the server: the filters of one table, in one statement. Pure.

The statement is a SELECT of constants, not of the table: rows go in as text arrays, one array for
each column, and one string of flags comes back, so that it costs about a microsecond a row and
filter and needs no right on the table. Three things make the answer that of the walsender:

- The filters stand in the SELECT list. In a WHERE clause the planner puts cheap conditions first,
  so that errors would come, or not come, in other places than they are written in.
- Values are cast from their text to the type under any domains, without a type modifier: they have
  been through the modifier when they were stored. COLLATE stands in the inner query, so that a
  filter sees the collation as its column's, not as one that was chosen.
- OFFSET 0 keeps the planner from merging the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.pgoutput.messages import ColumnValue
from gateway.pgtypes.errors import EvaluationError

__all__ = ["PASSES", "Answer", "AskedColumn", "JudgedRow", "Question", "answer", "statement"]

PASSES: Final = ord("t")
RAISED: Final = ord("!")
_QUERY: Final = (
    "SELECT pg_catalog.string_agg({flags}, '' ORDER BY {number}) FROM (SELECT {columns}, {number}"
    " FROM ROWS FROM ({parameters}) WITH ORDINALITY"
    " AS asked({names}, {number}) OFFSET 0) AS rows"
)
_FLAG: Final = "CASE WHEN ({filter}\n) THEN 't' ELSE 'f' END"

Errors: TypeAlias = Mapping[int, Exception]


@dataclass(frozen=True, slots=True)
class AskedColumn:
    """A column that a filter reads.

    Attributes:
        type_oid: OID of the type under any domains.
        collation: Collation as SQL, or None for that of the type.
    """

    name: str
    type_oid: int
    collation: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """Filters of one table that the server evaluates, in its own rendering."""

    columns: tuple[AskedColumn, ...]
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer about some rows.

    Attributes:
        flags: For each row one byte for each filter: ``t``, ``f``, or ``!`` where it raised.
        errors: Errors by row and filter.
    """

    flags: bytes
    errors: Mapping[tuple[int, int], EvaluationError]


class JudgedRow(list[ColumnValue]):
    """A row with the server's answers.

    Attributes:
        flags: As in `Answer`.
        errors: Errors by filter.
    """

    __slots__ = ("errors", "flags")

    flags: bytes
    errors: Errors


def answer(row: JudgedRow, place: int) -> bool:
    """Return whether `row` passes the filter at `place` of its question.

    Raises:
        EvaluationError: the filter raised, in PostgreSQL's words.
        ValueFormatError: a value that it needs was not sent.
    """
    flag = row.flags[place]
    if flag == RAISED:
        raise row.errors[place]
    return flag == PASSES


def statement(question: Question, types: Mapping[int, str]) -> str:
    """Return the statement for `question`.

    `types` are the names of the columns' types, by OID.
    """
    names = [f'"{column.name.replace(chr(34), chr(34) * 2)}"' for column in question.columns]
    number = _unused("n", [column.name for column in question.columns])
    columns = [
        f"{name}::pg_catalog.{types[column.type_oid]}"
        f"{'' if column.collation is None else f' COLLATE {column.collation}'} AS {name}"
        for name, column in zip(names, question.columns, strict=True)
    ]
    return _QUERY.format(
        flags=" || ".join(_FLAG.format(filter=text) for text in question.filters),
        number=number,
        columns=", ".join(columns),
        parameters=", ".join(
            f"pg_catalog.unnest(${place + 1}::pg_catalog.text[])" for place in range(len(names))
        ),
        names=", ".join(names),
    )


def _unused(name: str, used: Sequence[str]) -> str:
    while name in used:
        name += "_"
    return name
