"""Type information needed to read a binary format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["FAULTS", "Attribute", "ToText", "TypeInfo"]

ToText: TypeAlias = Callable[[bytes], bytes]
"""One value, not NULL: send format -> text format. Raises one of `FAULTS` for other bytes."""

FAULTS: Final = (ValueError, IndexError, struct.error)
"""Error of a `ToText`; its caller adds relation and column."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a composite type that is not dropped."""

    name: str
    type_oid: int


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A row of ``pg_type``, and what goes with it.

    A type's formats are determined by its two functions, not by its name: a type of an extension
    that is sent by ``textsend`` and printed by ``textout`` reads as text does.

    Attributes:
        name: As ``format_type`` prints it, for messages.
        kind: ``typtype``: b, c, d, e, p, r or m.
        output: ``prosrc`` of the output function when it is the server's own, else empty.
        send: The same of the send function; None when the type has none and goes as text.
        delimiter: ``typdelim``, between elements of this type in an array.
        base_oid: The type under a domain, one step down; else 0.
        element_oid: ``typelem``: the element type of an array; else 0 or without meaning here.
        range_oid: The subtype of a range, the range type of a multirange; else 0.
        attributes: Attributes of a composite type, in order.
    """

    oid: int
    name: str
    kind: str
    output: str
    send: str | None
    delimiter: str = ","
    base_oid: int = 0
    element_oid: int = 0
    range_oid: int = 0
    attributes: tuple[Attribute, ...] = ()
