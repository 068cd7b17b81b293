"""Names inside nested sub-selects, by SQL's rules: the innermost table that has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from gateway.definitions.model import Table

__all__ = ["Column", "InnerTable", "NameFault", "Scope", "TableLookup", "find_column"]

_SYSTEM: Final = frozenset({"tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"})


@dataclass(frozen=True, slots=True)
class InnerTable:
    """Table of a sub-select's FROM, as the catalog has it.

    Attributes:
        row_security: Whether row-level security hides rows of it, or of a partition, from the role.
        inherited: Whether tables that are no partitions inherit from it.
        unlogged: Whether a partition of it is a foreign or an unlogged table.
    """

    table: Table
    row_security: bool = False
    inherited: bool = False
    unlogged: bool = False


TableLookup: TypeAlias = Callable[[str | None, str], InnerTable | str]
"""Returns the table of a schema and a name; without a schema, as the search_path finds it. A text
is the reason why there is none."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A table whose columns can be named, and what can be named around it.

    Attributes:
        table: Table of the FROM, or the one that is filtered.
        name: Its alias, or its name.
        aliased: Whether it has an alias, which hides its schema.
        outer: Scope around it; None for the table that is filtered.
    """

    table: Table
    name: str
    aliased: bool = False
    outer: Scope | None = None

    def has(self, column: str) -> bool:
        """Whether the table has a column of this name."""
        return any(found.name == column for found in self.table.columns)


class NameFault(Enum):
    """Reason for which a name cannot be used."""

    UNKNOWN = "unknown"
    WHOLE_ROW = "whole row"
    SYSTEM = "system column"


@dataclass(frozen=True, slots=True)
class Column:
    """Column that a name stands for; `level` counts the scopes outwards, 0 is the innermost."""

    name: str
    level: int


def find_column(reference: Any, scope: Scope) -> Column | NameFault:
    """Return the column for which libpg_query's ColumnRef stands.

    Source: transformColumnRef() in parse_expr.c, colNameToVar() and refnameNamespaceItem() in
    parse_relation.c.
    """
    if any(not part.HasField("string") for part in reference.fields):
        return NameFault.WHOLE_ROW
    words = [part.string.sval for part in reference.fields]
    around: list[Scope] = []
    level: Scope | None = scope
    while level is not None:
        around.append(level)
        level = level.outer
    if len(words) == 1:
        for number, each in enumerate(around):
            if each.has(words[0]):
                return Column(words[0], number)
            if words[0] in _SYSTEM:
                return NameFault.SYSTEM
        named = any(each.name == words[0] for each in around)
        return NameFault.WHOLE_ROW if named else NameFault.UNKNOWN
    for number, each in enumerate(around):
        if _is_named(each, words[:-1]):
            if each.has(words[-1]):
                return Column(words[-1], number)
            return NameFault.SYSTEM if words[-1] in _SYSTEM else NameFault.UNKNOWN
    return NameFault.UNKNOWN


def _is_named(scope: Scope, qualifier: list[str]) -> bool:
    if qualifier[-1] != scope.name:
        return False
    return len(qualifier) == 1 or (
        len(qualifier) == 2 and not scope.aliased and qualifier[0] == scope.table.schema
    )
