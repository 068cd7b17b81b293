"""Values that `tools.fuzz_rows` draws: types, usual texts of them, and odd ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

__all__ = ["KINDS", "ODD"]

_Draw: TypeAlias = Callable[[random.Random], bytes]
_Kind: TypeAlias = tuple[int, int, _Draw]
"""OID, modifier, and a function that draws a value."""

ODD: Final = (
    *(b"", b"-", b"+5", b" 7", b"1_0", b"007", b"-0", b"NaN", b"Infinity", b"-Infinity", b"inf"),
    *(
        b"infinity",
        b"-infinity",
        b"1e400",
        b"1e39",
        b"1e-400",
        b"-0.0",
        b"0x10",
        b"t",
        b"f",
        b"yes",
    ),
    *(b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"9" * 40),
    *(b"0044-03-15 BC", b"10000-01-01", b"2024-02-30", b"2023-02-29", b"0000-01-01", b"2024-1-1"),
    *(b"{}", b"{1,2", b"{1}2}", b"{1,,2}", b'{"1}', b'{"1"x}', b"{1\\,2}", b"{1,}", b"{{1},{2}}"),
    *(
        b"1 day ",
        b"1 day 1 mon",
        b"1 week",
        b"9999999999 years",
        b"2562047789:00:00",
        b"1 mons2 days",
    ),
    *(b"294247-01-10 04:00:54.775807+00", b"2024-13-01 00:00:00+00", b"2024-02-29 99:00:00+00"),
    *(b"24:00:00.0", b"12:00", b"12:00:60", b"12:00:00.1234567", b"12:00:00+00", b"-12:00:00"),
    *(b"2024-02-29 24:00:00", b"2024-02-29 23:59:60", b"2024-02-29 12:00:00.1234567"),
    *(b"2024-02-29 12:00:00+01", b"2024-02-29 12:00:00.5+05:30", b"294276-12-31 23:59:59.999999"),
    *(b"0001-01-01 00:00:00+00 BC", b"2024-02-29T12:00:00", b"2024-02-29 12:00:00.+00"),
    *(b"\\x", b"\\xABCD", b"\\x0", b"\\xzz", b"x00", b"\xff\xfe", b"a" * 300, b"1.", b".5", b"1.5"),
    *(
        b"a\tb\\\n",
        b"\b\f\r\v",
        b"\\N",
        b"-1.",
        b"12345678901234567890123456789012345678.00",
        b"0.00",
        b"-0.00",
        b"1.2.3",
    ),
)


def _date(pick: random.Random) -> bytes:
    year = pick.choice((pick.randint(1970, 2030), pick.randint(1, 9999)))
    return b"%04d-%02d-%02d" % (year, pick.randint(1, 12), pick.randint(1, 28))


def _stamp(pick: random.Random) -> bytes:
    text = _date(pick) + b" %02d:%02d:%02d" % (
        pick.randrange(24), pick.randrange(60), pick.randrange(60)
    )  # fmt: skip
    size = pick.choice((0, 1, 2, 3, 4, 5, 6, 6, 6))
    return text + (b"." + b"%0*d" % (size, pick.randrange(10**size)) if size else b"")


def _decimal(pick: random.Random) -> bytes:
    return b"%d.%02d" % (pick.randint(-(10 ** pick.randint(0, 8)), 10**6), pick.randrange(100))


def _interval(pick: random.Random) -> bytes:
    shown = (b"%d years", b"1 year", b"%d mons", b"-1 mon", b"%d days", b"+1 day")
    parts = [
        one % pick.randint(-99, 10 ** pick.randint(0, 9)) if b"%" in one else one
        for one in shown
        if pick.random() < 0.3
    ]
    clock = pick.choice((b"", b"-", b"+")) + _stamp(pick)[11:]
    return b" ".join([*parts, clock] if pick.random() < 0.7 or not parts else parts)


def _array(kind: str) -> _Draw:
    item = _SCALARS[kind][2]

    def draw(pick: random.Random) -> bytes:
        items = [_item(pick, item) for _ in range(pick.choice((0, 1, 1, 2, 3, 20)))]
        text = b"{" + b",".join(items) + b"}"
        return pick.choice((*(text,) * 20, b"{" + text + b"}", b"[0:0]={" + item(pick) + b"}"))

    return draw


def _range(kind: str) -> _Draw:
    bound = _SCALARS[kind][2]

    def draw(pick: random.Random) -> bytes:
        texts = [pick.choice((b"", b"infinity", bound(pick), bound(pick))) for _ in range(2)]
        texts = [
            b'"' + text + b'"' if b" " in text or pick.random() < 0.1 else text for text in texts
        ]
        text = pick.choice((b"[", b"(")) + b",".join(texts) + pick.choice((b"]", b")"))
        return pick.choice((*(text,) * 9, b"empty", text[1:], text[:-1], b"[(1,2)", b'["1""",2]'))

    return draw


