"""Generation of the source of one Python expression over a tuple from a typed expression.

Four ways to ask for an expression, so that NULL costs nothing where it does not matter:

    is_true   source of a bool: the expression is true (what a filter is asked)
    is_false  source of a bool: the expression is false (what NOT asks of its operand)
    value     source of a value or None
    parts     a guard (source of a bool, '' when none is needed) and the value under it

`is_true(a AND b)` may stop at a NULL `a`, where PostgreSQL goes on to `b`; that can be observed
only when `b` raises, and then the three-valued form is used. A column that is read once is read
where it stands; one that is read more often is read before the expression, or at its first use
if that is expensive.

Operations on constants alone have been folded before (`analyze`).

`interpret` is the specification of all this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from gateway.pgoutput.messages import UNCHANGED
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.datetimes import iso
from gateway.rowfilter.evaluation.interpret import any_all, distinct, min_max, null_if
from gateway.rowfilter.evaluation.reading import (
    AS_TEXT,
    CHEAP,
    FORMATS,
    INLINE,
    not_sent,
    once,
    parser,
    sent,
)
from gateway.rowfilter.expr import (
    And,
    AnyAll,
    Asked,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Constant,
    Distinct,
    Expr,
    IsNull,
    IsTrue,
    MinMax,
    Not,
    NullIf,
    Operation,
    Or,
    can_raise,
    children,
    column_names,
)
from gateway.rowfilter.server.question import answer

__all__ = ["Generator", "read_first", "without_widening"]

_EXACT_WIDENING: Final = frozenset(
    ("int28", "i2toi4", "int48", "ftod", "i2tod", "i4tod", "int2_numeric", "int4_numeric",
     "int8_numeric")
)  # fmt: skip
"""Casts that a comparison can omit: Python compares the numbers exactly."""


_MINUS: Final = ord("-")
_C: Final = ord("C")
_INFINITIES: Final = frozenset(
    (iso.DATE_INFINITY, iso.DATE_MINUS_INFINITY, iso.TIMESTAMP_INFINITY,
     iso.TIMESTAMP_MINUS_INFINITY)
)  # fmt: skip


class Generator:
    """Names and columns of a generated function, for one layout of tuples."""

    def __init__(
        self,
        indexes: Mapping[str, int],
        expr: Expr,
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._indexes = indexes
        self._places = places
        self._temporaries = 0
        self.constants: dict[str, Any] = {}
        self.prologue: list[str] = []
        self._loaded: dict[str, str] = {}
        self._parsers: dict[str, str] = {}
        for column in _repeated(expr):
            if column.type_oid in CHEAP:
                name = self._temporary()
                self.prologue.append(f"{name} = {self._read(column)}")
                self._loaded[column.name] = name
            else:
                self._parsers[column.name] = self._constant(once(parser(column.type_oid)))

    # Names

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _constant(self, value: Any) -> str:
        if value is None or type(value) in (bool, int, bytes):
            return repr(value) if type(value) is not int or value >= 0 else f"({value})"
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    # Columns

    def _raw(self, column: ColumnRef) -> str:
        return f"row[{self._indexes[column.name]}]"

    def _parse(self, column: ColumnRef, raw: str) -> str:
        if column.type_oid in AS_TEXT:
            return f"{self._constant(sent)}({raw})"
        if column.type_oid in INLINE:
            return INLINE[column.type_oid].format(raw)
        parse = self._parsers.get(column.name) or self._constant(parser(column.type_oid))
        return f"{parse}({raw})"

    def _read(self, column: ColumnRef) -> str:
        """Return source of the value of `column`, or None."""
        raw = self._temporary()
        parsed = self._parse(column, raw)
        return f"(None if ({raw} := {self._raw(column)}) is None else {parsed})"

    # The four forms

    def is_true(self, expr: Expr) -> str:
        """Return source of a bool: whether `expr` is true."""
        match expr:
            case Constant(value):
                return repr(value is True)
            case And(arguments) if not any(map(can_raise, arguments[1:])):
                return f"({' and '.join(map(self.is_true, arguments))})"
            case Or(arguments):
                return f"({' or '.join(map(self.is_true, arguments))})"
            case Not(argument):
                return self.is_false(argument)
            case IsNull(argument):
                return self._is_null(argument, "is")
            case IsTrue(argument, expected):
                return self.is_true(argument) if expected else self.is_false(argument)
            case AnyAll() if (search := self._search(expr)) is not None:
                return self._found(expr, search, wanted=True)
            case Call() if (fast := self._equals_text(expr)) is not None:
                return fast
            case Call() if (fast := self._orders_text(expr)) is not None:
                return fast
            case Asked():
                return self.value(expr)
            case ColumnRef() | Call():
                return _both(*self.parts(expr))
            case Distinct(equal, left, right):
                sources = f"{self.value(left)}, {self.value(right)}"
                return f"{self._constant(distinct)}({self._function(equal)}, {sources})"
            case Case():
                return self._case(expr, self.is_true)
        return f"({self.value(expr)} is True)"

    def is_false(self, expr: Expr) -> str:
        """Return source of a bool: whether `expr` is false."""
        match expr:
            case Constant(value):
                return repr(value is False)
            case And(arguments):
                return f"({' or '.join(map(self.is_false, arguments))})"
            case Or(arguments) if not any(map(can_raise, arguments[1:])):
                return f"({' and '.join(map(self.is_false, arguments))})"
            case Not(argument):
                return self.is_true(argument)
            case IsNull(argument):
                return self._is_null(argument, "is not")
            case IsTrue() | Distinct():
                return f"(not {self.is_true(expr)})"
            case AnyAll() if (search := self._search(expr)) is not None:
                return self._found(expr, search, wanted=False)
            case ColumnRef() | Call():
                guard, source = self.parts(expr)
                return _both(guard, f"not {source}")
            case Case():
                return self._case(expr, self.is_false)
        return f"({self.value(expr)} is False)"

    def value(self, expr: Expr) -> str:
        """Return source of the value of `expr`, or None."""
        match expr:
            case Constant(value):
                return self._constant(value)
            case Asked(text):
                return f"{self._constant(answer)}(row, {self._places[text]})"
            case ColumnRef(name):
                return self._loaded.get(name) or self._read(expr)
            case And(arguments):
                return self._junction(arguments, decides=False)
            case Or(arguments):
                return self._junction(arguments, decides=True)
            case IsNull() | IsTrue() | Distinct():
                return self.is_true(expr)
            case AnyAll(operation, scalar, array, is_any):
                sources = f"{self.value(scalar)}, {self.value(array)}, {is_any}"
                return f"{self._constant(any_all)}({self._function(operation)}, {sources})"
            case Case():
                return self._case(expr, self.value)
            case Coalesce(arguments):
                return self._coalesce(arguments)
            case NullIf(equal, left, right):
                sources = f"{self.value(left)}, {self.value(right)}"
                return f"{self._constant(null_if)}({self._function(equal)}, {sources})"
            case MinMax(less, _, is_greatest):
                sources = f"{self._function(less)}, {self._items(expr)}, {is_greatest}"
                return f"{self._constant(min_max)}({sources})"
            case Not() | Call():
                guard, source = self.parts(expr)
                return f"({source} if {guard} else None)" if guard else source
        raise AssertionError(expr)

    def parts(self, expr: Expr) -> tuple[str, str]:
        """Return a guard that is true when `expr` is not NULL, and its value under the guard."""
        match expr:
            case ColumnRef(name):
                if name in self._loaded:
                    return f"{self._loaded[name]} is not None", self._loaded[name]
                raw = self._temporary()
                return f"({raw} := {self._raw(expr)}) is not None", self._parse(expr, raw)
            case Constant(value) if value is not None:
                return "", self._constant(value)
            case IsNull() | IsTrue() | Distinct():
                return "", self.is_true(expr)
            case Not(argument):
                guard, source = self.parts(argument)
                return guard, f"(not {source})"
            case Call(operation, arguments):
                return self._call_parts(operation, _unwidened(operation, arguments))
        name = self._temporary()
        return f"({name} := {self.value(expr)}) is not None", name

    def _call_parts(self, operation: Operation, arguments: Sequence[Expr]) -> tuple[str, str]:
        operation, arguments = _prepared(operation, arguments)
        parts = [self.parts(argument) for argument in arguments]
        guards = [guard for guard, _ in parts if guard]
        raising = [
            part for part, argument in zip(parts, arguments, strict=True) if can_raise(argument)
        ]
        if (len(guards) > 1 and raising) or (guards and any(not guard for guard, _ in raising)):
            # A NULL must not keep the other argument from being evaluated, and from raising.
            names = [self._temporary() for _ in arguments]
            tests = [
                f"(({name} := {self.value(argument)}) is not None)"
                for name, argument in zip(names, arguments, strict=True)
            ]
            return f"({' & '.join(tests)})", self._apply(operation, names)
        return " and ".join(guards), self._apply(operation, [source for _, source in parts])

    def _apply(self, operation: Operation, sources: Sequence[str]) -> str:
        if operation.infix is not None:
            return f"({f' {operation.infix} '.join(sources)})"
        return f"{self._function(operation)}({', '.join(sources)})"

    def _function(self, operation: Operation) -> str:
        return self._constant(operation.function)

    # Conditionals

    def _case(self, expr: Case, build: Callable[[Expr], str]) -> str:
        branches = "".join(
            f"{build(result)} if {self.is_true(condition)} else "
            for condition, result in expr.branches
        )
        return f"({branches}{build(expr.default)})"

    def _coalesce(self, arguments: Sequence[Expr]) -> str:
        steps = ""
        for argument in arguments[:-1]:
            name = self._temporary()
            steps += f"{name} if ({name} := {self.value(argument)}) is not None else "
        return f"({steps}{self.value(arguments[-1])})"

    def _items(self, expr: MinMax) -> str:
        return f"({''.join(self.value(item) + ', ' for item in children(expr))})"

    # Special cases

    def _equals_text(self, expr: Call) -> str | None:
        """``text column = constant``, on the bytes as they came; NULL is not equal to them."""
        if expr.operation.infix != "==":
            return None
        left, right = expr.arguments
        if not isinstance(left, ColumnRef) or not isinstance(right, Constant):
            return None
        if not isinstance(right.value, bytes) or left.name in self._loaded:
            return None
        return self._member(left, f"== {self._constant(right.value)}")

    def _orders_text(self, expr: Call) -> str | None:
        """A date or a timestamp compared with a constant, by its text: of the years 1 to 9999."""
        if expr.operation.infix not in ("<", "<=", ">", ">=") or expr.operation.adapters:
            return None
        left, right = expr.arguments
        if not isinstance(left, ColumnRef) or not isinstance(right, Constant):
            return None
        print_ = FORMATS.get(left.type_oid)
        if print_ is None or type(right.value) is not int or left.name in self._loaded:
            return None
        if right.value in _INFINITIES:
            return None
        text = print_(right.value)
        if text[4] != _MINUS or text[-1] == _C:
            return None
        raw, infix = self._temporary(), expr.operation.infix
        parsed = self._parse(left, raw)
        return (
            f"(({raw} := {self._raw(left)}) is not None and ({raw} {infix} {self._constant(text)} "
            f"if {raw}[4] == {_MINUS} and {raw}[-1] != {_C} "
            f"else {parsed} {infix} {self._constant(right.value)}))"
        )

    def _member(self, column: ColumnRef, test: str) -> str | None:
        raw = self._raw(column)
        if column.type_oid in AS_TEXT:
            name = self._temporary()
            unchanged = self._constant(UNCHANGED)
            refuse = self._constant(not_sent)
            return f"(({name} := {raw}) {test} or {name} is {unchanged} and {refuse}())"
        return f"({raw} {test})" if INLINE.get(column.type_oid) == "{}" else None

    def _search(self, expr: AnyAll) -> tuple[frozenset[Any], bool] | None:
        """Return the constant array of ``= ANY`` or ``<> ALL`` as a set, and if it has NULLs."""
        if expr.equality is not expr.is_any:
            return None
        array = expr.array.value
        if not isinstance(array, Array) or not array.items:
            return None
        items = array.items
        try:
            return frozenset(item for item in items if item is not None), None in items
        except TypeError:  # values that cannot be hashed
            return None

    def _found(self, expr: AnyAll, search: tuple[frozenset[Any], bool], *, wanted: bool) -> str:
        items, has_null = search
        scalar = expr.scalar
        name = self._constant(items)
        # = ANY is true, and <> ALL is false, when the scalar is found.
        if wanted is expr.is_any:
            if isinstance(scalar, ColumnRef) and scalar.name not in self._loaded:
                fast = self._member(scalar, f"in {name}")
                if fast is not None:
                    return fast
            guard, source = self.parts(without_widening(scalar))
            return _both(guard, f"{source} in {name}")
        guard, source = self.parts(without_widening(scalar))
        # With a NULL in the array, not found is unknown.
        last = " and False" if has_null else ""
        return f"({_both(guard, f'{source} not in {name}')}{last})"

    def _is_null(self, argument: Expr, test: str) -> str:
        if isinstance(argument, ColumnRef):
            source = self._loaded.get(argument.name) or self._raw(argument)
        else:
            source = self.value(argument)
        return f"({source} {test} None)"

    def _junction(self, arguments: Sequence[Expr], *, decides: bool) -> str:
        names = [self._temporary() for _ in arguments]
        steps = " or ".join(
            f"({name} := {self.value(argument)}) is {decides}"
            for name, argument in zip(names, arguments, strict=True)
        )
        unknown = " or ".join(f"{name} is None" for name in names)
        return f"({decides} if {steps} else None if {unknown} else {not decides})"


def _both(guard: str, source: str) -> str:
    return f"({guard} and {source})" if guard else source


def _columns(expr: Expr) -> list[ColumnRef]:
    if isinstance(expr, ColumnRef):
        return [expr]
    return [column for child in children(expr) for column in _columns(child)]


def _repeated(expr: Expr) -> list[ColumnRef]:
    """Return the columns that occur in `expr` more than once."""
    times = Counter(column_names(expr))
    columns = {column.name: column for column in _columns(expr)}
    return [column for name, column in columns.items() if times[name] > 1]


def _prepared(operation: Operation, arguments: Sequence[Expr]) -> tuple[Operation, Sequence[Expr]]:
    """Return a call with its constant arguments bound into its function, if that helps."""
    if operation.prepare is None:
        return operation, arguments
    constants = {
        place: argument.value
        for place, argument in enumerate(arguments)
        if isinstance(argument, Constant)
    }
    function = operation.prepare(constants) if constants else None
    if function is None:
        return operation, arguments
    rest = [argument for argument in arguments if not isinstance(argument, Constant)]
    return replace(operation, function=function, infix=None, prepare=None), rest


def _unwidened(operation: Operation, arguments: Sequence[Expr]) -> Sequence[Expr]:
    """Return arguments of a comparison without the casts that cannot change its result."""
    if operation.infix not in ("==", "!=", "<", "<=", ">", ">="):
        return arguments
    return tuple(map(without_widening, arguments))


def read_first(expr: Expr) -> list[ColumnRef]:
    """Return the columns whose values are read before `expr`, in any case."""
    return [column for column in _repeated(expr) if column.type_oid in CHEAP]


def without_widening(expr: Expr) -> Expr:
    """Return the operand of a comparison without casts that the comparison can omit."""
    while isinstance(expr, Call) and expr.operation.name in _EXACT_WIDENING:
        expr = expr.arguments[0]
    return expr
