"""Functions of the types of `numbers`, beside their operators and casts.

Left out, so that they are refused: what the C library computes (sin, exp(double precision),
``||/``, ...), because its last bit differs from one machine to the next.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from gateway.pgtypes import float_functions as floats
from gateway.pgtypes import hashes
from gateway.pgtypes import numeric_functions as numeric
from gateway.pgtypes import numeric_powers as powers
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.integers import BIGINT, INTEGER
from gateway.rowfilter.builtins.ordering import compare, larger, smaller
from gateway.rowfilter.expr import Operation

__all__ = ["OPERATIONS", "operations", "width_bucket_of_thresholds"]

_EXACT_BUCKETS: Final = 16
"""The first major version whose width_bucket() does not round before it counts."""


def _integer_functions() -> list[Operation]:
    found = [
        Operation("int4inc", INTEGER.increment, can_raise=True),
        Operation("int8inc", BIGINT.increment, can_raise=True),
        Operation("int8dec", BIGINT.decrement, can_raise=True),
        Operation("btint2cmp", _difference),
        Operation("btint24cmp", compare),
        Operation("btint28cmp", compare),
        Operation("btint42cmp", compare),
        Operation("btint48cmp", compare),
        Operation("btint82cmp", compare),
        Operation("btint84cmp", compare),
    ]
    for width, kind in (("4", INTEGER), ("8", BIGINT)):
        found += [
            Operation(f"int{width}gcd", kind.greatest_common_divisor, can_raise=True),
            Operation(f"int{width}lcm", kind.least_common_multiple, can_raise=True),
            Operation(f"btint{width}cmp", compare),
        ]
    for width in "248":
        found += [
            Operation(f"int{width}larger", larger),
            Operation(f"int{width}smaller", smaller),
        ]
    return found


def _difference(left: int, right: int) -> int:
    return left - right


def _pi() -> float:
    return floats.PI


def _float_functions() -> list[Operation]:
    return [
        Operation("dround", floats.round_half_even),
        Operation("dceil", floats.ceil),
        Operation("dfloor", floats.floor),
        Operation("dtrunc", floats.truncate),
        Operation("dsign", floats.sign),
        Operation("dsqrt", floats.square_root, can_raise=True),
        Operation("degrees", floats.degrees, can_raise=True),
        Operation("radians", floats.radians, can_raise=True),
        Operation("dpi", _pi),
        *(Operation(f"btfloat{kind}cmp", compare) for kind in ("4", "8", "48", "84")),
        *(Operation(f"float{width}larger", larger) for width in "48"),
        *(Operation(f"float{width}smaller", smaller) for width in "48"),
    ]


def _numeric_functions() -> list[Operation]:
    return [
        Operation("numeric_ceil", numeric.ceil, can_raise=True),
        Operation("numeric_floor", numeric.floor, can_raise=True),
        Operation("numeric_round", numeric.round_to_scale, can_raise=True),
        Operation("round(numeric)", numeric.round_to_integer, can_raise=True),
        Operation("numeric_trunc", numeric.truncate_to_scale, can_raise=True),
        Operation("trunc(numeric)", numeric.truncate_to_integer),
        Operation("numeric_sign", numeric.sign),
        Operation("numeric_inc", numeric.increment, can_raise=True),
        Operation("numeric_scale", numeric.scale, nullable=True),
        Operation("numeric_min_scale", numeric.min_scale, nullable=True),
        Operation("numeric_trim_scale", numeric.trim_scale),
        Operation("numeric_div_trunc", numeric.divide_truncating, can_raise=True),
        Operation("numeric_gcd", numeric.greatest_common_divisor),
        Operation("numeric_lcm", numeric.least_common_multiple, can_raise=True),
        Operation("numeric_fac", numeric.factorial, can_raise=True),
        Operation("numeric_sqrt", numeric.square_root, can_raise=True),
        Operation("numeric_cmp", compare),
        Operation("numeric_larger", larger),
        Operation("numeric_smaller", smaller),
    ]


def operations(major: int | None) -> Sequence[Operation]:
    """The operations on a server of this major version; None: of any."""
    return (
        *_integer_functions(),
        *_float_functions(),
        *_numeric_functions(),
        *_hashes(),
        *_logarithms(),
        *_depending(major),
    )


def _hashes() -> list[Operation]:
    return [
        *(Operation(f"hash{kind}", hashes.hash_integer) for kind in ("int2", "int4", "oid")),
        *(
            Operation(f"hash{kind}extended", hashes.hash_integer_extended)
            for kind in ("int2", "int4", "oid")
        ),
        Operation("hashint8", hashes.hash_bigint),
        Operation("hashint8extended", hashes.hash_bigint_extended),
    ]


def _logarithms() -> list[Operation]:
    return [
        Operation("numeric_exp", powers.exponential, can_raise=True),
        Operation("numeric_ln", powers.natural_logarithm, can_raise=True),
        Operation("numeric_log", powers.logarithm, can_raise=True),
        Operation("log(numeric)", powers.common_logarithm, can_raise=True),
        Operation("log10(numeric)", powers.common_logarithm, can_raise=True),
    ]


def _depending(major: int | None) -> list[Operation]:
    """Those whose results differ between versions: refused where they are not known."""
    if major is None:
        return []
    found = [Operation("numeric_power", partial(powers.power, major=major), can_raise=True)]
    if major >= _EXACT_BUCKETS:
        found += [
            Operation("width_bucket_float8", floats.width_bucket, can_raise=True),
            Operation("width_bucket_numeric", numeric.width_bucket, can_raise=True),
        ]
    return found


OPERATIONS: Final = operations(None)


def width_bucket_of_thresholds(operand: Any, thresholds: Array) -> int:
    """How many of the sorted `thresholds` are not greater than `operand`.

    Raises:
        EvaluationError: the array has more than one dimension, or NULLs.

    Source: width_bucket_array().
    """
    if len(thresholds.dimensions) > 1:
        raise EvaluationError("thresholds must be one-dimensional array")
    if None in thresholds.items:
        raise EvaluationError("thresholds array must not contain NULLs")
    items: Sequence[Any] = thresholds.items
    return bisect.bisect_right(items, operand)
