"""Composite values in PostgreSQL's text notation: ``(1,"a b",)``.

Source: record_in in rowtypes.c; "Composite Types" in the manual.
"""

from __future__ import annotations

__all__ = ["split_record"]

_SPACE = " \t\n\r\f\v"


def split_record(text: str) -> list[str | None]:
    """Return the fields of a composite value; an empty one is NULL, ``""`` is the empty text.

    Raises:
        ValueError: it does not read, in PostgreSQL's words.
    """
    text = text.strip(_SPACE)
    if not text.startswith("("):
        raise ValueError("malformed record literal: Missing left parenthesis.")
    fields: list[str | None] = []
    at = 1
    while True:
        field, at = _field(text, at)
        fields.append(field)
        if text[at] == ")":
            break
        at += 1
    if at + 1 != len(text):
        raise ValueError("malformed record literal: Junk after right parenthesis.")
    return fields


def _field(text: str, at: int) -> tuple[str | None, int]:
    """Read a field from `at` on; return it, and where the comma or parenthesis after it is."""
    start, quoted = at, False
    characters: list[str] = []
    while at < len(text) and (quoted or text[at] not in ",)"):
        character = text[at]
        if character == "\\" and at + 1 < len(text):
            at += 1
            characters.append(text[at])
        elif character != '"':
            characters.append(character)
        elif quoted and text[at + 1 : at + 2] == '"':
            at += 1
            characters.append('"')
        else:
            quoted = not quoted
        at += 1
    if at >= len(text):
        raise ValueError("malformed record literal: Unexpected end of input.")
    return (None if at == start else "".join(characters)), at
