"""What PostgreSQL's functions do, for those that can be reproduced exactly.

`OPERATIONS` is keyed by ``prosrc``. Which function an operator or a cast calls comes from the
generated `gateway.pgtypes.catalog`; a function that has no entry here is refused by `analyze`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from gateway.pgtypes import datetime, floats, numeric, strings
from gateway.pgtypes.catalog import CASTS, TYPES
from gateway.pgtypes.integers import BIGINT, INTEGER, OID, SMALLINT, IntegerType
from gateway.rowfilter.expr import Operation

__all__ = [
    "ADAPTERS",
    "ASCII_LIKE",
    "COMPARISONS",
    "EQUALITY_COLLATION",
    "LIKE",
    "OPERATIONS",
    "ORDER_COLLATION",
    "cast_operation",
    "has_cast",
    "length_coercion",
]

COMPARISONS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = MappingProxyType(
    {
        "eq": ("==", operator.eq),
        "ne": ("!=", operator.ne),
        "lt": ("<", operator.lt),
        "le": ("<=", operator.le),
        "gt": (">", operator.gt),
        "ge": (">=", operator.ge),
    }
)
_ORDER: Final = ("lt", "le", "gt", "ge")

_INTEGERS: Final = {"2": SMALLINT, "4": INTEGER, "8": BIGINT}


def _wider(left: str, right: str) -> IntegerType:
    return _INTEGERS[max(left, right)]


def _comparable_prefixes() -> list[str]:
    """Prefixes of the comparison functions whose values Python compares as PostgreSQL does."""
    integers = ["int" + (a if a == b else a + b) for a in "248" for b in "248"]
    dates = ["date_", "timestamp_", "numeric_", "uuid_"]
    return [*integers, "float4", "float8", "float48", "float84", "oid", "bool", "bytea", *dates]


def _comparisons() -> list[Operation]:
    patterns = [prefix + "{}" for prefix in _comparable_prefixes()]
    patterns += ["date_{}_timestamp", "timestamp_{}_date"]
    return [
        Operation(pattern.format(suffix), function, infix)
        for pattern in patterns
        for suffix, (infix, function) in COMPARISONS.items()
    ]


TEXT_EQUALITY: Final = (
    *(f"{kind}{op}" for kind in ("text", "bpchar", "name") for op in ("eq", "ne")),
    *(f"{kind}{op}{other}" for kind, other in (("text", "name"), ("name", "text"))
      for op in ("eq", "ne")),
)  # fmt: skip
TEXT_ORDER: Final = (
    *(f"text_{op}" for op in _ORDER),
    *(f"bpchar{op}" for op in _ORDER),
    *(f"name{op}" for op in _ORDER),
    *(f"{kind}{op}{other}" for kind, other in (("text", "name"), ("name", "text"))
      for op in _ORDER),
)  # fmt: skip
LIKE: Final = MappingProxyType(
    {"textlike": True, "textnlike": False, "namelike": True, "namenlike": False}
)
ASCII_LIKE: Final = MappingProxyType(
    {"texticlike": True, "texticnlike": False, "nameiclike": True, "nameicnlike": False}
)
EQUALITY_COLLATION: Final = frozenset((*TEXT_EQUALITY, *LIKE, "text_starts_with"))
"""They need a deterministic collation."""
ORDER_COLLATION: Final = frozenset(TEXT_ORDER)
"""They need a collation that sorts by bytes."""


def _text_comparisons() -> list[Operation]:
    found = []
    for name in (*TEXT_EQUALITY, *TEXT_ORDER):
        stem = name.removesuffix("text").removesuffix("name").removesuffix("_")
        infix, function = COMPARISONS[stem[-2:]]
        found.append(Operation(name, function, infix))
    return found


def _not_like(text: bytes, pattern: bytes) -> bool:
    return not strings.match_like(text, pattern)


def _ilike(text: bytes, pattern: bytes) -> bool:
    # bytes.lower() folds ASCII only, which is what lower() does under the C collation.
    return strings.match_like(text.lower(), pattern.lower())


def _not_ilike(text: bytes, pattern: bytes) -> bool:
    return not _ilike(text, pattern)


def _likes() -> list[Operation]:
    plain = [
        Operation(name, strings.match_like if positive else _not_like, can_raise=True)
        for name, positive in LIKE.items()
    ]
    folded = [
        Operation(name, _ilike if positive else _not_ilike, can_raise=True)
        for name, positive in ASCII_LIKE.items()
    ]
    return [*plain, *folded]


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
                function = _wider(left, right).operation(method)
                found.append(Operation(f"int{width}{suffix}", function, can_raise=True))
    for width, kind in _INTEGERS.items():
        found += [
            Operation(f"int{width}mod", kind.modulo, can_raise=True),
            Operation(f"int{width}um", kind.negate, can_raise=True),
            Operation(f"int{width}abs", kind.absolute, can_raise=True),
            Operation(f"int{width}up", operator.pos, can_raise=False),
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
            Operation(f"float{width}up", _same),
        ]
    return found


def _same(value: object) -> object:
    return value


def _numeric_arithmetic() -> list[Operation]:
    return [
        Operation("numeric_add", numeric.add, can_raise=True),
        Operation("numeric_sub", numeric.subtract, can_raise=True),
        Operation("numeric_mul", numeric.multiply, can_raise=True),
        Operation("numeric_div", numeric.divide, can_raise=True),
        Operation("numeric_mod", numeric.modulo, can_raise=True),
        Operation("numeric_uminus", numeric.negate),
        Operation("numeric_abs", numeric.absolute),
        Operation("numeric_uplus", _same),
    ]


def _text_functions() -> list[Operation]:
    return [
        Operation("textcat", operator.add, "+"),
        Operation("byteacat", operator.add, "+"),
        Operation("text_starts_with", bytes.startswith),
        Operation("like_escape", strings.like_escape, can_raise=True),
    ]


def _date_arithmetic() -> list[Operation]:
    return [
        Operation("date_pli", datetime.add_days, can_raise=True),
        Operation("date_mii", datetime.subtract_days, can_raise=True),
        Operation("date_mi", datetime.days_between, can_raise=True),
    ]


def _bool_of(value: int) -> bool:
    return value != 0


def _integer_from(name: str, kind: IntegerType, function: Callable[..., int]) -> Operation:
    return Operation(
        name,
        partial(function, low=kind.low, high=kind.high, name=kind.name),
        can_raise=True,
    )


def _casts() -> list[Operation]:
    found = [
        Operation(name, _same)
        for name in ("int28", "i2toi4", "int48", "ftod", "oidtoi8", "name_text")
    ]
    found += [
        Operation("i4toi2", SMALLINT.check, can_raise=True),
        Operation("int82", SMALLINT.check, can_raise=True),
        Operation("int84", INTEGER.check, can_raise=True),
        Operation("i8tooid", OID.check, can_raise=True),
        Operation("bool_int4", int),
        Operation("int4_bool", _bool_of),
        Operation("dtof", floats.round_to_float4, can_raise=True),
        Operation("rtrim1", strings.trim_blanks),
        Operation("booltext", _bool_text),
        Operation("date_timestamp", datetime.date_to_timestamp, can_raise=True),
        Operation("timestamp_date", datetime.timestamp_to_date),
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


def _bool_text(value: bool) -> bytes:
    return b"true" if value else b"false"


OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        operation.name: operation
        for group in (
            _comparisons(),
            _text_comparisons(),
            _likes(),
            _integer_arithmetic(),
            _float_arithmetic(),
            _numeric_arithmetic(),
            _text_functions(),
            _date_arithmetic(),
            _casts(),
        )
        for operation in group
    }
)

_TRIM: Final = Operation("(trailing blanks)", strings.trim_blanks)
_DATE_AS_TIMESTAMP: Final = Operation("(date as timestamp)", datetime.date_as_timestamp)


def _adapters() -> dict[str, tuple[Operation | None, Operation | None]]:
    found: dict[str, tuple[Operation | None, Operation | None]] = {}
    for suffix in COMPARISONS:
        found[f"bpchar{suffix}"] = (_TRIM, _TRIM)
        found[f"date_{suffix}_timestamp"] = (_DATE_AS_TIMESTAMP, None)
        found[f"timestamp_{suffix}_date"] = (None, _DATE_AS_TIMESTAMP)
    return found


ADAPTERS: Final = MappingProxyType(_adapters())
"""Comparison functions that see their arguments through another function first."""


def length_coercion(type_oid: int, typmod: int) -> Operation | None:
    """The cast of a type to itself with a type modifier, or None when that is not supported."""
    if type_oid == TYPES["varchar"][0]:
        return Operation(f"varchar({typmod})", partial(strings.to_varchar, typmod=typmod))
    if type_oid == TYPES["bpchar"][0]:
        return Operation(f"bpchar({typmod})", partial(strings.to_bpchar, typmod=typmod))
    if type_oid == TYPES["numeric"][0]:
        coerce = partial(numeric.apply_typmod, typmod=typmod)
        return Operation(f"numeric({typmod})", coerce, can_raise=True)
    if type_oid in (TYPES["timestamp"][0], TYPES["timestamptz"][0]):
        return Operation(
            f"timestamp({typmod})",
            partial(datetime.round_timestamp, digits=typmod),
        )
    return None


def _oid_of(value: int) -> int:
    return value & 0xFFFFFFFF


def _integer_of_oid(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


_OID: Final = TYPES["oid"][0]
_TO_OID: Final = Operation("(bits as oid)", _oid_of)
_FROM_OID: Final = Operation("(bits as integer)", _integer_of_oid)


def has_cast(step: tuple[int, int]) -> bool:
    """The immutable built-in cast from one type to another, `step`, is supported."""
    function = CASTS[step]
    return function is None or function in OPERATIONS


def cast_operation(step: tuple[int, int]) -> Operation | None:
    """What the cast `step` does; None when the value stays what it is."""
    function = CASTS[step]
    source, target = step
    if target == _OID and function in (None, "i2toi4"):
        return _TO_OID
    if source == _OID and function is None:
        return _FROM_OID
    return None if function is None else OPERATIONS[function]
