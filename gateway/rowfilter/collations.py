"""Collations of operators on text, and whether their results can be reproduced.

Source: src/backend/parser/parse_collate.c; manual, "Collation Support".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.definitions.model import Collation
from gateway.rowfilter.expr import CollationUse, Expr
from gateway.rowfilter.types import DEFAULT, C

__all__ = [
    "BYTE_ORDER_NAMES",
    "DEFAULT",
    "C",
    "CollationError",
    "Typed",
    "check_collation",
    "merge",
]

BYTE_ORDER_NAMES: Final = frozenset({"C", "POSIX", "ucs_basic", "pg_c_utf8"})


CONFLICT: Final = Collation("(none)", deterministic=False, c_order=False)
"""Collation of an expression whose parts have different collations."""


class CollationError(Exception):
    """Raised for an operator that is not supported under a collation, with the reason."""


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression, its type, and the collation that an operator above it derives from it.

    `collation` is None for types without one; `explicit` means that COLLATE was written.
    """

    expr: Expr
    type_oid: int
    collation: Collation | None = None
    explicit: bool = False


def merge(arguments: Sequence[Typed]) -> tuple[Collation, bool]:
    """Return the collation of a function of `arguments`, and whether COLLATE chose it.

    It is `CONFLICT` when columns disagree: this concerns only functions that need a collation.

    Raises:
        CollationError: two COLLATE disagree.
    """
    found, explicit = DEFAULT, False
    for typed in arguments:
        collation = typed.collation
        if collation is None or (explicit and not typed.explicit):
            continue
        if typed.explicit and not explicit:
            found, explicit = collation, True
        elif _plain(collation) == _plain(found):
            if collation.c_order:  # the database's, as its columns know it and literals do not
                found = collation
        elif explicit:
            raise CollationError(f"collation mismatch between {found.name} and {collation.name}")
        elif _plain(found) == "default":
            found = collation
        elif _plain(collation) != "default":
            found = CONFLICT
    return found, explicit


def check_collation(name: str, use: CollationUse, arguments: Sequence[Typed]) -> None:
    """Check that a function, called `name` in messages, is evaluated here on `arguments`.

    Raises:
        CollationError: not under their collation.
    """
    if use is CollationUse.NONE:
        return
    collation, _ = merge(arguments)
    if collation is CONFLICT:
        raise CollationError(f"could not determine which collation to use for {name}")
    if not collation.deterministic:
        raise CollationError(f"collation {collation.name} is nondeterministic")
    if use is CollationUse.ORDER and not collation.c_order:
        raise CollationError(f"the order of text under collation {collation.name}")


def _plain(collation: Collation) -> str:
    """Return the name of a built-in collation without schema and quotes."""
    return collation.name.removeprefix("pg_catalog.").strip('"')
