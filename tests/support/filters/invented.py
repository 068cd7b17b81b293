"""Values that nobody thought of, for types where there are many; beside those of `literals`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from random import Random
from typing import Final
from uuid import UUID

__all__ = ["invented"]

_LETTERS: Final = "aabbcABé %_\\.'1日"


def invented(name: str, random: Random) -> str | None:
    """A random value of the type `name` as input text; None for types that have no recipe."""
    recipe = _RECIPES.get(name)
    return None if recipe is None else recipe(random)


def _integer(bits: int) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        width = random.randint(1, bits - 1)
        return str(random.randint(-(2**width), 2**width - 1))

    return make


def _float(digits: int, exponent: int) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        mantissa = round(random.uniform(-10, 10), random.randint(0, digits))
        return f"{mantissa}e{random.choice((0, 0, 1, -1, random.randint(-exponent, exponent)))}"

    return make


def _numeric(random: Random) -> str:
    whole = random.randint(-(10 ** random.randint(1, 20)), 10 ** random.randint(1, 20))
    return f"{whole}.{random.randrange(10 ** random.randint(1, 12))}"


def _text(random: Random) -> str:
    return "".join(random.choice(_LETTERS) for _ in range(random.randint(0, 8)))


def _date(random: Random) -> str:
    return str(date(1900, 1, 1) + timedelta(days=random.randint(-200000, 200000)))


def _moment(random: Random) -> str:
    usecs = random.choice((0, random.randrange(10**6), random.randrange(10) * 100000))
    moment = datetime(2000, 1, 1) + timedelta(
        days=random.randint(-100000, 100000), seconds=random.randrange(86400), microseconds=usecs
    )
    return moment.isoformat(sep=" ")


def _time(random: Random) -> str:
    return _moment(random).partition(" ")[2]


def _zone(random: Random) -> str:
    return f"{random.choice('+-')}{random.randint(0, 15):02}:{random.choice((0, 30, 45)):02}"


def _interval(random: Random) -> str:
    months, days = random.randint(-40, 40), random.randint(-80, 80)
    return f"{months} mons {days} days {random.choice(('', '-'))}{_time(random)}"


def _bits(random: Random) -> str:
    return "".join(random.choice("01") for _ in range(random.randint(0, 70)))


def _inet(random: Random) -> str:
    if random.random() < 0.3:
        parts = ":".join(f"{random.choice((0, 1, random.randrange(65536))):x}" for _ in range(8))
        return f"{parts}/{random.randint(0, 128)}"
    parts = ".".join(str(random.choice((0, 10, 255, random.randrange(256)))) for _ in range(4))
    return f"{parts}/{random.randint(0, 32)}"


_RECIPES: Final[Mapping[str, Callable[[Random], str]]] = {
    "int2": _integer(16),
    "int4": _integer(32),
    "int8": _integer(64),
    "oid": lambda random: str(random.randrange(2**32)),
    "float4": _float(5, 30),
    "float8": _float(15, 300),
    "numeric": _numeric,
    "text": _text,
    "varchar": _text,
    "bpchar": lambda random: _text(random)[:5],
    "name": _text,
    "bytea": lambda random: "\\x" + random.randbytes(random.randint(0, 9)).hex(),
    "date": _date,
    "time": _time,
    "timetz": lambda random: _time(random) + _zone(random),
    "timestamp": _moment,
    "timestamptz": lambda random: _moment(random) + _zone(random),
    "interval": _interval,
    "uuid": lambda random: str(UUID(int=random.getrandbits(128))),
    "varbit": _bits,
    "inet": _inet,
}
