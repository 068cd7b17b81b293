"""Columns and tables for the tests of gateway.envelope."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gateway.definitions.model import Element
from schemas.settings.tables import TYPE_CHOICES, TypesTable

_EVERYTHING: dict[str, Any] = dict.fromkeys(TYPE_CHOICES, "native")
NATIVE = TypesTable(**_EVERYTHING)

INT4 = (23, "integer")
INT8 = (20, "bigint")
TEXT = (25, "text")
BOOL = (16, "boolean")
TIMESTAMPTZ = (1184, "timestamp with time zone")


@dataclass(frozen=True, slots=True)
class EnvelopeColumn:
    """A column by itself, without a catalog."""

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_oid: int
    base_type_modifier: int
    type_kind: str
    attnum: int = 0
    missing: str | None = None
    computed: bool = False
    element: Element | None = None
    base_type_name: str = ""
    labels: tuple[str, ...] = ()

    @property
    def base_name(self) -> str:
        return self.base_type_name or (self.type_name if self.type_kind == "b" else "")


def column(
    name: str, kind: tuple[int, str], *, modifier: int = -1, typtype: str = "b"
) -> EnvelopeColumn:
    """A column of a type that is not a domain."""
    oid, type_name = kind
    return EnvelopeColumn(name, oid, modifier, type_name, oid, modifier, typtype)


def numeric(name: str, precision: int, scale: int) -> EnvelopeColumn:
    """A numeric(precision, scale); the type modifier as numerictypmodin makes it."""
    modifier = (precision << 16 | scale & 0x7FF) + 4
    return column(name, (1700, f"numeric({precision},{scale})"), modifier=modifier)


T1 = [
    replace(column(name, kind), attnum=number)
    for number, (name, kind) in enumerate([("a", INT4), ("b", INT4), ("c", TEXT)], 1)
]
"""The manual's t1(a int, b int, c text, PRIMARY KEY (a, c))."""
