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
_SNAPSHOT: Final = Struct("!Iqq")

_POSITIVE: Final = 0x0000
_NEGATIVE: Final = 0x4000
_SPECIAL: Final = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_DIGIT_SIZE: Final = 4
_PADDED: Final = [b"%04d" % digit for digit in range(10_000)]
"""Four decimal digits: one digit of the base 10000."""
_NUMERICS: Final = [Struct(f"!HhHH{count}H") for count in range(17)]


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
    """Base 10000 -> decimal digits, as many after the point as the display scale says."""
    size = (len(data) - 8) >> 1
    layout = _NUMERICS[size] if 0 <= size < len(_NUMERICS) else Struct(f"!HhHH{max(size, 0)}H")
    count, weight, sign, scale, *groups = layout.unpack(data)
    if len(groups) != count:
        raise ValueError("a numeric of another length")
    if sign not in (_POSITIVE, _NEGATIVE):
        special = _SPECIAL.get(sign)
        if special is None:
            raise ValueError("a numeric of unknown sign")
        return special
    digits = b"".join([_PADDED[group] for group in groups])
    if count and weight >= 0:
        point = (weight + 1) * _DIGIT_SIZE
        shown = digits[:point].lstrip(b"0")
        if point > len(digits):
            shown += b"0" * (point - len(digits))
        digits = digits[point:]
    else:
        shown = b"0"
        digits = b"0" * (-(weight + 1) * _DIGIT_SIZE) + digits
    if scale:
        shown = b"%b.%b" % (shown or b"0", digits[:scale].ljust(scale, b"0"))
    return b"-" + shown if sign else shown or b"0"


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
