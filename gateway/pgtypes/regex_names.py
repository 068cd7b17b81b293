"""Names of characters, as ``[[.name.]]`` and ``[[=name=]]`` take them in a regular expression.

Source: POSIX, "Portable Character Set"; src/backend/regex/regc_locale.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["CHARACTER_NAMES"]

_NAMES: Final = {
    0x00: "NUL",
    0x01: "SOH",
    0x02: "STX",
    0x03: "ETX",
    0x04: "EOT",
    0x05: "ENQ",
    0x06: "ACK",
    0x07: "BEL alert",
    0x08: "BS backspace",
    0x09: "HT tab",
    0x0A: "LF newline",
    0x0B: "VT vertical-tab",
    0x0C: "FF form-feed",
    0x0D: "CR carriage-return",
    0x0E: "SO",
    0x0F: "SI",
    0x10: "DLE",
    0x11: "DC1",
    0x12: "DC2",
    0x13: "DC3",
    0x14: "DC4",
    0x15: "NAK",
    0x16: "SYN",
    0x17: "ETB",
    0x18: "CAN",
    0x19: "EM",
    0x1A: "SUB",
    0x1B: "ESC",
    0x1C: "IS4 FS",
    0x1D: "IS3 GS",
    0x1E: "IS2 RS",
    0x1F: "IS1 US",
    0x20: "space",
    0x21: "exclamation-mark",
    0x22: "quotation-mark",
    0x23: "number-sign",
    0x24: "dollar-sign",
    0x25: "percent-sign",
    0x26: "ampersand",
    0x27: "apostrophe",
    0x28: "left-parenthesis",
    0x29: "right-parenthesis",
    0x2A: "asterisk",
    0x2B: "plus-sign",
    0x2C: "comma",
    0x2D: "hyphen hyphen-minus",
    0x2E: "period full-stop",
    0x2F: "slash solidus",
    0x30: "zero",
    0x31: "one",
    0x32: "two",
    0x33: "three",
    0x34: "four",
    0x35: "five",
    0x36: "six",
    0x37: "seven",
    0x38: "eight",
    0x39: "nine",
    0x3A: "colon",
    0x3B: "semicolon",
    0x3C: "less-than-sign",
    0x3D: "equals-sign",
    0x3E: "greater-than-sign",
    0x3F: "question-mark",
    0x40: "commercial-at",
    0x5B: "left-square-bracket",
    0x5C: "backslash reverse-solidus",
    0x5D: "right-square-bracket",
    0x5E: "circumflex circumflex-accent",
    0x5F: "underscore low-line",
    0x60: "grave-accent",
    0x7B: "left-brace left-curly-bracket",
    0x7C: "vertical-line",
    0x7D: "right-brace right-curly-bracket",
    0x7E: "tilde",
    0x7F: "DEL",
}

CHARACTER_NAMES: Final[Mapping[str, int]] = MappingProxyType(
    {name: code for code, names in _NAMES.items() for name in names.split()}
)
"""Name -> code point."""
