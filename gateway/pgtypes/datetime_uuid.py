"""The time in a UUID.

Source: uuid_extract_timestamp() in src/backend/utils/adt/uuid.c; RFC 9562.
"""

from __future__ import annotations

from typing import Final

from gateway.pgtypes.datetime import EPOCH_JULIAN, USECS_PER_DAY
from gateway.pgtypes.interval import depends_on_version

__all__ = ["uuid_timestamp"]

_GREGORIAN_JULIAN: Final = 2_299_161
"""Julian day of 1582-10-15, where version 1 begins to count."""
_UNIX_JULIAN: Final = 2_440_588
_VERSION_7_SINCE: Final = 18


def uuid_timestamp(value: bytes, *, major: int | None = None) -> int | None:
    """The timestamptz in a UUID of version 1, or 7 from PostgreSQL 18 on; None for all others.

    `value` is the printed UUID; `major` is as in `gateway.pgtypes.interval_arithmetic`.
    """
    digits = value.replace(b"-", b"")
    if digits[16] not in b"89ab":
        return None
    if digits[12:13] == b"1":
        ticks = int(digits[13:16] + digits[8:12] + digits[:8], 16)
        return ticks // 10 - (EPOCH_JULIAN - _GREGORIAN_JULIAN) * USECS_PER_DAY
    if digits[12:13] != b"7":
        return None
    if major is None:
        depends_on_version()
    if major < _VERSION_7_SINCE:
        return None
    return int(digits[:12], 16) * 1000 - (EPOCH_JULIAN - _UNIX_JULIAN) * USECS_PER_DAY
