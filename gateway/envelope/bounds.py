"""Bounds of Avro data: that bytes are one datum of a schema, before anything is made of them.

A length, a count or a branch that was written by somebody else can be any number. A decoder that
believes it allocates memory for what is not there: an array of nulls has no bytes at all, so that
ten of them can claim a billion items. The walk here makes nothing; each value costs one of a fixed
number of steps, every length is compared with what is left, and nothing may be left at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from gateway.core.errors import ProtocolError

__all__ = ["MOST_BYTES", "MOST_VALUES", "DatumBounds"]

MOST_BYTES: Final = 64 << 20
"""Bytes of one datum: more than Kafka takes as it is usually set up."""
MOST_VALUES: Final = 2_000_000
"""Values of one datum, unless a caller knows that it has fewer."""
_DEEPEST: Final = 64
_LONGEST_VARINT: Final = 10
_LONGEST_DECIMAL: Final = 64
"""Bytes; a gateway writes 16 at most. The time that a number takes grows as the square of them."""
_FIXED_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class DatumBounds:
    """Bounds of the data of one schema.

    Args:
        schema: As `fastavro.parse_schema` returns it.
        most_values: Maximum number of values; the time that a check takes grows with it.

    Raises:
        ProtocolError: it is nested too deeply.
    """

    def __init__(self, schema: Any, *, most_values: int = MOST_VALUES) -> None:
        self._schema = schema
        self._most_values = most_values
        self._names: dict[str, Any] = {}
        self._learn(schema, 0)

    def check(self, data: bytes) -> None:
        """Check that `data` is one datum of the schema, all of it, and of a size that can be.

        Args:
            data: Without the wire format's prefix.

        Raises:
            ProtocolError: it is not; with the offset.
        """
        if len(data) > MOST_BYTES:
            raise ProtocolError(f"{len(data)} bytes are too many", tag=b"", offset=0)
        walk = _Walk(data, self._names, self._most_values)
        walk.value(self._schema, 0)
        if walk.at != len(data):
            walk.fail(f"{len(data) - walk.at} bytes more than the datum has")

    def _learn(self, schema: Any, depth: int) -> None:
        """Note the named types."""
        if depth > _DEEPEST:
            raise ProtocolError("the schema is nested too deeply", tag=b"", offset=0)
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch, depth + 1)
        elif isinstance(schema, Mapping):
            if "name" in schema:
                self._names[schema["name"]] = schema
            for field in schema.get("fields", ()):
                self._learn(field["type"], depth + 1)
            for part in ("items", "values"):
                if part in schema:
                    self._learn(schema[part], depth + 1)


class _Walk:
    def __init__(self, data: bytes, names: Mapping[str, Any], most_values: int) -> None:
        self.at = 0
        self._data = data
        self._left = most_values
        self._names = names

    def fail(self, why: str) -> NoReturn:
        raise ProtocolError(why, tag=b"", offset=self.at)

    def value(self, schema: Any, depth: int) -> None:
        """Pass a value; a union, which has bytes of its own, is counted as the value in it."""
        if isinstance(schema, list):
            branch = self._number()
            if not 0 <= branch < len(schema):
                self.fail(f"branch {branch} of a union of {len(schema)}")
            self.value(schema[branch], depth + 1)
            return
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            self.fail("too many values, or nested too deeply")
        kind = schema if isinstance(schema, str) else schema["type"]
        most = MOST_BYTES
        if isinstance(schema, Mapping) and schema.get("logicalType") == "decimal":
            most = _LONGEST_DECIMAL
        if kind in _FIXED_SIZES:
            self._pass(_FIXED_SIZES[kind])
        elif kind in ("int", "long"):
            self._number()
        elif kind in ("bytes", "string"):
            self._pass(self._number(), most)
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self.value(field["type"], depth + 1)
        elif kind == "enum":
            symbol = self._number()
            if not 0 <= symbol < len(schema["symbols"]):
                self.fail(f"symbol {symbol} of an enum of {len(schema['symbols'])}")
        elif kind == "fixed":
            self._pass(schema["size"], most)
        elif kind == "array":
            self._blocks(schema["items"], depth, keyed=False)
        elif kind == "map":
            self._blocks(schema["values"], depth, keyed=True)
        elif isinstance(kind, str) and kind in self._names:
            self.value(self._names[kind], depth + 1)
        elif isinstance(kind, list | dict):
            self.value(kind, depth + 1)
        else:
            self.fail(f"the schema names an unknown type {kind!r}")

    def _blocks(self, item: Any, depth: int, *, keyed: bool) -> None:
        while count := self._number():
            if count < 0:
                count = -count
                self._number()  # the block's size in bytes
            if count > self._left:
                self.fail(f"{count} items")
            for _ in range(count):
                if keyed:
                    self._pass(self._number())
                self.value(item, depth + 1)

    def _pass(self, size: int, most: int = MOST_BYTES) -> None:
        if size > most:
            self.fail(f"a value of {size} bytes, {most} can be")
        if not 0 <= size <= len(self._data) - self.at:
            self.fail(f"{size} bytes where {len(self._data) - self.at} are left")
        self.at += size

    def _number(self) -> int:
        number = shift = 0
        for _ in range(_LONGEST_VARINT):
            if self.at >= len(self._data):
                self.fail("ends within a number")
            byte = self._data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
        self.fail("a number is too long")
