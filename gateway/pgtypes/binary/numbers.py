"""Booleans, integers and numeric.

Source: bool.c, int.c, int8.c, oid.c, xid.c, numeric.c (numeric_send, get_str_from_var), pg_lsn.c,
tid.c, xid8funcs.c.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText

__all__ = ["NUMBERS", "integer"]

_TID: Final = Struct("!IH")
_LSN: Final = Struct("!II")
_NUMERIC: Final = Struct("!HhHH")
_SNAPSHOT: Final = Struct("!Iqq")

_POSITIVE: Final = 0x0000
_NEGATIVE: Final = 0x4000
_SPECIAL: Final = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_DIGIT_SIZE: Final = 4
_PADDED: Final = [b"%04d" % digit for digit in range(10_000)]
"""Four decimal digits: one digit of the base 10000."""
_GROUPS: Final = [Struct(f"!{count}H") for count in range(17)]


def boolean(data: bytes) -> bytes:
    """One byte -> ``t`` or ``f`` (boolout)."""
    if data == b"\x01":
        return b"t"
    if data == b"\x00":
        return b"f"
    raise ValueError("not a boolean")


def integer(size: int, *, signed: bool) -> ToText:
    """An integer of `size` bytes, in network order."""
    code = {2: "h", 4: "i", 8: "q"}[size]
    unpack = Struct("!" + (code if signed else code.upper())).unpack

    def to_text(data: bytes) -> bytes:
        (number,) = unpack(data)
        return b"%d" % number

    return to_text


def numeric(data: bytes) -> bytes:
    """Base 10000 -> decimal digits, as many behind the point as the display scale says."""
    count, weight, sign, scale = _NUMERIC.unpack_from(data)
    if len(data) != 8 + 2 * count:
        raise ValueError("a numeric of another length")
    if sign not in (_POSITIVE, _NEGATIVE):
        special = _SPECIAL.get(sign)
        if special is None:
            raise ValueError("a numeric of unknown sign")
        return special
    groups = _GROUPS[count] if count < len(_GROUPS) else Struct(f"!{count}H")
    digits = b"".join([_PADDED[digit] for digit in groups.unpack_from(data, 8)])
    point = (weight + 1) * _DIGIT_SIZE
    if point > 0:
        whole = digits[:point].lstrip(b"0") if count else b""
        whole = (whole + b"0" * (point - len(digits)) if whole else b"") or b"0"
        fraction = digits[point : point + scale]
    else:
        whole = b"0"
        fraction = (b"0" * -point + digits)[:scale]
    if scale:
        whole += b"." + fraction.ljust(scale, b"0")
    return b"-" + whole if sign == _NEGATIVE else whole


def lsn(data: bytes) -> bytes:
    """A WAL position (pg_lsn_out, up to PostgreSQL 18)."""
    return b"%X/%X" % _LSN.unpack(data)


def tid(data: bytes) -> bytes:
    """Block and offset."""
    return b"(%d,%d)" % _TID.unpack(data)


def snapshot(data: bytes) -> bytes:
    """``xmin:xmax:xip_list``."""
    count, xmin, xmax = _SNAPSHOT.unpack_from(data)
    running = Struct(f"!{count}q").unpack(data[_SNAPSHOT.size :])
    return b"%d:%d:%b" % (xmin, xmax, b",".join([b"%d" % xid for xid in running]))


_UNSIGNED: Final = integer(4, signed=False)

NUMBERS: Final[dict[tuple[str, str], ToText]] = {
    ("boolout", "boolsend"): boolean,
    ("int2out", "int2send"): integer(2, signed=True),
    ("int4out", "int4send"): integer(4, signed=True),
    ("int8out", "int8send"): integer(8, signed=True),
    ("oidout", "oidsend"): _UNSIGNED,
    ("xidout", "xidsend"): _UNSIGNED,
    ("cidout", "cidsend"): _UNSIGNED,
    ("xid8out", "xid8send"): integer(8, signed=False),
    ("numeric_out", "numeric_send"): numeric,
    ("pg_lsn_out", "pg_lsn_send"): lsn,
    ("tidout", "tidsend"): tid,
    ("pg_snapshot_out", "pg_snapshot_send"): snapshot,
}
"""Output and send function -> conversion."""
