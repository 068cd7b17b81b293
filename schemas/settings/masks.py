"""Masks of columns, as ``[columns] masks`` writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Mask", "check_hash_key", "check_masks", "read_mask"]

LEAST_KEY_BYTES: Final = 32
"""Size of the key of ``hash``: that of SHA-256's result, as RFC 2104 recommends."""

_TRUNCATE: Final = re.compile(r"truncate\(\s*([0-9]{1,6})\s*\)\Z")
_HINT: Final = 'a mask is "hash", "null" or "truncate(n)"'


@dataclass(frozen=True, slots=True)
class Mask:
    """Form in which the values of a column leave the gateway.

    Attributes:
        kind: ``hash`` for a keyed hash, ``null`` for NULL, ``truncate`` for the first characters.
        length: Number of characters of ``truncate``; else 0.
        key_id: Digest of the key of ``hash``, which differs between keys; else empty.
    """

    kind: Literal["hash", "null", "truncate"]
    length: int = 0
    key_id: str = ""

    def __str__(self) -> str:
        return f"truncate({self.length})" if self.kind == "truncate" else self.kind


def read_mask(text: str) -> Mask:
    """Parse a mask.

    Raises:
        ValueError: it is none; has message and hint.
    """
    if text == "hash":
        return Mask("hash")
    if text == "null":
        return Mask("null")
    if found := _TRUNCATE.match(text):
        return Mask("truncate", int(found[1]))
    raise ValueError(f"{text!r} is no mask", _HINT)


def check_masks(value: Mapping[str, str]) -> None:
    """Check ``[columns] masks``.

    Raises:
        ValueError: a name does not have the parts of a column's, or a mask is none.
    """
    for name, text in value.items():
        if name.count(".") < 3:
            raise ValueError(
                f"{name!r} does not name a column", "it is subscription.schema.table.column"
            )
        try:
            read_mask(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error.args[0]}", error.args[1]) from None


def check_hash_key(value: str | None) -> None:
    """Check ``[columns] hash_key``.

    Raises:
        ValueError: it is shorter than a key may be; does not quote it.
    """
    if value is not None and len(value.encode()) < LEAST_KEY_BYTES:
        raise ValueError(
            f"has less than {LEAST_KEY_BYTES} bytes",
            "make one with `openssl rand -hex 32`; whoever can guess it can guess the values",
        )
