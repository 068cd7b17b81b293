"""Row filters over other tables as one plain tree: its nodes.

A row passes where its filter is true. TRUE(NOT x) is FALSE(x), TRUE(a AND b) is TRUE(a) and
TRUE(b), and FALSE(a AND b) is FALSE(a) or FALSE(b): hence the tree has neither NOT nor unknown. Its
leaves are plain filters and tests of a row's value against the set of a sub-select. The evaluation
is in `gateway.subselects.formula`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Any, TypeAlias, assert_never

__all__ = ["AllOf", "AnyOf", "Formula", "Plain", "SetTest", "SetTestKind", "Subselect"]


class SetTestKind(Enum):
    """Kind of a test against a set; `gateway.subselects.formula` has what each means."""

    IN = "in"
    NOT_EXISTS = "not exists"
    NOT_IN = "not in"


@dataclass(frozen=True, slots=True)
class Plain:
    """A filter without sub-selects, on columns of one table by their bare names.

    Attributes:
        text: SQL text; as the server prints it once it is `resolved`.
        position: Character offset of it in the definitions, or None.
    """

    text: str
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SetTest:
    """Test of columns of a row against the set of a sub-select with as many columns."""

    kind: SetTestKind
    columns: tuple[str, ...]
    subselect: Subselect
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND, from left to right until one is not true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR, from left to right until one is true."""

    parts: tuple[Formula, ...]


Formula: TypeAlias = Plain | SetTest | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class Subselect:
    """``SELECT columns FROM table WHERE filter``, with NULLs and how often each value occurs.

    Equal ones share a set.

    Attributes:
        table_oid: OID of the inner table.
        columns: Names of its columns.
        filter: Filter on the inner table; None for all rows.
    """

    table_oid: int
    columns: tuple[str, ...]
    filter: Formula | None
    # It is a key of dictionaries that are asked for each row.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = hash((self.table_oid, self.columns, self.filter))
        object.__setattr__(self, "_hash", found)

    def __hash__(self) -> int:
        return self._hash

    @property
    def name(self) -> str:
        """Name of its set in Kafka: a digest of what it says."""
        text = json.dumps(_as_json(self), separators=(",", ":"))
        return blake2b(text.encode(), digest_size=12).hexdigest()


def _as_json(node: Formula | Subselect | None) -> Any:
    match node:
        case None:
            return None
        case Plain(text):
            return text
        case SetTest(kind, columns, subselect):
            return [kind.value, columns, _as_json(subselect)]
        case AllOf(parts):
            return ["and", *map(_as_json, parts)]
        case AnyOf(parts):
            return ["or", *map(_as_json, parts)]
        case Subselect(table_oid, columns, filter_):
            return [table_oid, columns, _as_json(filter_)]
    assert_never(node)
