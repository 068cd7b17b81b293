"""smallint, integer, bigint, real, double precision and numeric."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import floats, numeric
from gateway.pgtypes.integers import BIGINT, INTEGER, SMALLINT, IntegerType, parse_integer
from gateway.rowfilter.builtins.common import comparisons, same
from gateway.rowfilter.expr import Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "int2": parse_integer,
        "int4": parse_integer,
        "int8": parse_integer,
        "float4": floats.parse_float4,
        "float8": floats.parse_float8,
        "numeric": numeric.parse_numeric,
    }
)

_INTEGERS: Final = {"2": SMALLINT, "4": INTEGER, "8": BIGINT}


def _comparisons() -> list[Operation]:
    kinds = ["int" + (a if a == b else a + b) for a in "248" for b in "248"]
    kinds += ["float4", "float8", "float48", "float84", "numeric_"]
    return [operation for kind in kinds for operation in comparisons(kind + "{}")]


def _integer_arithmetic() -> list[Operation]:
    found = []
    for suffix, method in (
        ("pl", "add"),
        ("mi", "subtract"),
        ("mul", "multiply"),
        ("div", "divide"),
    ):
        for left in "248":
            for right in "248":
                width = left if left == right else left + right
                function = _INTEGERS[max(left, right)].operation(method)
                found.append(Operation(f"int{width}{suffix}", function, can_raise=True))
    for width, kind in _INTEGERS.items():
        found += [
            Operation(f"int{width}mod", kind.modulo, can_raise=True),
            Operation(f"int{width}um", kind.negate, can_raise=True),
            Operation(f"int{width}abs", kind.absolute, can_raise=True),
            Operation(f"int{width}up", operator.pos),
            Operation(f"int{width}not", operator.invert),
            Operation(f"int{width}and", operator.and_, "&"),
            Operation(f"int{width}or", operator.or_, "|"),
            Operation(f"int{width}xor", operator.xor, "^"),
            Operation(f"int{width}shl", kind.shift_left),
            Operation(f"int{width}shr", kind.shift_right),
        ]
    return found


def _float_arithmetic() -> list[Operation]:
    found = []
    for suffix, function in (
        ("pl", floats.add),
        ("mi", floats.subtract),
        ("mul", floats.multiply),
        ("div", floats.divide),
    ):
        single = partial(function, single=True)
        found.append(Operation("float4" + suffix, single, can_raise=True))
        found += [
            Operation(f"float{width}{suffix}", function, can_raise=True)
            for width in ("8", "48", "84")
        ]
    for width in "48":
        found += [
            Operation(f"float{width}um", floats.negate),
            Operation(f"float{width}abs", floats.absolute),
            Operation(f"float{width}up", same),
        ]
    return found


def _numeric_arithmetic() -> list[Operation]:
    return [
        Operation("numeric_add", numeric.add, can_raise=True),
        Operation("numeric_sub", numeric.subtract, can_raise=True),
        Operation("numeric_mul", numeric.multiply, can_raise=True),
        Operation("numeric_div", numeric.divide, can_raise=True),
        Operation("numeric_mod", numeric.modulo, can_raise=True),
        Operation("numeric_uminus", numeric.negate),
        Operation("numeric_abs", numeric.absolute),
        Operation("numeric_uplus", same),
    ]


def _integer_from(name: str, kind: IntegerType, function: Callable[..., int]) -> Operation:
    return Operation(
        name,
        partial(function, low=kind.low, high=kind.high, name=kind.name),
        can_raise=True,
    )


def _casts() -> list[Operation]:
    found = [Operation(name, same) for name in ("int28", "i2toi4", "int48", "ftod")]
    found += [
        Operation("i4toi2", SMALLINT.check, can_raise=True),
        Operation("int82", SMALLINT.check, can_raise=True),
        Operation("int84", INTEGER.check, can_raise=True),
        Operation("dtof", floats.round_to_float4, can_raise=True),
        Operation("float8_numeric", partial(numeric.float_to_numeric, digits=15)),
        Operation("float4_numeric", partial(numeric.float_to_numeric, digits=6)),
        Operation("numeric_float8", numeric.numeric_to_float, can_raise=True),
        Operation("numeric_float4", numeric.numeric_to_float4, can_raise=True),
    ]
    found += [Operation(f"i{width}tod", float) for width in "248"]
    found += [Operation(f"i{width}tof", floats.integer_to_float4) for width in "248"]
    for width, kind in _INTEGERS.items():
        found += [
            Operation(f"int{width}_numeric", numeric.integer_to_numeric),
            _integer_from(f"numeric_int{width}", kind, numeric.numeric_to_integer),
            _integer_from(f"ftoi{width}", kind, floats.float_to_integer),
            _integer_from(f"dtoi{width}", kind, floats.float_to_integer),
        ]
    return found


OPERATIONS: Final[Sequence[Operation]] = (
    *_comparisons(),
    *_integer_arithmetic(),
    *_float_arithmetic(),
    *_numeric_arithmetic(),
    *_casts(),
)


def _numeric_length(typmod: int) -> Operation:
    coerce = partial(numeric.apply_typmod, typmod=typmod)
    return Operation(f"numeric({typmod})", coerce, can_raise=True)


LENGTHS: Final[Mapping[str, Callable[[int], Operation | None]]] = MappingProxyType(
    {"numeric": _numeric_length}
)
