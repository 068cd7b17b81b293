"""A typed filter: what `analyze` makes, and `interpret` and `compile` read.

Values are Python's: int, float, `Decimal`, bool, bytes for every kind of text, integers for times
(see `gateway.pgtypes`), None for NULL, a tuple for an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "And",
    "AnyAll",
    "ArrayOf",
    "Call",
    "ColumnRef",
    "Constant",
    "Distinct",
    "Expr",
    "IsNull",
    "IsTrue",
    "Not",
    "Operation",
    "Or",
    "Value",
    "can_raise",
    "children",
    "column_names",
]

Value: TypeAlias = object


@dataclass(frozen=True, slots=True)
class Operation:
    """A strict built-in function: NULL when an argument is NULL, else `function` of them.

    Attributes:
        name: PostgreSQL's ``prosrc``, or a name of our own for a step of it.
        function: Takes and returns values, never None.
        infix: The Python operator that does the same, if there is one.
        can_raise: It may raise `EvaluationError`.
    """

    name: str
    function: Callable[..., Value]
    infix: str | None = None
    can_raise: bool = False


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The value of a column."""

    name: str
    type_oid: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, or what constant parts were folded to; None is NULL."""

    value: Value


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
class ArrayOf:
    """ARRAY[...] with elements that are not all constant."""

    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class AnyAll:
    """``scalar operator ANY (array)``, or ALL.

    `equality` says what a `Constant` array can be searched for: True, the operator is =; False,
    it is <>; None, any other.
    """

    operation: Operation
    scalar: Expr
    array: Expr
    is_any: bool
    equality: bool | None


Expr: TypeAlias = (
    ColumnRef | Constant | Call | And | Or | Not | IsNull | IsTrue | Distinct | ArrayOf | AnyAll
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of `expr`, in the order in which PostgreSQL evaluates them."""
    match expr:
        case Call(_, arguments) | And(arguments) | Or(arguments) | ArrayOf(arguments):
            return arguments
        case Not(argument) | IsNull(argument) | IsTrue(argument):
            return (argument,)
        case Distinct(_, left, right) | AnyAll(_, left, right):
            return (left, right)
        case _:
            return ()


def _operations(expr: Expr) -> Iterator[Operation]:
    match expr:
        case Call(operation) | AnyAll(operation) | Distinct(operation):
            yield operation
    for child in children(expr):
        yield from _operations(child)


def can_raise(expr: Expr) -> bool:
    """Evaluating `expr` may raise."""
    return any(operation.can_raise for operation in _operations(expr))


def column_names(expr: Expr) -> Iterator[str]:
    """The columns that `expr` reads, once for each time."""
    if isinstance(expr, ColumnRef):
        yield expr.name
    for child in children(expr):
        yield from column_names(child)
