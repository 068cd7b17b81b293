"""Dates, times, timestamps and intervals that are interesting, or random, as SQL expressions."""

from __future__ import annotations

from random import Random

__all__ = ["samples"]

DAY = 86_400_000_000
UNITS = (
    "microsecond", "us", "milliseconds", "ms", "second", "S", "minute", "hour", "day", "Day", "m",
    "mm", "mon", "week", "month", "qtr", "quarter", "year", "decade", "century", "millennium",
    "millenniums_and_more", "dow", "isodow", "doy", "isoyear", "julian", "epoch", "timezone",
    "timezone_hour", "timezone_minute", "now", "infinity", "foo", "yearsx", "", "\u00e9",
)  # fmt: skip
SPECIAL = {
    "date": "infinity -infinity 2000-01-01 1999-12-31 2024-02-29 2023-02-28 1970-01-01 2021-01-03 "
    "2020-12-31 2016-01-03 0001-01-01 0001-12-31_BC 0044-03-15_BC 4714-11-24_BC 294276-12-31 "
    "294277-01-01 5874897-12-31 1900-12-31 2001-01-01 0100-12-31 1000-06-15 0011-01-01_BC",
    "time": "00:00 24:00 23:59:59.999999 23:59:59.9999995 12:34:56.789012 00:00:00.000001 "
    "01:02:03.5",
    "timetz": "00:00+00 24:00+00 23:59:59.999999-15:59:59 12:34:56.789012+05:30 12:00-03:30:15 "
    "13:00+01 12:00+00 00:00+15:59:59 24:00-08",
    "timestamp": "infinity -infinity 2000-01-01 1999-12-31_23:59:59.999999 2024-02-29_12:34:56.789 "
    "2024-03-31_00:00:00.0005 2023-12-31_23:59:59 1970-01-01 294276-12-31_23:59:59.999999 "
    "294276-01-01 4714-11-24_BC 4714-12-31_12:00_BC 0001-01-01 0001-02-28_BC "
    "0044-03-15_01:02:03_BC "
    "2000-01-31_00:00:00.000001 2100-02-28_06:00 1600-02-29 2262-04-11_23:47:16.854775",
    "interval": "infinity -infinity 0 1_day 24:00 1_mon 30_days 1_year 12_mons 360_days "
    "-1_mon_+1_day_-01:00:00 1_mon_-1_day_+01:00:00.000001 1_year_2_mons_3_days_04:05:06.789 "
    "-1_year_-2_mons_-3_days_-04:05:06.789 2147483647_mons -2147483648_mons 2147483647_days "
    "-2147483648_days 2562047788:00:54.775807 -2562047788:00:54.775807 -00:00:00.000001 "
    "-9223372036854775808_microseconds 59:59.9999995 23:59:59.999999 5_mons_29_days_47:00 "
    "-13_mons -4_mons -1_mons_31_days 2147483647_mons_2147483647_days_2562047788:00:54.775807 "
    "178956970_years_7_mons_29_days_23:59:59 05:30 -03:00 15:00:00.5 1_microsecond 10_days_-240:00",
    "float8": "NaN Infinity -Infinity 0 -0 1 -1 0.5 1.5 -2.5 0.1 3 1e-10 1e300 1e-300 1.0000000001 "
    "0.3333333333333333 59.9999995 59.9999999 60 1e9 1e13 -210866803200 9224318015999.9 1e12 7 "
    "1234567890.123456",
    "int4": "0 1 -1 2 6 7 11 12 13 23 24 28 29 30 31 59 60 65535 196607 134217727 1966080 2020 -44 "
    "-4714 5874897 294276 2147483647 -2147483648 400 -32769",
    "int8": "0 1 -1 2147483648 -2147483649 9223372036854775807 -9223372036854775808 305419896",
    "bool": "true false",
    "timestamptz": "infinity -infinity 2000-01-01+00 1999-12-31_23:59:59.999999-05 "
    "2024-02-29_12:34:56.789+05:30 294276-12-31_23:59:59.999999+00 4714-11-24+00_BC "
    "4714-11-25+00_BC 4714-11-30+00_BC 0001-01-01+00 0044-03-15_01:02:03+00_BC 2023-03-31_23:30+00 "
    "2000-01-31_00:00:00.000001+00 2262-04-11_23:47:16.854775+00 294276-12-30+00",
}
ZONES = (
    "UTC", "utc", "GMT", "Etc/UTC", "etc/gmt", "Etc/GMT+12", "Etc/GMT-14", "Etc/GMT+5", "+05:30",
    "05:30", "-03:30:15", "-5:3", "+167:59:59", "-167:00", "+00:00",
)  # fmt: skip
TEXTS = {"unit": UNITS, "zone": ZONES}
"""What texts can mean; for the server they are text."""


def literals(kind: str) -> list[str]:
    """The special values of a type, as expressions."""
    if kind in TEXTS:
        return [f"text '{word}'" for word in TEXTS[kind]]
    return [f"{kind} '{word.replace('_', ' ')}'" for word in SPECIAL[kind].split()]


def samples(kind: str, random: Random, count: int) -> list[str]:
    """The special values, and `count` random ones; some may be out of the type's range."""
    found = literals(kind)
    if kind == "bool" or kind in TEXTS:
        return found
    make = {
        "date": _date, "time": _time, "timetz": _timetz, "timestamp": _timestamp,
        "timestamptz": _timestamptz,
        "interval": _interval, "float8": _float, "int4": _int,
        "int8": _bigint,
    }[kind]  # fmt: skip
    return found + [make(random) for _ in range(count)]


def _spread(random: Random, bits: int) -> int:
    """An integer of any size up to `bits`, of any sign."""
    return random.choice((1, -1)) * random.getrandbits(random.randint(1, bits))


def _date(random: Random) -> str:
    return f"date 'J{max(0, 2451545 + _spread(random, 31))}'"


def _time(random: Random) -> str:
    return f"time '00:00' + interval '{random.randrange(DAY)} microseconds'"


def _timetz(random: Random) -> str:
    seconds, usecs = divmod(random.randrange(DAY), 1_000_000)
    offset = random.choice((0, 3600, 19800, random.randrange(57_600), 54_000))
    return (
        f"timetz '{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}.{usecs:06d}"
        f"{random.choice('+-')}{offset // 3600:02d}:{offset // 60 % 60:02d}:{offset % 60:02d}'"
    )


def _timestamp(random: Random) -> str:
    return f"timestamp '2000-01-01' + interval '{_spread(random, 62)} microseconds'"


def _timestamptz(random: Random) -> str:
    return f"timestamptz '2000-01-01 00:00+00' + interval '{_spread(random, 62)} microseconds'"


def _interval(random: Random) -> str:
    months, days = _spread(random, random.choice((5, 31))), _spread(random, random.choice((6, 31)))
    usecs = _spread(random, random.choice((40, 63)))
    return f"interval '{months} months {days} days {usecs} microseconds'"


def _float(random: Random) -> str:
    value = random.choice((random.uniform(-5, 5), random.uniform(-1e6, 1e6), random.randint(1, 99)))
    return f"float8 '{value!r}'"


def _bigint(random: Random) -> str:
    return f"int8 '{_spread(random, 63)}'"


def _int(random: Random) -> str:
    return f"int4 '{_spread(random, random.choice((3, 5, 31)))}'"
