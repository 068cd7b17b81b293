"""Types whose send format is their text, or nearly; and strings of bytes and bits.

Source: varlena.c, varchar.c, name.c, char.c, json.c, jsonb.c, jsonpath.c, xml.c, enum.c, uuid.c,
varbit.c, bytea.c.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText

__all__ = ["STRINGS"]

_BITS: Final = Struct("!i")
_VERSION: Final = 1


def text(data: bytes) -> bytes:
    """The text itself."""
    return bytes(data)


def versioned(data: bytes) -> bytes:
    """A format version, then the text (jsonb_send, jsonpath_send)."""
    if data[0] != _VERSION:
        raise ValueError("an unknown version of a json type")
    return data[1:]


def char(data: bytes) -> bytes:
    r"""``"char"``: one byte; zero prints as nothing, above ASCII as ``\ooo`` (from 16 on)."""
    if len(data) != 1:
        raise ValueError('not a "char"')
    if data[0] >= 0x80:
        return b"\\%03o" % data[0]
    return b"" if data == b"\0" else bytes(data)


def bytea(data: bytes) -> bytes:
    """Hex."""
    return b"\\x" + data.hex().encode()


def uuid(data: bytes) -> bytes:
    """Five groups."""
    if len(data) != 16:
        raise ValueError("not a uuid")
    shown = data.hex()
    return f"{shown[:8]}-{shown[8:12]}-{shown[12:16]}-{shown[16:20]}-{shown[20:]}".encode()


def bits(data: bytes) -> bytes:
    """A count, then the bits, the first one highest."""
    (count,) = _BITS.unpack_from(data)
    size = len(data) - 4
    if count < 0 or size != (count + 7) // 8:
        raise ValueError("a bit string of another length")
    if count == 0:
        return b""
    return f"{int.from_bytes(data[4:]) >> (size * 8 - count):0{count}b}".encode()


STRINGS: Final[dict[tuple[str, str], ToText]] = {
    ("textout", "textsend"): text,
    ("varcharout", "varcharsend"): text,
    ("bpcharout", "bpcharsend"): text,
    ("nameout", "namesend"): text,
    ("unknownout", "unknownsend"): text,
    ("json_out", "json_send"): text,
    ("xml_out", "xml_send"): text,
    ("enum_out", "enum_send"): text,
    ("charout", "charsend"): char,
    ("jsonb_out", "jsonb_send"): versioned,
    ("jsonpath_out", "jsonpath_send"): versioned,
    ("byteaout", "byteasend"): bytea,
    ("uuid_out", "uuid_send"): uuid,
    ("bit_out", "bit_send"): bits,
    ("varbit_out", "varbit_send"): bits,
}
"""Output and send function -> conversion."""
