"""Table properties that Relation messages lack, and the changes of them that require a copy. Pure.

A Relation message has the names and types of the columns, in order. It is the same after the last
column was dropped and added again, after ALTER TYPE, and after a rewrite of all rows. The catalog
shows more:

| change | seen in the catalog | copied again |
| --- | --- | --- |
| a column dropped and added again, same name and type | its number is a new one | yes |
| ALTER COLUMN TYPE of another type, with a rewrite | another type, another file | yes |
| ALTER COLUMN TYPE of the same type, USING; SET EXPRESSION | its row is new and the same, another file | yes |
| a new column that has computed values and is not generated | its number is new, another file | yes |
| VACUUM FULL, CLUSTER, TRUNCATE, SET LOGGED, ... | another file | no |
| SET NOT NULL, SET DEFAULT, SET STATISTICS, RENAME COLUMN | its row is another, the file is not | no |
| ALTER TYPE RENAME VALUE | a label of the enum | yes |
| ALTER TYPE ADD VALUE | one label more | no, but schemas name it (`labels`) |
| ALTER TYPE ADD, DROP, ALTER ATTRIBUTE | the attributes of the type | yes |
| ALTER COLLATION REFRESH VERSION, not deterministic | its version: other keys may be equal | yes |

ALTER DOMAIN changes no value. A rewrite together with a harmless change of the same column looks
like VACUUM FULL with that change; only the event triggers can tell them apart. A new default that
replaces another, together with VACUUM FULL, causes an unnecessary copy.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gateway.core.formula import Formula
from gateway.definitions.model import Column, Plan, Shape, Table
from gateway.definitions.sql.formulas import inner_columns

__all__ = ["read_shape", "unseen_change", "unseen_changes", "write_shape"]


def write_shape(shape: Shape | None) -> Any:
    """Return a shape as a JSON value for `read_shape`."""
    if shape is None:
        return None
    return [
        sorted(shape.files.items()),
        sorted((number, *row) for number, row in shape.columns.items()),
        sorted((number, sorted(parts.items())) for number, parts in shape.types.items()),
    ]


def read_shape(value: Any) -> Shape | None:
    """Return the shape written by `write_shape`; None if unknown."""
    if value is None:
        return None
    files, columns, types = value
    return Shape(
        {int(oid): int(file) for oid, file in files},
        {int(number): (str(xmin), str(content)) for number, xmin, content in columns},
        {
            int(number): {str(name): tuple(map(str, labels)) for name, labels in parts}
            for number, parts in types
        },
    )


def unseen_changes(before: Mapping[int, Table], plan: Plan) -> dict[tuple[str, int], str]:
    """Return reasons why copies of `plan` may hold other values than the source.

    Args:
        before: Tables as the copies have them, by OID.
        plan: Current plan.
    """
    reasons = {}
    for copy in plan.copies:
        was, now = before.get(copy.target_oid), plan.tables[copy.target_oid]
        if was is None:
            continue
        why = unseen_change(was.columns, was.shape, now.columns, now.shape, copy.columns)
        for clause in copy.filters if why is None else ():
            why = why or _inner_change(clause.formula, before, plan.tables)
        if why is not None:
            reasons[copy.subscription, copy.target_oid] = why
    return reasons


def _inner_change(
    formula: Formula | None, before: Mapping[int, Table], after: Mapping[int, Table]
) -> str | None:
    """Return why the values of a sub-select may be others than the stream has shown, or None."""
    for oid, names in inner_columns(formula).items():
        if (was := before.get(oid)) is not None and (now := after.get(oid)) is not None:
            why = unseen_change(was.columns, was.shape, now.columns, now.shape, names)
            if why is not None:
                return f"{now}, which its filter reads: {why}"
    return None


def unseen_change(
    before: Collection[Column],
    shape_before: Shape | None,
    after: Collection[Column],
    shape_after: Shape | None,
    published: Collection[str],
) -> str | None:
    """Return why rows may have values that were never in the stream, or None.

    Args:
        before: Columns as they were.
        shape_before: Previous shape; None if unknown.
        after: Columns as they are.
        shape_after: Current shape, likewise.
        published: Names of the columns that matter.
    """
    was = {column.attnum: column for column in before}
    names = {column.name: column for column in before}
    numbers = {column.attnum for column in after}
    last = max(was, default=0)
    for column in after:
        old = names.get(column.name)
        if column.name not in published or old is None or not old.attnum:
            continue
        is_new = column.attnum > last and old.attnum not in numbers
        if is_new and _type_of(old) == _type_of(column):
            return f"column {column.name} was dropped and added again"
    if shape_before is None or shape_after is None:
        return None
    common = shape_before.files.keys() & shape_after.files.keys()
    rewritten = any(shape_before.files[oid] != shape_after.files[oid] for oid in common)
    for column in after:
        old = was.get(column.attnum)
        if column.name not in published:
            continue
        if old is None:
            # Natively, older rows have NULL in a generated column that is added later.
            computed = column.computed and not column.generated
            if rewritten and column.attnum > last and computed:
                return f"column {column.name} has computed values"
        elif _type_of(old) != _type_of(column):
            if rewritten:
                return f"column {column.name} was given another type"
        elif _is_altered(shape_before, shape_after, column.attnum):
            return f"the type of column {column.name} was altered"
        elif rewritten and _is_written_again(shape_before, shape_after, column.attnum):
            return f"column {column.name} was given other values"
    return None


def _type_of(column: Column) -> tuple[int, int]:
    return column.type_oid, column.type_modifier


def _is_altered(before: Shape, after: Shape, number: int) -> bool:
    now = after.types.get(number, {})
    return any(
        now.get(name, ())[: len(parts)] != parts
        for name, parts in before.types.get(number, {}).items()
    )


def _is_written_again(before: Shape, after: Shape, number: int) -> bool:
    was, now = before.columns.get(number), after.columns.get(number)
    return was is not None and now is not None and was[0] != now[0] and was[1] == now[1]
