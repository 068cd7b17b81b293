"""One value of the configuration: from TOML, or the text of a variable, to a field's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from gateway.core.errors import ConfigError

__all__ = ["convert", "flatten"]


def convert(key: str, value: Any, hint: Any) -> Any:
    """Turn a TOML value, or the text of an environment variable, into the field's type."""
    if get_origin(hint) is Literal:
        return _literal(key, value, get_args(hint))
    if hint in (Path, Path | None):
        return Path(_expect(key, value, str, "a path"))
    if hint in (str, str | None):
        return _expect(key, value, str, "a text")
    if get_origin(hint) is tuple:
        return _texts(key, value)
    if hint == Mapping[str, tuple[str, ...]]:
        table = _expect(key, value, dict, "a table")
        return {name: _texts(f"{key}.{name}", texts) for name, texts in table.items()}
    if get_origin(hint) is Mapping:
        return flatten(key, _expect(key, value, dict, "a table"))
    return _SCALARS[hint](key, value)


def _expect(key: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"must be {what}, not {type(value).__name__}", key=key)
    return value


def _literal(key: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        shown = ", ".join(repr(choice) for choice in choices)
        raise ConfigError(f"must be one of {shown}", key=key)
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ConfigError("must be a list of texts", key=key)
    return tuple(value)


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, str):
        value = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}.get(
            value.lower()
        )
    if not isinstance(value, bool):
        raise ConfigError("must be true or false", key=key)
    return value


def _integer(key: str, value: Any) -> int:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            value = None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError("must be a whole number", key=key)
    return value


def _number(key: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ConfigError("must be a finite number", key=key)
    return float(value)


_SCALARS: Final[Mapping[Any, Callable[[str, Any], Any]]] = {
    bool: _boolean,
    int: _integer,
    float: _number,
    float | None: _number,
}


def flatten(name: str, raw: Mapping[str, Any]) -> dict[str, str]:
    """Flatten nested tables (an unquoted dotted key makes them) into dotted property names."""
    flat: dict[str, str] = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{k}": v for k, v in flatten(f"{name}.{key}", value).items()}
        elif isinstance(value, bool):
            flat[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            flat[key] = str(value)
        else:
            raise ConfigError("must be a text, a number or true/false", key=f"{name}.{key}")
    return flat