def _item(pick: random.Random, item: _Draw) -> bytes:
    chance = pick.random()
    if chance < 0.15:
        return b"NULL"
    if chance < 0.18:
        return pick.choice((b'"NULL"', b'""', b'"a\\"b\\\\c"', b'"{,}"', b'"x y"', b""))
    return item(pick) if pick.random() < 0.7 else b'"' + item(pick) + b'"'


_SCALARS: Final[Mapping[str, _Kind]] = {
    "bool": (16, -1, lambda pick: pick.choice((b"t", b"f"))),
    "int4": (23, -1, lambda pick: b"%d" % pick.randint(-(10 ** pick.randint(0, 9)), 20)),
    "int8": (20, -1, lambda pick: b"%d" % pick.randint(-5, 10 ** pick.randint(0, 18))),
    "float4": (700, -1, lambda pick: repr(round(pick.uniform(-9, 9), 3)).encode()),
    "float8": (
        701,
        -1,
        lambda pick: repr(pick.uniform(-1, 1) * 10 ** pick.randint(-30, 30)).encode(),
    ),
    "numeric2": (1700, (10 << 16 | 2) + 4, _decimal),
    "numeric0": (1700, (38 << 16) + 4, lambda pick: b"%d" % pick.randint(-(10**30), 10**37)),
    "numeric": (1700, -1, _decimal),
    "bytea": (17, -1, lambda pick: b"\\x" + pick.randbytes(pick.randint(0, 9)).hex().encode()),
    "date": (1082, -1, _date),
    "timestamp": (1114, -1, _stamp),
    "timestamptz": (1184, -1, lambda pick: _stamp(pick) + b"+00"),
    "time": (1083, -1, lambda pick: pick.choice((_stamp(pick)[11:],) * 9 + (b"24:00:00",))),
    "uuid": (2950, -1, lambda pick: b"00000000-0000-0000-0000-%012d" % pick.randrange(99)),
    "text": (25, -1, lambda pick: pick.choice((b"a", b"b", b"c", b"long " * 30))),
    "bpchar": (1042, -1, lambda pick: pick.choice((b"a", b"b")).ljust(pick.randint(1, 4))),
    "interval": (1186, -1, _interval),
    # By its name: an extension's OIDs differ.
    "geometry": (
        65_000,
        -1,
        lambda pick: pick.randbytes(pick.randint(0, 9)).hex().upper().encode(),
    ),
}
KINDS: Final[Mapping[str, _Kind]] = {
    **_SCALARS,
    "int4[]": (1007, -1, _array("int4")),
    "numeric2[]": (1231, _SCALARS["numeric2"][1], _array("numeric2")),
    "text[]": (1009, -1, _array("text")),
    "time[]": (1183, -1, _array("time")),
    "interval[]": (1187, -1, _array("interval")),
    "int4range": (3904, -1, _range("int4")),
    "tsrange": (3908, -1, _range("timestamp")),
}
