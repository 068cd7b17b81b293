"""smallint, integer, bigint and oid: ranges and arithmetic that raises as PostgreSQL's does.

Source: src/backend/utils/adt/int.c, int8.c.
"""

from __future__ import annotations

from typing import Final

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = ["BIGINT", "INTEGER", "SMALLINT", "IntegerType", "parse_integer"]


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


SMALLINT: Final = IntegerType("smallint", -(2**15), 2**15 - 1)
INTEGER: Final = IntegerType("integer", -(2**31), 2**31 - 1)
BIGINT: Final = IntegerType("bigint", -(2**63), 2**63 - 1)
