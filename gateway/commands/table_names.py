"""Tables as operators name them: one reading of names for all commands.

A name is read as PostgreSQL reads it, ``TABLE`` or ``SCHEMA.TABLE``: without quotes it is folded to
lower case, in double quotes it counts as it is written. Without a schema it stands for the one
table of that name among those that a command can act on. Which schemas the role searches does not
matter: what the definitions hold is the same for everybody.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final, NoReturn

from gateway.core.display import shown
from gateway.core.errors import ConfigError
from schemas.table_names import quoted_name

__all__ = ["find_table", "first_name", "split_name"]

_PART: Final = re.compile(
    r'[ \t\n\r\v\f]*(?:"((?:[^"]|"")+)"|([^ \t\n\r\v\f".][^ \t\n\r\v\f.]*))'
    r"[ \t\n\r\v\f]*(\.|\Z)"
)
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
"""In UTF8 PostgreSQL folds no other letters."""


def first_name(text: str) -> tuple[str, str | None]:
    """Return the first identifier of a qualified name, and what follows the point after it.

    Returns:
        An empty identifier if PostgreSQL would refuse it; None if no point follows.

    Source: SplitIdentifierString in varlena.c, downcase_identifier in scansup.c.
    """
    found = _PART.match(text)
    if found is None:
        return "", None
    name = found[1].replace('""', '"') if found[2] is None else found[2].translate(_LOWER)
    return name, text[found.end() :] if found[3] else None


def split_name(text: str) -> tuple[str, ...]:
    """Return the identifiers of a qualified name; none if PostgreSQL would refuse it."""
    parts: list[str] = []
    rest: str | None = text
    while rest is not None:
        name, rest = first_name(rest)
        if not name:
            return ()
        parts.append(name)
    return tuple(parts)


def find_table(
    text: str, known: Iterable[tuple[str, str]], *, key: str | None = None, absent: str, hint: str
) -> tuple[str, str]:
    """Return schema and table that `text` stands for, among those that are `known`.

    A name that stands for none of them as PostgreSQL reads it counts as it is written: commands
    print names without quotes.

    Args:
        text: Name as the operator gave it.
        known: Schemas and tables.
        key: Option that has the name, for errors; None for an argument.
        absent: Error if there is no such table, without the name that follows it.
        hint: Remedy in that case.

    Raises:
        ConfigError: there is no such table, or more than one.
    """
    tables = sorted(set(known))
    parts = split_name(text)
    fitting = [each for each in tables if parts and each[-len(parts) :] == parts]
    fitting = fitting or [each for each in tables if text in (each[1], ".".join(each))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(map(quoted_name, fitting))
        raise ConfigError(
            f"{text} is ambiguous: {shown(listed)}", key=key, hint="give the schema as well"
        )
    _refuse(text, tables, key, absent, hint)


def _refuse(
    text: str, tables: Iterable[tuple[str, str]], key: str | None, absent: str, hint: str
) -> NoReturn:
    names = {".".join(each): each for each in tables} | {each[1]: each for each in tables}
    near = difflib.get_close_matches(text, names, 1)
    if near:
        hint = f"did you mean {shown(quoted_name(names[near[0]]))}? {hint}"
    named = text if '"' in text else f'"{text}"'
    raise ConfigError(f"{absent} {named}", key=key, hint=hint)
