"""Typed filters: made by `analyze`, read by `interpret` and `compile`.

Values are Python's: int, float, `Decimal`, bool, bytes for every kind of text, integers for times
(see `gateway.pgtypes`), `gateway.pgtypes.arrays.Array`, None for NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = [
    "And",
    "AnyAll",
    "Asked",
    "Call",
    "Case",
    "Coalesce",
    "CollationUse",
    "ColumnRef",
    "Constant",
    "Distinct",
    "Expr",
    "IsNull",
    "IsTrue",
    "MinMax",
    "Not",
    "NullIf",
    "Operation",
    "Or",
    "Value",
    "can_raise",
    "children",
    "column_names",
    "is_asked",
]

Value: TypeAlias = object


class CollationUse(Enum):
    """Requirement of a function on the collation of its arguments.

    NONE: nothing. EQUALITY: that equal means equal bytes (deterministic). ORDER: that it sorts by
    the bytes of the UTF-8 text.
    """

    NONE = "none"
    EQUALITY = "equality"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Operation:
    """A built-in function that is reproduced exactly: NULL when an argument is, and only then.

    Attributes:
        name: The ``prosrc`` of the function; or a name of our own for a step.
        function: Takes and returns values; never None.
        infix: The Python operator that does the same, if there is one.
        can_raise: Whether it may raise `EvaluationError`.
        collation: Requirement on the collation of its arguments.
        adapters: For each argument an operation, which does not raise, that is applied first, or
            None. A comparison can thus work on keys that are made once of a constant.
        prepare: Gets the constant arguments, by position, if some but not all are constant; returns
            the equivalent function of the other arguments, in their order, or None if nothing is
            gained. It never raises: then it returns None.
    """

    name: str
    function: Callable[..., Value]
    infix: str | None = None
    can_raise: bool = False
    collation: CollationUse = CollationUse.NONE
    adapters: tuple[Operation | None, ...] = ()
    prepare: Callable[[Mapping[int, Value]], Callable[..., Value] | None] | None = None


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The value of a column; `type_modifier` is its ``atttypmod``."""

    name: str
    type_oid: int
    type_modifier: int = -1


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, or the result of folded constant parts; None is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Asked:
    """The server's result of the whole filter `text`: true, not true, or an error."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, or a cast."""

    operation: Operation
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class And:
    """From left to right until one is false."""

    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """From left to right until one is true."""

    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """NULL stays NULL."""

    argument: Expr


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL, and IS UNKNOWN; never NULL itself."""

    argument: Expr


@dataclass(frozen=True, slots=True)
class IsTrue:
    """IS TRUE, or IS FALSE when `expected` is False; never NULL itself."""

    argument: Expr
    expected: bool


@dataclass(frozen=True, slots=True)
class Distinct:
    """IS DISTINCT FROM under the equality `equal`; never NULL itself."""

    equal: Operation
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class AnyAll:
    """``scalar operator ANY (array)``, or ALL.

    `equality`: True, the operator is =; False, it is <>; None, any other.
    """

    operation: Operation
    scalar: Expr
    array: Constant
    is_any: bool
    equality: bool | None


@dataclass(frozen=True, slots=True)
class Case:
    """CASE: the result beside the first condition that is true, and nothing else, is evaluated."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr


@dataclass(frozen=True, slots=True)
class Coalesce:
    """From left to right until one is not NULL."""

    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class NullIf:
    """`left`, or NULL where it equals `right` under `equal`."""

    equal: Operation
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class MinMax:
    """GREATEST, or LEAST, under the order `less`: NULLs are left out, the first of equals stays."""

    less: Operation
    arguments: tuple[Expr, ...]
    is_greatest: bool


Expr: TypeAlias = (
    ColumnRef
    | Constant
    | Asked
    | Call
    | And
    | Or
    | Not
    | IsNull
    | IsTrue
    | Distinct
    | AnyAll
    | Case
    | Coalesce
    | NullIf
    | MinMax
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of `expr`, in the order in which PostgreSQL evaluates them."""
    match expr:
        case Call(_, arguments) | And(arguments) | Or(arguments):
            return arguments
        case Coalesce(arguments) | MinMax(_, arguments):
            return arguments
        case Not(argument) | IsNull(argument) | IsTrue(argument):
            return (argument,)
        case Distinct(_, left, right) | AnyAll(_, left, right) | NullIf(_, left, right):
            return (left, right)
        case Case(branches, default):
            return (*(part for branch in branches for part in branch), default)
        case _:
            return ()


def _operations(expr: Expr) -> Iterator[Operation]:
    match expr:
        case Call(operation) | AnyAll(operation) | Distinct(operation):
            yield operation
        case NullIf(operation) | MinMax(operation):
            yield operation
    for child in children(expr):
        yield from _operations(child)


def can_raise(expr: Expr) -> bool:
    """Whether the evaluation of `expr` may raise."""
    return any(operation.can_raise for operation in _operations(expr)) or is_asked(expr)


def is_asked(expr: Expr) -> bool:
    """Whether the server takes part in the evaluation of `expr`."""
    return isinstance(expr, Asked) or any(map(is_asked, children(expr)))


def column_names(expr: Expr) -> Iterator[str]:
    """Return the columns that `expr` reads, once for each time."""
    if isinstance(expr, ColumnRef):
        yield expr.name
    for child in children(expr):
        yield from column_names(child)
