"""Publications and subscriptions as values: as written, as in the catalog, and as planned.

`Definitions` is the parsed text, before any look-up. `Catalog` describes the tables in the source
database. `Plan` combines both: how each relation is published to each subscription.
"""

from gateway.definitions.model.catalog import (
    Catalog,
    Collation,
    Column,
    Element,
    Parent,
    Publication,
    PublishedRelation,
    Shape,
    Table,
)
from gateway.definitions.model.plan import (
    Fault,
    FilterClause,
    HeldTable,
    MaskedBefore,
    Masks,
    Plan,
    Publish,
    ServerPublication,
    TableCopy,
    TableId,
)
from gateway.definitions.model.statements import (
    ALL_OPERATIONS,
    IDENTIFYING,
    Definitions,
    Operation,
    PublicationDefinition,
    SubscriptionDefinition,
    TableClause,
)

__all__ = [
    "ALL_OPERATIONS",
    "IDENTIFYING",
    "Catalog",
    "Collation",
    "Column",
    "Definitions",
    "Element",
    "Fault",
    "FilterClause",
    "HeldTable",
    "MaskedBefore",
    "Masks",
    "Operation",
    "Parent",
    "Plan",
    "Publication",
    "PublicationDefinition",
    "Publish",
    "PublishedRelation",
    "ServerPublication",
    "Shape",
    "SubscriptionDefinition",
    "Table",
    "TableClause",
    "TableCopy",
    "TableId",
]
