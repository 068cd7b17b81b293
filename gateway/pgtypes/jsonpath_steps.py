"""One evaluation of a jsonpath on a jsonb document: what each kind of step does.

A step is executed on one item and either appends what it finds to a list or, without a list, says
whether there is anything: then it stops at the first. The outcome is one of three: `OK`,
`NOT_FOUND`, or `ERROR` where errors are suppressed; otherwise they are raised. A predicate is
True, False or None, unknown.

Source: src/backend/utils/adt/jsonpath_exec.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gateway.errors import ValueFormatError
from gateway.pgtypes import numeric
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import Json, type_of
from gateway.pgtypes.jsonpath import ANY_LEVEL, Step
from gateway.pgtypes.jsonpath_values import CONVERSIONS, METHODS, compare, convert, truncated

__all__ = ["ERROR", "OK", "Execution"]

Found: TypeAlias = list[Json] | None


class Outcome(Enum):
    """What came of a step."""

    OK = "ok"
    NOT_FOUND = "not found"
    ERROR = "error"


OK, NOT_FOUND, ERROR = Outcome.OK, Outcome.NOT_FOUND, Outcome.ERROR

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        "+": numeric.add,
        "-": numeric.subtract,
        "*": numeric.multiply,
        "/": numeric.divide,
        "%": numeric.modulo,
    }
)


class Execution:
    """One evaluation of one path: what JsonPathExecContext holds."""

    __slots__ = ("current", "ignores", "lax", "root", "size", "throws", "variables")

    def __init__(
        self, root: Json, variables: Mapping[str, Json], *, lax: bool, throws: bool
    ) -> None:
        self.root = self.current = root
        self.variables, self.lax, self.throws = variables, lax, throws
        self.ignores = lax  # structural errors count as nothing found
        self.size = -1  # of the innermost array that is subscripted

    def fail(self, message: str) -> Outcome:
        """An error that can be suppressed."""
        if self.throws:
            raise EvaluationError(message)
        return ERROR

    def misfit(self, message: str) -> Outcome:
        """The structure of the document does not fit the path: an error in strict mode only."""
        return NOT_FOUND if self.ignores else self.fail(message)

    def proceed(self, step: Step, item: Json, found: Found) -> Outcome:
        """Go on with `item` after `step`."""
        if step.next is not None:
            return self.execute(step.next, item, found)
        if found is not None:
            found.append(item)
        return OK

    def execute(self, step: Step, item: Json, found: Found, unwrap: bool | None = None) -> Outcome:
        """Execute `step` and all after it; `unwrap`: an array stands for its elements."""
        unwraps = self.lax if unwrap is None else unwrap
        kind = step.kind
        if unwraps and isinstance(item, list) and kind in _UNWRAPPING:
            return self.each(step, item, found, False)
        run = _STEPS.get(kind)
        if run is not None:
            return run(self, step, item, found)
        truth = self.truth(step, item)
        if step.next is None and found is None:
            return OK
        return self.proceed(step, truth, found)

    def each(self, step: Step | None, items: Iterable[Json], found: Found, unwrap: bool) -> Outcome:
        """`step`, or nothing more, on each of `items`."""
        outcome = NOT_FOUND
        for item in items:
            if step is not None:
                outcome = self.execute(step, item, found, unwrap)
                if outcome is ERROR or (outcome is OK and found is None):
                    return outcome
            elif found is None:
                return OK
            else:
                found.append(item)
        return outcome

    # Items

    def literal(self, step: Step, item: Json, found: Found) -> Outcome:
        """A constant."""
        return self.proceed(step, step.value, found)

    def variable(self, step: Step, item: Json, found: Found) -> Outcome:
        """A value that is given with the path; a missing one is always an error."""
        if step.value not in self.variables:
            raise EvaluationError(f'could not find jsonpath variable "{step.value}"')
        return self.proceed(step, self.variables[step.value], found)

    def at_root(self, step: Step, item: Json, found: Found) -> Outcome:
        """``$``."""
        return self.proceed(step, self.root, found)

    def at_current(self, step: Step, item: Json, found: Found) -> Outcome:
        """``@``."""
        return self.proceed(step, self.current, found)

    def last(self, step: Step, item: Json, found: Found) -> Outcome:
        """``last``, in a subscript."""
        return self.proceed(step, Decimal(self.size - 1), found)

    # Accessors

    def key(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.key``."""
        if not isinstance(item, dict):
            return self.misfit("jsonpath member accessor can only be applied to an object")
        if step.value in item:
            return self.proceed(step, item[step.value], found)
        return self.misfit(f'JSON object does not contain key "{step.value}"')

    def any_key(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.*``."""
        if isinstance(item, dict):
            return self.each(step.next, item.values(), found, self.lax)
        return self.misfit("jsonpath wildcard member accessor can only be applied to an object")

    def any_array(self, step: Step, item: Json, found: Found) -> Outcome:
        """``[*]``."""
        if isinstance(item, list):
            return self.each(step.next, item, found, self.lax)
        if self.lax:
            return self.proceed(step, item, found)
        return self.misfit("jsonpath wildcard array accessor can only be applied to an array")

    def index(self, step: Step, item: Json, found: Found) -> Outcome:
        """``[low to high, ...]``."""
        if not isinstance(item, list) and not self.lax:
            return self.misfit("jsonpath array accessor can only be applied to an array")
        items = item if isinstance(item, list) else [item]
        outer, self.size = self.size, len(items)
        outcome = NOT_FOUND
        for low, high in step.arguments:
            first = self.subscript(low, item)
            last = first if high is None or first is ERROR else self.subscript(high, item)
            if isinstance(first, Outcome) or isinstance(last, Outcome):
                outcome = ERROR
                break
            if not self.ignores and (first < 0 or first > last or last >= len(items)):
                # Here the server does not set the size back either.
                return self.fail("jsonpath array subscript is out of bounds")
            outcome = NOT_FOUND
            for element in items[max(first, 0) : max(last + 1, 0)]:
                outcome = self.proceed(step, element, found)
                if outcome is ERROR or (outcome is OK and found is None):
                    break
            if outcome is ERROR or (outcome is OK and found is None):
                break
        self.size = outer
        return outcome

    def subscript(self, step: Step, item: Json) -> int | Outcome:
        """The integer that a subscript says, or ERROR."""
        found: list[Json] = []
        if self.execute(step, item, found) is ERROR:
            return ERROR
        if len(found) != 1 or not isinstance(found[0], Decimal):
            return self.fail("jsonpath array subscript is not a single numeric value")
        number = truncated(found[0])
        if number is None:
            return self.fail("jsonpath array subscript is out of integer range")
        return number

    def any(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.**``."""
        first, last = step.value
        outcome = NOT_FOUND
        if first == 0:
            before, self.ignores = self.ignores, True
            outcome = self.proceed(step, item, found)
            self.ignores = before
            if outcome is OK and found is None:
                return outcome
        if isinstance(item, list | dict):
            outcome = self.descend(step.next, item, found, 1, first, last)
        return outcome

    def descend(
        self, step: Step | None, item: Json, found: Found, level: int, first: int, last: int
    ) -> Outcome:
        """`step` on what lies between the levels `first` and `last` below `item`."""
        outcome = NOT_FOUND
        if level > last:
            return outcome
        leaves = first == last == ANY_LEVEL
        for inner in item.values() if isinstance(item, dict) else item:
            is_container = isinstance(inner, list | dict)
            if level >= first or (leaves and not is_container):
                if step is not None:
                    before, self.ignores = self.ignores, True
                    outcome = self.execute(step, inner, found)
                    self.ignores = before
                    if outcome is ERROR or (outcome is OK and found is None):
                        return outcome
                elif found is None:
                    return OK
                else:
                    found.append(inner)
            if level < last and is_container:
                outcome = self.descend(step, inner, found, level + 1, first, last)
                if outcome is ERROR or (outcome is OK and found is None):
                    return outcome
        return outcome

    def filter(self, step: Step, item: Json, found: Found) -> Outcome:
        """``?(...)``."""
        before, self.current = self.current, item
        truth = self.truth(step.arguments[0], item)
        self.current = before
        return self.proceed(step, item, found) if truth is True else NOT_FOUND

    # Methods

    def type(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.type()``."""
        return self.proceed(step, type_of(item), found)

    def size_of(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.size()``."""
        if not isinstance(item, list) and not self.lax:
            return self.misfit("jsonpath item method .size() can only be applied to an array")
        size = len(item) if isinstance(item, list) else 1
        return self.proceed(step, Decimal(size), found)

    def numeric_method(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.abs()``, ``.floor()``, ``.ceiling()``."""
        if not isinstance(item, Decimal):
            return self.fail(
                f"jsonpath item method .{step.kind}() can only be applied to a numeric value"
            )
        return self.proceed(step, METHODS[step.kind](item), found)

    def conversion(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.double()`` and its kin; only where errors are suppressed, for their texts vary."""
        try:
            value = convert(step.kind, item)
        except ValueFormatError as error:
            return self.fail(error.message)
        return self.proceed(step, value, found)

    def keyvalue(self, step: Step, item: Json, found: Found) -> Outcome:
        """``.keyvalue()``, without the id."""
        if not isinstance(item, dict):
            return self.fail("jsonpath item method .keyvalue() can only be applied to an object")
        outcome = NOT_FOUND
        for key, value in item.items():
            outcome = self.proceed(step, {"key": key, "value": value}, found)
            if outcome is ERROR or (outcome is OK and found is None):
                break
        return outcome

    # Arithmetic

    def unwrapped(self, step: Step, item: Json, found: list[Json], unwrap: bool) -> Outcome:
        """The results of `step`; in lax mode, if `unwrap`, arrays stand for their elements."""
        if not (unwrap and self.lax):
            return self.execute(step, item, found)
        results: list[Json] = []
        if self.execute(step, item, results) is ERROR:
            return ERROR
        for result in results:
            if isinstance(result, list):
                found.extend(result)
            else:
                found.append(result)
        return OK

    def arithmetic(self, step: Step, item: Json, found: Found) -> Outcome:
        """A binary operator."""
        operands: list[list[Json]] = [[], []]
        for argument, results in zip(step.arguments, operands, strict=True):
            if self.unwrapped(argument, item, results, True) is ERROR:
                return ERROR
        for side, results in zip(("left", "right"), operands, strict=True):
            if len(results) != 1 or not isinstance(results[0], Decimal):
                return self.fail(
                    f"{side} operand of jsonpath operator {step.kind} is not a single numeric value"
                )
        try:
            result = _ARITHMETIC[step.kind](operands[0][0], operands[1][0])
        except EvaluationError as error:
            return self.fail(error.message)
        if step.next is None and found is None:
            return OK
        return self.proceed(step, result if result else result.copy_abs(), found)

    def signed(self, step: Step, item: Json, found: Found) -> Outcome:
        """A unary operator, on each result of its operand."""
        results: list[Json] = []
        if self.unwrapped(step.arguments[0], item, results, True) is ERROR:
            return ERROR
        outcome = NOT_FOUND
        decides = found is None and step.next is None
        for result in results:
            if not isinstance(result, Decimal):
                if decides:
                    continue
                sign = "-" if step.kind == "negative" else "+"
                return self.fail(
                    f"operand of unary jsonpath operator {sign} is not a numeric value"
                )
            if decides:
                return OK
            value = result.copy_negate() if step.kind == "negative" and result else result
            after = self.proceed(step, value, found)
            if after is ERROR:
                return after
            if after is OK:
                outcome = OK
                if found is None:
                    return OK
        return outcome

    # Predicates

    def truth(self, step: Step, item: Json) -> bool | None:
        """What a predicate says."""
        match step.kind:
            case "&&":
                left = self.truth(step.arguments[0], item)
                if left is False:
                    return False
                right = self.truth(step.arguments[1], item)
                return left if right is True else right
            case "||":
                left = self.truth(step.arguments[0], item)
                if left is True:
                    return True
                right = self.truth(step.arguments[1], item)
                return left if right is False else right
            case "!":
                truth = self.truth(step.arguments[0], item)
                return None if truth is None else not truth
            case "unknown":
                return self.truth(step.arguments[0], item) is None
            case "exists":
                return self.exists(step.arguments[0], item)
        return self.predicate(step, item)

    def exists(self, step: Step, item: Json) -> bool | None:
        """``exists (...)``."""
        before, self.throws = self.throws, False
        items: Found = None if self.lax else []
        outcome = self.execute(step, item, items)
        self.throws = before
        if outcome is ERROR:
            return None
        return outcome is OK if items is None else bool(items)

    def predicate(self, step: Step, item: Json) -> bool | None:
        """A comparison, starts with, like_regex: true of any pair of the operands' results."""
        before, self.throws = self.throws, False
        left: list[Json] = []
        right: list[Json] = []
        outcome = self.unwrapped(step.arguments[0], item, left, True)
        if outcome is not ERROR and len(step.arguments) == 2:
            outcome = self.unwrapped(step.arguments[1], item, right, step.kind != "starts")
        self.throws = before
        if outcome is ERROR:
            return None
        if len(step.arguments) == 1:
            right = [step.value]
        unknown = is_true = False
        for first in left:
            for second in right:
                truth = compare(step.kind, first, second)
                if truth is None:
                    if not self.lax:
                        return None
                    unknown = True
                elif truth:
                    if self.lax:
                        return True
                    is_true = True
        return True if is_true else None if unknown else False


_UNWRAPPING: Final = frozenset(
    ("key", "any_key", "filter", "abs", "floor", "ceiling", "keyvalue", *CONVERSIONS)
)
"""Steps that take an array in lax mode as its elements."""

_STEPS: Final[Mapping[str, Callable[[Execution, Step, Json, Found], Outcome]]] = MappingProxyType(
    {
        "literal": Execution.literal,
        "variable": Execution.variable,
        "root": Execution.at_root,
        "current": Execution.at_current,
        "last": Execution.last,
        "key": Execution.key,
        "any_key": Execution.any_key,
        "any_array": Execution.any_array,
        "index": Execution.index,
        "any": Execution.any,
        "filter": Execution.filter,
        "type": Execution.type,
        "size": Execution.size_of,
        "keyvalue": Execution.keyvalue,
        "negative": Execution.signed,
        "positive": Execution.signed,
        **dict.fromkeys(("abs", "floor", "ceiling"), Execution.numeric_method),
        **dict.fromkeys(CONVERSIONS, Execution.conversion),
        **dict.fromkeys(_ARITHMETIC, Execution.arithmetic),
    }
)
