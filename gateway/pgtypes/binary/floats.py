"""real and double precision: the shortest decimal that reads back as the same number.

PostgreSQL prints with Ryu, and never takes a decimal that lies exactly between two numbers, for
the sake of readers that round such a tie their own way. Python's `repr` takes it when the tie goes
to the number. A decimal of at most 17 digits can be such a tie only from 2**52 on: below, `repr`
is right, above, the digits are found here with integers.

Source: d2s.c, f2s.c (acceptBounds is false), float8out_internal in float.c.
"""

from __future__ import annotations

from math import frexp, isinf, ldexp
from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText

__all__ = ["FLOATS", "double", "double_text", "single"]

_DOUBLE: Final = Struct("!d")
_SINGLE: Final = Struct("!f")
_REPR_LIMIT: Final = 1e15
"""Both print plain digits below, and `repr` is not a tie (this is less than 2**52)."""
_SINGLE_NORMAL: Final = 2.0**-126
"""From here up, a single has all its 24 bits."""
_SINGLE_LIMIT: Final = float(2**23)
"""Below, no decimal of six digits lies exactly between two singles."""

_DOUBLE_FIXED: Final = 15
_SINGLE_FIXED: Final = 6
"""Exponents from -4 up to these are printed without ``e``."""


def double(data: bytes) -> bytes:
    """Eight bytes (float8out)."""
    return double_text(*_DOUBLE.unpack(data))


def double_text(value: float) -> bytes:
    """A double as PostgreSQL prints it."""
    if -_REPR_LIMIT < value < _REPR_LIMIT:
        return repr(value).removesuffix(".0").encode()
    if value != value:
        return b"NaN"
    if isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    mantissa, exponent = _split(value, 53, -1074)
    return _printed(value, *_shortest(mantissa, exponent, 53, -1074), _DOUBLE_FIXED)


def single(data: bytes) -> bytes:
    """Four bytes (float4out)."""
    (value,) = _SINGLE.unpack(data)
    if value != value:
        return b"NaN"
    if isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    if value == 0:
        return b"-0" if data[0] else b"0"
    if _SINGLE_NORMAL <= abs(value) < _SINGLE_LIMIT:
        # At most one decimal of six digits reads back as a given single.
        short = f"{value:.6g}"
        if _SINGLE.pack(float(short)) == data:
            return short.encode()
    mantissa, exponent = _split(value, 24, -149)
    return _printed(value, *_shortest(mantissa, exponent, 24, -149), _SINGLE_FIXED)


def _split(value: float, bits: int, lowest: int) -> tuple[int, int]:
    """Integers m, e with abs(value) == m * 2**e, as the format itself stores them."""
    exponent = max(frexp(value)[1] - bits, lowest)
    return int(ldexp(abs(value), -exponent)), exponent


def _shortest(mantissa: int, exponent: int, bits: int, lowest: int) -> tuple[int, int]:
    """Digits t and power k: t * 10**k is the decimal of fewest digits that reads back.

    Among several, it is the one closest to the number; strictly between the midpoints to both
    neighbours.
    """
    # In units of a quarter of the last bit; below a power of two the neighbour is nearer.
    nearer = mantissa == 1 << (bits - 1) and exponent > lowest
    unit = exponent - 2
    centre = 4 * mantissa << max(unit, 0)
    low = (4 * mantissa - (1 if nearer else 2)) << max(unit, 0)
    high = (4 * mantissa + 2) << max(unit, 0)
    divisor = 1 << max(-unit, 0)
    # 10**power is surely shorter than the gap, so that a multiple of it lies in it.
    power = (exponent * 30103) // 100_000 - 2
    found: tuple[int, int] | None = None
    while True:
        up, down = 10 ** max(power, 0), 10 ** max(-power, 0)
        scaled = divisor * up  # the value of one step, in units of 1 / down
        first = low * down // scaled + 1
        last = -(-high * down // scaled) - 1
        if first > last:
            assert found is not None
            return found
        quotient, rest = divmod(centre * down, scaled)
        if 2 * rest > scaled or (2 * rest == scaled and quotient % 2):
            quotient += 1
        found = (min(max(quotient, first), last), power)
        power += 1


def _printed(value: float, digits: int, power: int, fixed: int) -> bytes:
    text = b"%d" % digits
    exponent = power + len(text) - 1
    text = text.rstrip(b"0")
    if -4 <= exponent < 0:
        shown = b"0." + b"0" * (-exponent - 1) + text
    elif 0 <= exponent < fixed:
        whole, fraction = text[: exponent + 1], text[exponent + 1 :]
        shown = whole.ljust(exponent + 1, b"0") + (b"." + fraction if fraction else b"")
    else:
        shown = text[:1] + (b"." + text[1:] if len(text) > 1 else b"")
        shown += b"e%c%02d" % (b"-" if exponent < 0 else b"+", abs(exponent))
    return b"-" + shown if value < 0 else shown


FLOATS: Final[dict[tuple[str, str], ToText]] = {
    ("float4out", "float4send"): single,
    ("float8out", "float8send"): double,
}
"""Output and send function -> conversion."""
