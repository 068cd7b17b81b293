"""Declarations of settings as values: type, default and rule of each field."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

__all__ = [
    "PREFIX",
    "Declared",
    "Properties",
    "Rule",
    "SettingError",
    "address",
    "command",
    "declared",
    "free_tables",
    "tables",
    "variable_of",
]

PREFIX: Final = "PGSLUICE_"


class SettingError(ValueError):
    """A setting that cannot work.

    Attributes:
        message: The fault.
        key: The dotted key or the variable at fault; None where it is the file.
        hint: The remedy, or None.
    """

    def __init__(self, message: str, *, key: str | None = None, hint: str | None = None) -> None:
        super().__init__(message if key is None else f"{key}: {message}")
        self.message = message
        self.key = key
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Rule:
    """Values that a setting may have: ``key: Annotated[int, Rule(least=1)] = 5``.

    Attributes:
        least: The smallest number.
        above: A number must be greater than this.
        most: The largest number; by default thirty years in seconds.
        check: Raises ValueError(message, hint or None) on a value that cannot work.
        path: Whether it names a place: a relative path in the file is relative to the file.
    """

    least: float | None = None
    above: float | None = None
    most: float = 1e9
    check: Callable[[Any], None] | None = None
    path: bool = False


@dataclass(frozen=True, slots=True)
class Properties:
    """A table with properties of a client under the client's own names.

    Attributes:
        required: The one that there must be.
        example: A value of it.
    """

    required: str
    example: str


@dataclass(frozen=True, slots=True)
class Declared:
    """One setting as it is declared; `default` is `dataclasses.MISSING` where it is required."""

    type: Any
    default: Any
    rule: Rule


@cache
def declared(table: type) -> Mapping[str, Declared]:
    """Return the settings of a table's class by name, in the order of their declaration."""
    hints = get_type_hints(table, include_extras=True)
    found: dict[str, Declared] = {}
    for field in fields(table):
        hint, default = hints[field.name], field.default
        kind, rule = get_args(hint) if get_origin(hint) is Annotated else (hint, Rule())
        if field.default_factory is not MISSING:
            default = field.default_factory()
        found[field.name] = Declared(kind, default, rule)
    return found


def tables(settings: type) -> Mapping[str, type]:
    """Return the classes of the tables that `settings` has, by name."""
    hints: Mapping[str, type] = get_type_hints(settings)
    return {name: kind for name, kind in hints.items() if is_dataclass(kind)}


def free_tables(settings: type) -> Mapping[str, Properties]:
    """Return the tables of free properties that `settings` has, by name."""
    hints = get_type_hints(settings, include_extras=True).items()
    return {name: hint.__metadata__[0] for name, hint in hints if get_origin(hint) is Annotated}


def variable_of(table: str, key: str) -> str:
    """Return the environment variable that holds a setting."""
    return f"{PREFIX}{table}__{key}".upper().replace(".", "_")


def address(value: str) -> None:
    """Check ``host:port``.

    Raises:
        ValueError: it is something else.
    """
    host, colon, port = value.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("not host:port", "for example 127.0.0.1:9187, or [::1]:9187")


def command(value: str) -> None:
    """Check a command that runs without a shell.

    Raises:
        ValueError: a quotation mark is open, or there is no word.
    """
    try:
        words = shlex.split(value)
    except ValueError:  # its text has no part of the command
        words = []
    if not words:
        raise ValueError(
            "no command, or a quotation mark is not closed",
            "words as in a shell; for pipes and variables: sh -c '...'",
        )
