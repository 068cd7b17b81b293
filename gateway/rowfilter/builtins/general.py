"""boolean, uuid and bytea: compared."""

from __future__ import annotations

from typing import Final

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.text.strings import parse_bytea
from gateway.rowfilter.builtins.common import Family, comparisons

__all__ = ["FAMILY"]


def _parse_bool(text: bytes) -> bool:
    """Read a boolean as printed (``t``, ``f``) or as in a literal (``true``, ``false``)."""
    if text in (b"t", b"true"):
        return True
    if text in (b"f", b"false"):
        return False
    raise ValueFormatError("a value does not read as boolean")


def _as_is(text: bytes) -> bytes:
    return text


FAMILY: Final = Family(
    parsers={
        "bool": _parse_bool,
        # 32 lower-case hex digits and the dashes in fixed places: the text sorts as the value.
        "uuid": _as_is,
        "bytea": parse_bytea,
    },
    operations=(*comparisons("bool{}"), *comparisons("uuid_{}"), *comparisons("bytea{}")),
)
