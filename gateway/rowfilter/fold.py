"""Constant folding as in PostgreSQL's planner, as far as it decides which errors appear.

Source: eval_const_expressions(), simplify_and_arguments(), simplify_or_arguments().
"""

from __future__ import annotations

from gateway.rowfilter.evaluation.interpret import distinct, null_if
from gateway.rowfilter.expr import And, Constant, Distinct, Expr, Not, NullIf, Or

__all__ = ["Junction", "fold_distinct", "fold_null_if", "negate"]


class Junction:
    """AND, or OR, folded from left to right.

    A constant that decides (false for AND) cuts off the operands after it and drops those before;
    one that does not is dropped itself; NULLs become one, at the end.
    """

    __slots__ = ("_has_null", "_is_and", "_kept", "decided")

    def __init__(self, *, is_and: bool) -> None:
        self._is_and = is_and
        self._kept: list[Expr] = []
        self._has_null = False
        self.decided = False

    def add(self, expr: Expr) -> None:
        """Add the next argument."""
        if isinstance(expr, Constant):
            self._has_null |= expr.value is None
            self.decided = expr.value is (not self._is_and)
        elif isinstance(expr, And if self._is_and else Or):
            self._kept += expr.arguments
        else:
            self._kept.append(expr)

    def result(self) -> Expr:
        """Return the remaining expression."""
        if self.decided:
            return Constant(not self._is_and)
        kept = [*self._kept, Constant(None)] if self._has_null else self._kept
        if len(kept) < 2:
            return kept[0] if kept else Constant(self._is_and)
        return And(tuple(kept)) if self._is_and else Or(tuple(kept))


def negate(expr: Expr) -> Expr:
    """NOT."""
    if isinstance(expr, Constant):
        return Constant(None if expr.value is None else not expr.value)
    return Not(expr)


def fold_distinct(expr: Distinct) -> Expr:
    """IS DISTINCT FROM, folded when both sides are constant."""
    match expr:
        case Distinct(equal, Constant(left), Constant(right)):
            return Constant(distinct(equal.function, left, right))
    return expr


def fold_null_if(expr: NullIf) -> Expr:
    """NULLIF: folded when both sides are constant; a constant NULL equals nothing."""
    match expr:
        case NullIf(equal, Constant(left), Constant(right)):
            return Constant(null_if(equal.function, left, right))
        case NullIf(_, Constant(None) as left) | NullIf(_, left, Constant(None)):
            return left
    return expr
