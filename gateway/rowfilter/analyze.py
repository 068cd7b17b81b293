"""Parse tree -> typed expression, from the columns' types upwards.

Nothing is resolved by guessing: the server prints every cast, so an operator is looked up by its
name and the exact types of its arguments. Constant parts are folded as eval_const_expressions()
folds them, because that decides which errors can be raised at all.

Source: src/backend/parser/parse_expr.c, src/backend/optimizer/util/clauses.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.definitions.model import Collation, Column
from gateway.errors import ValueFormatError
from gateway.pgtypes.catalog import (
    CASTS,
    OPERATORS,
    TYPES,
    VOLATILE_CASTS,
    VOLATILE_OPERATORS,
)
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter import collations, operators, types
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import (
    AnyAll,
    ArrayOf,
    Call,
    ColumnRef,
    Constant,
    Distinct,
    Expr,
    IsNull,
    IsTrue,
    Operation,
    Signature,
    Value,
)
from gateway.rowfilter.fold import Junction, fold_distinct, negate
from gateway.rowfilter.interpret import any_all
from gateway.rowfilter.parse import Node, Text, unwrap
from gateway.rowfilter.types import BOOL, INT4, INT8, NUMERIC, TEXT, TEXT_TYPES, type_name

__all__ = ["analyze"]

FIRST_USER_OID: Final = 16384
"""FirstNormalObjectId: what initdb did not make."""

_NOT_IMMUTABLE: Final = "depends on settings of the session, so it is not immutable"


def analyze(root: Node, columns: Sequence[Column], text: Text) -> Expr:
    """Type the expression `root` of a filter on `columns`.

    Raises:
        FilterError: something in it is not supported, or PostgreSQL fails on a constant part.
    """
    analyzer = _Analyzer({column.name: column for column in columns}, text)
    typed = analyzer.typed(root)
    if typed.type_oid != BOOL:
        raise text.refuse(
            f"argument of PUBLICATION WHERE must be type boolean, not {type_name(typed.type_oid)}",
            unwrap(root)[1],
        )
    if analyzer.failures:
        reason, node = analyzer.failures[0]
        raise text.refuse(reason, node)
    return typed.expr


class _Analyzer:
    """One pass over one tree. `failures` are errors of constant parts that were not cut off."""

    def __init__(self, columns: Mapping[str, Column], text: Text) -> None:
        self.columns, self.text = columns, text
        self.failures: list[tuple[str, Node]] = []

    def typed(self, node: Node) -> Typed:
        kind, inner = unwrap(node)
        method = getattr(self, f"_{kind}", None)
        if method is None:
            name = kind.replace("_", " ") or "this"
            raise self.text.refuse(f"{name} is not supported in a row filter", inner)
        result: Typed = method(inner)
        return result

    # Leaves

    def _column_ref(self, node: Node) -> Typed:
        names = [unwrap(field)[1] for field in node.fields]
        if len(names) != 1 or not hasattr(names[0], "sval"):
            raise self.text.refuse("only plain names of columns are supported", node)
        column = self.columns.get(names[0].sval)
        if column is None:
            raise self.text.refuse(f'column "{names[0].sval}" does not exist', node)
        if column.generated == "v":
            raise self.text.refuse(
                f'column "{column.name}" is generated when it is read, so changes do not carry it',
                node,
            )
        if column.type_oid >= FIRST_USER_OID:
            raise self.text.refuse("User-defined types are not allowed", node)
        if column.type_oid not in types.PARSERS:
            raise self.text.refuse(
                f'column "{column.name}" has type {column.type_name}, which is not supported', node
            )
        collation = column.collation
        if column.type_oid in TEXT_TYPES and collation is None:
            collation = collations.C if column.type_oid == types.NAME else collations.DEFAULT
        return Typed(ColumnRef(column.name, column.type_oid), column.type_oid, collation)

    def _a_const(self, node: Node) -> Typed:
        match node.WhichOneof("val"):
            case "ival":
                return Typed(Constant(node.ival.ival), INT4)
            case "boolval":
                return Typed(Constant(node.boolval.boolval), BOOL)
            case "fval":
                digits: str = node.fval.fval
                if digits.isdigit() and int(digits) < 2**63:
                    return Typed(Constant(int(digits)), INT8)
                return Typed(Constant(types.PARSERS[NUMERIC](digits.encode())), NUMERIC)
        raise self.text.refuse(
            "a literal without a type; the text must be the server's own rendering", node
        )

    # Casts

    def _type_cast(self, node: Node) -> Typed:
        target = self._type_oid(node)
        typmod = self._typmod(node.type_name, target)
        kind, argument = unwrap(node.arg)
        if kind == "a_const" and (argument.isnull or argument.WhichOneof("val") == "sval"):
            return self._length(self._literal(argument, target), typmod, node)
        if kind == "a_array_expr" and not argument.elements:  # ARRAY[]::integer[]
            element = types.element_type(target)
            collation = None if element is None else self._type_collation(element)
            return Typed(Constant(()), target, collation)
        typed = self.typed(node.arg)
        return self._length(self._cast(typed, target, node), typmod, node)

    def _type_oid(self, node: Node) -> int:
        names = [unwrap(name)[1].sval for name in node.type_name.names]
        if names[:-1] not in ([], ["pg_catalog"]) or names[-1] not in TYPES:
            raise self.text.refuse(f"type {'.'.join(names)} is not supported", node.type_name)
        oid, array = TYPES[names[-1]]
        return array if node.type_name.array_bounds else oid

    def _typmod(self, name: Node, target: int) -> int:
        numbers: list[int] = [unwrap(node)[1].ival.ival for node in name.typmods]
        if not numbers:
            return -1
        if target in (types.VARCHAR, types.BPCHAR):
            return numbers[0] + 4
        if target == NUMERIC:
            scale = numbers[1] if len(numbers) > 1 else 0
            return ((numbers[0] << 16) | (scale & 0x7FF)) + 4
        return numbers[0]

    def _literal(self, node: Node, target: int) -> Typed:
        collation = self._type_collation(target)
        if node.isnull:
            if target not in types.TYPE_NAMES:
                raise self.text.refuse(f"type {type_name(target)} is not supported", node)
            return Typed(Constant(None), target, collation)
        raw = node.sval.sval.encode()
        try:
            element = types.element_type(target)
            value: Value
            if element is not None and element in types.PARSERS:
                value = types.parse_array(raw, types.PARSERS[element])
                collation = self._type_collation(element)
            elif target in types.PARSERS:
                value = types.PARSERS[target](raw)
            else:
                raise self.text.refuse(f"type {type_name(target)} is not supported", node)
        except ValueFormatError:
            raise self.text.refuse(
                f"literal does not read as {type_name(target)} in the server's rendering", node
            ) from None
        return Typed(Constant(value), target, collation)

    def _type_collation(self, oid: int) -> Collation | None:
        if oid == types.NAME:
            return collations.C
        return collations.DEFAULT if oid in TEXT_TYPES else None

    def _cast(self, typed: Typed, target: int, node: Node) -> Typed:
        source = typed.type_oid
        collation = typed.collation if target in TEXT_TYPES else None
        if collation is None:
            collation = self._type_collation(target)
        if source == target:
            return typed
        step = (source, target)
        if step in VOLATILE_CASTS:
            raise self.text.refuse(
                f"cast from {type_name(source)} to {type_name(target)} {_NOT_IMMUTABLE}", node
            )
        if step not in CASTS or target not in types.PARSERS or not operators.has_cast(step):
            raise self.text.refuse(
                f"cast from {type_name(source)} to {type_name(target)} is not supported", node
            )
        operation = operators.cast_operation(step)
        expr = typed.expr if operation is None else self._call(operation, (typed.expr,), node)
        return Typed(expr, target, collation, typed.explicit)

    def _length(self, typed: Typed, typmod: int, node: Node) -> Typed:
        if typmod == -1:
            return typed
        operation = operators.length_coercion(typed.type_oid, typmod)
        if operation is None:
            raise self.text.refuse(
                f"a type modifier of {type_name(typed.type_oid)} is not supported", node
            )
        expr = self._call(operation, (typed.expr,), node)
        return Typed(expr, typed.type_oid, typed.collation, typed.explicit)

    # Collations

    def _collate_clause(self, node: Node) -> Typed:
        typed = self.typed(node.arg)
        names = [unwrap(name)[1].sval for name in node.collname]
        if names[:-1] not in ([], ["pg_catalog"]):
            raise self.text.refuse("user-defined collations are not allowed", node)
        collation = Collation(names[-1], True, names[-1] in collations.BYTE_ORDER_NAMES)
        return Typed(typed.expr, typed.type_oid, collation, explicit=True)

    def _merged_collation(self, arguments: Sequence[Typed], node: Node) -> tuple[Collation, bool]:
        try:
            return collations.merge(arguments)
        except collations.CollationError as error:
            raise self.text.refuse(str(error), node) from None

    def _check_collation(
        self, name: str, operation: Operation, arguments: Sequence[Typed], node: Node
    ) -> Operation:
        """`operation`, specialized for its constant arguments, if the collation allows it."""
        if operation.specialize is not None:
            found = operation.specialize(
                {
                    place: typed.expr.value
                    for place, typed in enumerate(arguments)
                    if isinstance(typed.expr, Constant)
                }
            )
            if isinstance(found, str):
                raise self.text.refuse(f"{name} is not supported here: {found}", node)
            operation = found
        try:
            collations.check(name, operation.collation, arguments)
        except collations.CollationError as error:
            raise self.text.refuse(str(error), node) from None
        return operation

    # Operators

    def _operator(self, node: Node, name: str, left: int, right: int) -> tuple[Operation, int]:
        key = (name, left, right)
        shown = f'operator "{name}"'
        of = f"{type_name(left)} and {type_name(right)}" if left else type_name(right)
        if key in VOLATILE_OPERATORS:
            raise self.text.refuse(f"{shown} of {of} {_NOT_IMMUTABLE}", node)
        function, result = OPERATORS.get(key, ("", 0))
        arguments = (left, right) if left else (right,)
        operation = operators.operation_for(function, Signature(arguments, result))
        if operation is None:
            raise self.text.refuse(f"{shown} is not supported for {of}", node)
        return operation, result

    def _operator_name(self, node: Node) -> str:
        names = [unwrap(name)[1].sval for name in node.name]
        if names[:-1] not in ([], ["pg_catalog"]):
            raise self.text.refuse("user-defined operators are not allowed", node)
        name: str = names[-1]
        return name

    def _a_expr(self, node: Node) -> Typed:
        name = self._operator_name(node)
        match node.kind:
            case 1:  # AEXPR_OP
                return self._binary(node, name)
            case 2 | 3:  # AEXPR_OP_ANY, AEXPR_OP_ALL
                return self._any_all(node, name, is_any=node.kind == 2)
            case 4 | 5:  # AEXPR_DISTINCT, AEXPR_NOT_DISTINCT
                return self._distinct(node, name, negated=node.kind == 5)
        raise self.text.refuse("this form is not how the server prints an expression", node)

    def _binary(self, node: Node, name: str) -> Typed:
        arguments = [self.typed(node.lexpr)] if node.HasField("lexpr") else []
        arguments.append(self.typed(node.rexpr))
        left = _operator_type(arguments[0]) if len(arguments) == 2 else 0
        operation, result = self._operator(node, name, left, _operator_type(arguments[-1]))
        operation = self._check_collation(f'"{name}"', operation, arguments, node)
        expr = self._call(operation, self._adapted(operation, arguments, node), node)
        if result not in TEXT_TYPES:
            return Typed(expr, result)
        collation, explicit = self._merged_collation(arguments, node)
        return Typed(expr, result, collation, explicit)

    def _adapted(
        self, operation: Operation, arguments: Sequence[Typed], node: Node
    ) -> tuple[Expr, ...]:
        adapters = operation.adapters or (None,) * len(arguments)
        return tuple(
            typed.expr if adapter is None else self._call(adapter, (typed.expr,), node)
            for typed, adapter in zip(arguments, adapters, strict=True)
        )

    def _call(self, operation: Operation, arguments: tuple[Expr, ...], node: Node) -> Expr:
        """A strict function, folded when its arguments are constant or one is NULL."""
        constants = [a.value for a in arguments if isinstance(a, Constant)]
        if None in constants:
            return Constant(None)
        if len(constants) < len(arguments):
            return Call(operation, arguments)
        try:
            return Constant(operation.function(*constants))
        except EvaluationError as error:
            self.failures.append((error.message, node))
            return Call(operation, arguments)

    def _distinct(self, node: Node, name: str, *, negated: bool) -> Typed:
        arguments = [self.typed(node.lexpr), self.typed(node.rexpr)]
        operation, _ = self._operator(node, name, *map(_operator_type, arguments))
        operation = self._check_collation(f'"{name}"', operation, arguments, node)
        left, right = self._adapted(operation, arguments, node)
        expr = fold_distinct(Distinct(operation, left, right))
        return Typed(negate(expr) if negated else expr, BOOL)

    # Arrays

    def _any_all(self, node: Node, name: str, *, is_any: bool) -> Typed:
        scalar = self.typed(node.lexpr)
        array = self.typed(node.rexpr)
        element = types.element_type(array.type_oid)
        if element is None:
            raise self.text.refuse(f"{type_name(array.type_oid)} is not an array", node)
        operation, result = self._operator(
            node, name, _operator_type(scalar), TEXT if element == types.VARCHAR else element
        )
        if result != BOOL:
            raise self.text.refuse("op ANY/ALL requires operator to yield boolean", node)
        operation = self._check_collation(f'"{name}"', operation, (scalar, array), node)
        adapters = operation.adapters or (None, None)
        left = scalar.expr
        if adapters[0] is not None:
            left = self._call(adapters[0], (left,), node)
        right = self._adapt_elements(array.expr, adapters[1], node)
        equality = {"==": True, "!=": False}.get(operation.infix or "")
        expr = AnyAll(operation, left, right, is_any, equality)
        return Typed(self._folded_any_all(expr, node), BOOL)

    def _adapt_elements(self, array: Expr, adapter: Operation | None, node: Node) -> Expr:
        if adapter is None:
            return array
        if isinstance(array, ArrayOf):
            return ArrayOf(tuple(self._call(adapter, (item,), node) for item in array.elements))
        if isinstance(array, Constant) and isinstance(array.value, tuple):
            return Constant(
                tuple(None if item is None else adapter.function(item) for item in array.value)
            )
        return array

    def _folded_any_all(self, expr: AnyAll, node: Node) -> Expr:
        if not (isinstance(expr.scalar, Constant) and isinstance(expr.array, Constant)):
            return expr
        try:
            return Constant(
                any_all(expr.operation.function, expr.scalar.value, expr.array.value, expr.is_any)
            )
        except EvaluationError as error:
            self.failures.append((error.message, node))
            return expr

    def _a_array_expr(self, node: Node) -> Typed:
        elements = [self.typed(element) for element in node.elements]
        kinds = {typed.type_oid for typed in elements}
        if len(kinds) != 1:
            raise self.text.refuse("an array whose elements differ in type", node)
        names = dict(TYPES.values())
        array = names.get(kinds.pop(), 0)
        if not array:
            raise self.text.refuse("an array of this type is not supported", node)
        collation, explicit = elements[0].collation, False
        if collation is not None:
            collation, explicit = self._merged_collation(elements, node)
        values = [typed.expr.value for typed in elements if isinstance(typed.expr, Constant)]
        expr: Expr = ArrayOf(tuple(typed.expr for typed in elements))
        if len(values) == len(elements):
            expr = Constant(tuple(values))
        return Typed(expr, array, collation, explicit)

    # Truth

    def _bool_expr(self, node: Node) -> Typed:
        match node.boolop:
            case 1 | 2:  # AND_EXPR, OR_EXPR
                return Typed(self._junction(node, is_and=node.boolop == 1), BOOL)
            case _:
                return Typed(negate(self._boolean(node.args[0])), BOOL)

    def _boolean(self, node: Node) -> Expr:
        typed = self.typed(node)
        if typed.type_oid != BOOL:
            raise self.text.refuse(
                f"a boolean is expected, not {type_name(typed.type_oid)}", unwrap(node)[1]
            )
        return typed.expr

    def _junction(self, node: Node, *, is_and: bool) -> Expr:
        """AND, or OR; a constant that decides cuts off even what stands before it.

        Source: simplify_and_arguments(), simplify_or_arguments().
        """
        fold = Junction(is_and=is_and)
        for argument in node.args:
            failures = len(self.failures)
            expr = self._boolean(argument)
            if fold.decided:  # PostgreSQL no longer looks here: errors of constants do not count
                del self.failures[failures:]
            else:
                fold.add(expr)
        return fold.result()

    def _null_test(self, node: Node) -> Typed:
        typed = self.typed(node.arg)
        expr: Expr = IsNull(typed.expr)
        if isinstance(typed.expr, Constant):
            expr = Constant(typed.expr.value is None)
        return Typed(negate(expr) if node.nulltesttype == 2 else expr, BOOL)

    def _boolean_test(self, node: Node) -> Typed:
        argument = self._boolean(node.arg)
        kind, negated = divmod(node.booltesttype - 1, 2)
        expected = (True, False, None)[kind]
        expr: Expr
        if isinstance(argument, Constant):
            expr = Constant(argument.value is expected)
        else:
            expr = IsNull(argument) if expected is None else IsTrue(argument, expected)
        return Typed(negate(expr) if negated else expr, BOOL)

    def _func_call(self, node: Node) -> Typed:
        names = [unwrap(name)[1].sval for name in node.funcname]
        if names[:-1] not in ([], ["pg_catalog"]):
            raise self.text.refuse("user-defined functions are not allowed", node)
        arguments = [self.typed(argument) for argument in node.args]
        if names[-1] != "like_escape" or [a.type_oid for a in arguments] != [TEXT, TEXT]:
            raise self.text.refuse(f"function {names[-1]} is not supported", node)
        operation = operators.OPERATIONS["like_escape"]
        expr = self._call(operation, tuple(typed.expr for typed in arguments), node)
        collation, explicit = self._merged_collation(arguments, node)
        return Typed(expr, TEXT, collation, explicit)


def _operator_type(typed: Typed) -> int:
    """The type that operators are declared for: varchar has none of its own, it uses text's."""
    return TEXT if typed.type_oid == types.VARCHAR else typed.type_oid
