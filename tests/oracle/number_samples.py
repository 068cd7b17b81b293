"""Numbers that are worth asking a server about, and random ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Final

from gateway.pgtypes.floats import parse_float4, parse_float8
from gateway.pgtypes.integers import parse_integer
from gateway.pgtypes.numeric import parse_numeric

__all__ = ["EXTREMES", "PARSERS", "SAMPLES", "numbers", "shown"]

SAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "int2": ("0", "1", "-1", "7", "12", "-18", "32767", "-32768", "-32767"),
    "int4": ("0", "1", "-1", "7", "12", "-18", "2147483647", "-2147483648", "-2147483647", "65536"),
    "int8": ("0", "1", "-1", "7", "12", "-18", "9223372036854775807", "-9223372036854775808",
             "-9223372036854775807", "4294967296"),
    "numeric": ("0", "0.00", "1", "-1", "1.0", "0.5", "-0.5", "1.5", "2.5", "-2.5", "2.45",
                "0.049", "99.995", "12.50", "18.75", "-7.125", "1e-20", "1e20", "9999.9999",
                "123456789012345678901234567890.123456789", "NaN", "Infinity", "-Infinity",
                "100.00000", "-0.04", "1.1", "0.9", "3", "1234.5678e100", "16", "10000",
                "0.1"),
    "float8": ("0", "-0", "1", "-1", "0.5", "1.5", "2.5", "-2.5", "-0.4", "1e308", "-1e308",
               "5e-324", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity", "180",
               "4503599627370496.5", "4503599627370495.5", "9007199254740993", "1e-310",
               "0.49999999999999994", "57.29", "2e306", "4e-323"),
    "float4": ("0", "-0", "1", "-1.5", "3.4028235e38", "1e-45", "NaN", "Infinity",
               "-Infinity", "0.1"),
}  # fmt: skip

EXTREMES: Final = ("9e131071", "-9e131071", "1e-16383", "4.5e131070")
"""The largest numerics, and the smallest; slow to work on."""

PARSERS: Final[dict[str, Callable[[bytes], object]]] = {
    "int2": parse_integer,
    "int4": parse_integer,
    "int8": parse_integer,
    "numeric": parse_numeric,
    "float8": parse_float8,
    "float4": parse_float4,
}


def numbers(kind: str, random: Random, count: int) -> list[str]:
    """The samples of a type and `count` random ones more, as input text."""
    return [*SAMPLES[kind], *(_random(kind, random) for _ in range(count))]


def _random(kind: str, random: Random) -> str:
    if kind.startswith("int"):
        bits = int(kind[3:]) * 8 - 1
        value = random.getrandbits(random.randint(1, bits))
        return str(random.choice((value, -value)))
    if kind == "numeric":
        digits = random.getrandbits(random.choice((4, 10, 33, 60, 120)))
        number = Decimal(digits).scaleb(-random.choice((0, 0, 1, 2, 3, 4, 7, 16, 25)))
        return f"{random.choice((number, -number)):f}"
    if random.random() < 0.5:
        return repr(random.choice((-1, 1)) * random.randrange(1, 4000) / 8)
    text = repr(struct.unpack("<d", random.randbytes(8))[0])
    return text if kind == "float8" else repr(struct.unpack("<f", random.randbytes(4))[0])


def shown(value: object) -> bytes | None:
    """A value as the output function of its type prints it."""
    if value is None:
        return None
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}".encode()
    if isinstance(value, Decimal):
        return b"Infinity" if value > 0 else b"-Infinity"
    if isinstance(value, bytes):
        return value
    return b"NaN" if repr(value) == "NAN" else str(value).encode()
