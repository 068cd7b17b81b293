"""Context shared by the analysis: columns, errors, folding of calls, collations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from gateway.definitions.model import Collation, Column
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter import collations, types
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import Call, Constant, Expr, Operation, Value
from gateway.rowfilter.parse import Node, Text, unwrap
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["Context", "Handler"]


class Context:
    """One pass over one tree. `failures` are errors of constant parts that are still reached."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        text: Text,
        handlers: Mapping[str, Handler],
    ) -> None:
        self.columns, self.text = columns, text
        self.failures: list[tuple[str, Node]] = []
        self._handlers = handlers

    def typed(self, node: Node) -> Typed:
        """Type an expression."""
        kind, inner = unwrap(node)
        handler = self._handlers.get(kind)
        if handler is None:
            raise self.text.refuse(kind.replace("_", " ") or "this form", inner)
        return handler(self, inner)

    def boolean(self, node: Node) -> Expr:
        """Type an expression that must be boolean."""
        typed = self.typed(node)
        if typed.type_oid != BOOL:
            raise self.text.refuse(
                f"a boolean is expected, not {type_name(typed.type_oid)}", unwrap(node)[1]
            )
        return typed.expr

    # Calls

    def call(self, operation: Operation, arguments: Sequence[Expr], node: Node) -> Expr:
        """Return a call, with its adapters, folded as evaluate_function() does.

        A function of a NULL constant is NULL, all being strict; one of constants is evaluated.
        """
        adapted = self._adapted(operation, arguments, node)
        constants = [a.value for a in adapted if isinstance(a, Constant)]
        if None in constants:
            return Constant(None)
        if len(constants) < len(adapted):
            return Call(operation, adapted)
        return self.evaluated(
            Call(operation, adapted), lambda: operation.function(*constants), node
        )

    def _adapted(
        self, operation: Operation, arguments: Sequence[Expr], node: Node
    ) -> tuple[Expr, ...]:
        if not operation.adapters:
            return tuple(arguments)
        return tuple(
            argument if adapter is None else self.call(adapter, (argument,), node)
            for argument, adapter in zip(arguments, operation.adapters, strict=True)
        )

    def adapted(self, operation: Operation, arguments: Sequence[Typed], node: Node) -> list[Expr]:
        """Operands of a comparison that is not a `Call`."""
        return list(self._adapted(operation, [typed.expr for typed in arguments], node))

    def evaluated(self, expr: Expr, evaluate: Callable[[], Value], node: Node) -> Expr:
        """Return the constant that `expr` is, whose parts are constant.

        If PostgreSQL fails on it, it fails for every row: that is recorded, and `expr` is returned.
        """
        try:
            return Constant(evaluate())
        except EvaluationError as error:
            self.failures.append((error.message, node))
            return expr

    # Collations

    def merged(self, arguments: Sequence[Typed], node: Node) -> tuple[Collation, bool]:
        """Return the collation of a function of `arguments`, and whether COLLATE chose it."""
        try:
            return collations.merge(arguments)
        except collations.CollationError as error:
            raise self.text.refuse(str(error), node) from None

    def check(
        self, name: str, operation: Operation, arguments: Sequence[Typed], node: Node
    ) -> None:
        """Check that the function is the same under the collation of its arguments."""
        try:
            collations.check_collation(name, operation.collation, arguments)
        except collations.CollationError as error:
            raise self.text.refuse(str(error), node) from None

    def result(self, expr: Expr, type_oid: int, arguments: Sequence[Typed], node: Node) -> Typed:
        """Return a typed result whose collation comes from `arguments`.

        Source: assign_collations_walker().
        """
        own = types.type_collation(type_oid)
        if own is None:
            return Typed(expr, type_oid)
        if all(typed.collation is None for typed in arguments):
            return Typed(expr, type_oid, own)
        collation, explicit = self.merged(arguments, node)
        return Typed(expr, type_oid, collation, explicit)


Handler: TypeAlias = Callable[[Context, Node], Typed]
