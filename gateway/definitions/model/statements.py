"""CREATE PUBLICATION and CREATE SUBSCRIPTION statements as values, as written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from schemas.settings.masks import Mask

__all__ = [
    "ALL_OPERATIONS",
    "IDENTIFYING",
    "Definitions",
    "Operation",
    "PublicationDefinition",
    "SubscriptionDefinition",
    "TableClause",
]


class Operation(Enum):
    """Operation in a publication's ``publish`` parameter."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


ALL_OPERATIONS: Final = frozenset(Operation)
IDENTIFYING: Final = (Operation.UPDATE, Operation.DELETE)
"""The operations that need a replica identity, in the order in which PostgreSQL checks them."""


@dataclass(frozen=True, slots=True)
class TableClause:
    """Table of a FOR TABLE list, as written.

    Attributes:
        schema: Schema; None if the name is not qualified (search_path decides, in the source
            database).
        name: Name, unquoted and case folded as PostgreSQL does.
        only: Whether ``ONLY`` was written; without it, descendants by inheritance are included.
        columns: Column list, or None.
        where: Filter expression as SQL text without its outer parentheses, or None.
        position: 0-based character offset of the table in `Definitions.text`.
        where_position: Offset of the filter expression, likewise, or None.
    """

    schema: str | None
    name: str
    only: bool = False
    columns: tuple[str, ...] | None = None
    where: str | None = None
    position: int = 0
    where_position: int | None = None


@dataclass(frozen=True, slots=True)
class PublicationDefinition:
    """CREATE PUBLICATION statement.

    Attributes:
        schemas: Schemas; None stands for ``CURRENT_SCHEMA``.
        generated: Whether ``publish_generated_columns = stored`` (18 and later).
    """

    name: str
    tables: tuple[TableClause, ...] = ()
    schemas: tuple[str | None, ...] = ()
    all_tables: bool = False
    operations: frozenset[Operation] = ALL_OPERATIONS
    via_root: bool = False
    generated: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionDefinition:
    """CREATE SUBSCRIPTION statement: the supported options, with PostgreSQL's defaults.

    Attributes:
        origin: ``any`` or ``none``.
        streaming: ``off``, ``on`` or ``parallel``.
        connection_given: Whether there is a CONNECTION other than ''; it is neither used nor shown.
    """

    name: str
    publications: tuple[str, ...]
    copy_data: bool = True
    origin: str = "any"
    binary: bool = False
    streaming: str = "parallel"
    two_phase: bool = False
    connection_given: bool = False
    position: int = 0


@dataclass(frozen=True, slots=True)
class Definitions:
    """Parsed definitions file.

    Attributes:
        text: Whole source text, for error messages.
        fingerprint: Hex digest that changes whenever the meaning may have changed, but not with
            comments or white space; where there are masks, with a point and a digest of them.
        masks: Masks by ``subscription.schema.table.column``.
    """

    publications: tuple[PublicationDefinition, ...]
    subscriptions: tuple[SubscriptionDefinition, ...]
    text: str
    fingerprint: str
    masks: Mapping[str, Mask] = field(default_factory=dict)
