"""Registry and catalog for routing without servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.definitions.model import Column, Table
from gateway.pgtypes.binary import TypeInfo

__all__ = ["FixedCatalog", "OneId"]


class OneId:
    """A registry that gives every schema the same id."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Return 1; see `gateway.routing.ports.SchemaIds`."""
        return 1


@dataclass(frozen=True, slots=True)
class FixedCatalog:
    """The catalog of tables that do not change; see `gateway.routing.ports.CatalogReader`.

    Attributes:
        only: What every OID is; None: nothing is found.
    """

    only: Table | None = None

    def table(self, oid: int) -> Table | None:
        """Return `only`."""
        return self.only

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column:
        """Raise KeyError: no column changes."""
        raise KeyError(name)

    def type_info(self, oid: int) -> TypeInfo:
        """Raise KeyError: no type is asked for."""
        raise KeyError(oid)
