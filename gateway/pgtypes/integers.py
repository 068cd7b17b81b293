"""smallint, integer, bigint and oid: ranges and arithmetic that raises as PostgreSQL's does.

Source: src/backend/utils/adt/int.c, int8.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = ["BIGINT", "INTEGER", "OID", "SMALLINT", "IntegerType", "parse_integer"]


def parse_integer(text: bytes) -> int:
    """Read an integer of any size as its output function prints it.

    Raises:
        ValueFormatError: anything but an optional minus and digits.
    """
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit():
        raise ValueFormatError("a value does not read as an integer")
    return int(text)


class IntegerType:
    """Arithmetic within one width. Every result is checked against the type's range."""

    __slots__ = ("high", "low", "name")

    def __init__(self, name: str, low: int, high: int) -> None:
        self.name, self.low, self.high = name, low, high

    def check(self, value: int) -> int:
        """Return `value`, or raise "... out of range"."""
        if self.low <= value <= self.high:
            return value
        raise EvaluationError(f"{self.name} out of range")

    def add(self, left: int, right: int) -> int:
        """``+``."""
        return self.check(left + right)

    def subtract(self, left: int, right: int) -> int:
        """``-``."""
        return self.check(left - right)

    def multiply(self, left: int, right: int) -> int:
        """``*``."""
        return self.check(left * right)

    def divide(self, left: int, right: int) -> int:
        """``/``, truncating towards zero."""
        if right == 0:
            raise EvaluationError("division by zero")
        quotient = abs(left) // abs(right)
        return self.check(quotient if (left < 0) == (right < 0) else -quotient)

    def modulo(self, left: int, right: int) -> int:
        """``%``; the result has the sign of `left`."""
        if right == 0:
            raise EvaluationError("division by zero")
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest

    def negate(self, value: int) -> int:
        """Unary ``-``."""
        return self.check(-value)

    def absolute(self, value: int) -> int:
        """``@``."""
        return self.check(abs(value))

    def greatest_common_divisor(self, left: int, right: int) -> int:
        """gcd(), never negative: raises where that has no place in the type."""
        return self.check(math.gcd(left, right))

    def least_common_multiple(self, left: int, right: int) -> int:
        """lcm(), never negative."""
        return self.check(math.lcm(left, right))

    def increment(self, value: int) -> int:
        """One more."""
        return self.check(value + 1)

    def decrement(self, value: int) -> int:
        """One less."""
        return self.check(value - 1)

    def shift_left(self, value: int, bits: int) -> int:
        """``<<``: bits beyond the width are lost, the count is taken modulo 32 or 64."""
        width = self.width
        # C shifts a smallint as an int and cuts the result, so its count is modulo 32 too.
        shifted = value << (bits % max(width, 32))
        shifted &= (1 << width) - 1
        return shifted - (1 << width) if shifted >> (width - 1) else shifted

    def shift_right(self, value: int, bits: int) -> int:
        """``>>``, arithmetic."""
        return value >> (bits % max(self.width, 32))

    @property
    def width(self) -> int:
        """Bits of the type."""
        return (self.high - self.low + 1).bit_length() - 1

    def operation(self, name: str) -> Callable[..., int]:
        """The method `name`, for tables of operators."""
        method: Callable[..., int] = getattr(self, name)
        return method


SMALLINT: Final = IntegerType("smallint", -(2**15), 2**15 - 1)
INTEGER: Final = IntegerType("integer", -(2**31), 2**31 - 1)
BIGINT: Final = IntegerType("bigint", -(2**63), 2**63 - 1)
OID: Final = IntegerType("OID", 0, 2**32 - 1)
