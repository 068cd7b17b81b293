"""smallint, integer, bigint, numeric: compared and calculated; real, double precision: compared."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from typing import Final

from gateway.pgtypes.numbers import floats, numeric
from gateway.pgtypes.numbers.integers import BIGINT, INTEGER, SMALLINT, parse_integer
from gateway.rowfilter.builtins.common import Family, comparisons, same
from gateway.rowfilter.expr import Operation

__all__ = ["FAMILY"]

_INTEGERS: Final = {"2": SMALLINT, "4": INTEGER, "8": BIGINT}


def _comparisons() -> Iterator[Operation]:
    kinds = ["int" + (a if a == b else a + b) for a in "248" for b in "248"]
    for kind in (*kinds, "float4", "float8", "float48", "float84", "numeric_"):
        yield from comparisons(kind + "{}")


def _integer_arithmetic() -> Iterator[Operation]:
    for left in "248":
        for right in "248":
            width = left if left == right else left + right
            kind = _INTEGERS[max(left, right)]
            yield Operation(f"int{width}pl", kind.add, can_raise=True)
            yield Operation(f"int{width}mi", kind.subtract, can_raise=True)
            yield Operation(f"int{width}mul", kind.multiply, can_raise=True)
            yield Operation(f"int{width}div", kind.divide, can_raise=True)
    for width, kind in _INTEGERS.items():
        yield Operation(f"int{width}mod", kind.modulo, can_raise=True)
        yield Operation(f"int{width}um", kind.negate, can_raise=True)
        yield Operation(f"int{width}abs", kind.absolute, can_raise=True)
        yield Operation(f"int{width}up", operator.pos)
        yield Operation(f"int{width}not", operator.invert)
        yield Operation(f"int{width}and", operator.and_, "&")
        yield Operation(f"int{width}or", operator.or_, "|")
        yield Operation(f"int{width}xor", operator.xor, "^")


_NUMERIC_ARITHMETIC: Final = (
    Operation("numeric_add", numeric.add, can_raise=True),
    Operation("numeric_sub", numeric.subtract, can_raise=True),
    Operation("numeric_mul", numeric.multiply, can_raise=True),
    Operation("numeric_div", numeric.divide, can_raise=True),
    Operation("numeric_mod", numeric.modulo, can_raise=True),
    Operation("numeric_uminus", numeric.negate),
    Operation("numeric_abs", numeric.absolute),
    Operation("numeric_uplus", same),
)


def _casts() -> Iterator[Operation]:
    for name in ("int28", "i2toi4", "int48", "ftod"):
        yield Operation(name, same)
    yield Operation("i4toi2", SMALLINT.check, can_raise=True)
    yield Operation("int82", SMALLINT.check, can_raise=True)
    yield Operation("int84", INTEGER.check, can_raise=True)
    yield Operation("numeric_float8", numeric.numeric_to_float, can_raise=True)
    for width, kind in _INTEGERS.items():
        yield Operation(f"i{width}tod", float)
        yield Operation(f"int{width}_numeric", numeric.integer_to_numeric)
        yield Operation(
            f"numeric_int{width}",
            partial(numeric.numeric_to_integer, low=kind.low, high=kind.high, name=kind.name),
            can_raise=True,
        )


def _numeric_length(typmod: int) -> Operation:
    coerce = partial(numeric.apply_typmod, typmod=typmod)
    return Operation(f"numeric({typmod})", coerce, can_raise=True)


FAMILY: Final = Family(
    parsers={
        "int2": parse_integer,
        "int4": parse_integer,
        "int8": parse_integer,
        "float4": floats.parse_float4,
        "float8": floats.parse_float8,
        "numeric": numeric.parse_numeric,
    },
    operations=(*_comparisons(), *_integer_arithmetic(), *_NUMERIC_ARITHMETIC, *_casts()),
    lengths={"numeric": _numeric_length},
)
