"""The names of date and time fields that extract(), date_part() and date_trunc() take.

Names are read as PostgreSQL reads them: without regard to case, and only their first ten letters.

Source: deltatktbl and datetktbl in src/backend/utils/adt/datetime.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXTRACT_UNITS", "RESERVED", "TRUNC_UNITS", "unit_name"]

_TOKEN_LENGTH: Final = 10
_NAMES: Final = {
    "microsecond": "us usec usecond useconds usecs microsecon",
    "millisecond": "ms msec msecond mseconds msecs millisecon",
    "second": "s sec second seconds secs",
    "minute": "m min mins minute minutes",
    "hour": "h hour hours hr hrs",
    "day": "d day days",
    "week": "w week weeks",
    "month": "mon mons month months",
    "quarter": "qtr quarter",
    "year": "y year years yr yrs",
    "decade": "dec decade decades decs",
    "century": "c cent centuries century",
    "millennium": "mil millennia millennium mils",
    "timezone": "timezone",
    "timezone_hour": "timezone_h",
    "timezone_minute": "timezone_m",
}
_MORE_NAMES: Final = {
    "minute": "mm",
    "dow": "dow",
    "isodow": "isodow",
    "doy": "doy",
    "isoyear": "isoyear",
    "julian": "j jd julian",
    "epoch": "epoch",
    "reserved": "-infinity +infinity allballs infinity now today tomorrow yesterday",
}
RESERVED: Final = "reserved"
"""Words that are no unit of anything, but known."""


def _by_token(names: Mapping[str, str]) -> dict[bytes, str]:
    return {word.encode(): unit for unit, words in names.items() for word in words.split()}


TRUNC_UNITS: Final[Mapping[bytes, str]] = MappingProxyType(_by_token(_NAMES))
"""What date_trunc() knows (DecodeUnits)."""
EXTRACT_UNITS: Final[Mapping[bytes, str]] = MappingProxyType(
    _by_token(_NAMES) | _by_token(_MORE_NAMES)
)
"""What extract() and date_part() know (DecodeUnits, then DecodeSpecial)."""


def unit_name(text: bytes, units: Mapping[bytes, str]) -> str | None:
    """The unit that `text` means, or None when it is not recognized."""
    return units.get(text[:_TOKEN_LENGTH].lower())
