"""One value of the configuration: from TOML, or the text of a variable, to a field's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from schemas.settings.fields import Declared, SettingError

__all__ = ["convert", "flatten"]


def convert(key: str, value: Any, declared: Declared) -> Any:
    """Turn a TOML value, or the text of an environment variable, into the field's type.

    Raises:
        SettingError: it is of another type, or out of range; names `key`.
    """
    converted, rule = _typed(key, value, declared.type), declared.rule
    if isinstance(converted, int | float) and not isinstance(converted, bool):
        if rule.least is not None and converted < rule.least:
            raise SettingError(f"must be at least {rule.least:g}", key=key)
        if rule.above is not None and converted <= rule.above:
            raise SettingError(f"must be greater than {rule.above:g}", key=key)
        if converted > rule.most:
            raise SettingError(f"must be at most {rule.most:,.0f}", key=key)
    if rule.check is not None:
        try:
            rule.check(converted)
        except ValueError as error:
            message, hint = error.args
            raise SettingError(message, key=key, hint=hint) from None
    return converted


def _typed(key: str, value: Any, hint: Any) -> Any:
    if type(None) in get_args(hint):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        return _literal(key, value, get_args(hint))
    if get_origin(hint) is tuple:
        texts = _texts(key, value)
        return tuple(_typed(key, text, get_args(hint)[0]) for text in texts)
    if hint == Mapping[str, tuple[str, ...]]:
        table = _expect(key, value, dict, "a table")
        return {name: _texts(f"{key}.{name}", texts) for name, texts in table.items()}
    if get_origin(hint) is Mapping:
        flat = flatten(key, _expect(key, value, dict, "a table"))
        return {name: _typed(f"{key}.{name}", one, get_args(hint)[1]) for name, one in flat.items()}
    return _SCALARS[hint](key, value)


def _expect(key: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise SettingError(f"must be {what}, not {type(value).__name__}", key=key)
    return value


def _literal(key: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        shown = ", ".join(repr(choice) for choice in choices)
        raise SettingError(f"must be one of {shown}", key=key)
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise SettingError("must be a list of texts", key=key)
    return tuple(value)


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, str):
        value = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}.get(
            value.lower()
        )
    if not isinstance(value, bool):
        raise SettingError("must be true or false", key=key)
    return value


def _number(key: str, value: Any, kind: type[int] | type[float]) -> int | float:
    if isinstance(value, str):
        try:
            value = kind(value)
        except ValueError:
            value = None
    try:
        number = kind(value) if isinstance(value, int | kind) else math.nan
    except OverflowError:  # a float of a whole number of hundreds of digits
        number = math.inf
    if isinstance(value, bool) or (isinstance(number, float) and not math.isfinite(number)):
        raise SettingError(
            "must be a whole number" if kind is int else "must be a finite number", key=key
        )
    return number


_SCALARS: Final[Mapping[Any, Callable[[str, Any], Any]]] = {
    bool: _boolean,
    int: lambda key, value: _number(key, value, int),
    float: lambda key, value: _number(key, value, float),
    str: lambda key, value: _expect(key, value, str, "a text"),
    Path: lambda key, value: Path(_expect(key, value, str, "a path")),
}


def flatten(name: str, raw: Mapping[str, Any]) -> dict[str, str]:
    """Flatten nested tables (an unquoted dotted key makes them) into dotted property names.

    Raises:
        SettingError: a value is a list, for example, or a property is given in two spellings.
    """
    flat: dict[str, str] = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            inner = {f"{key}.{k}": v for k, v in flatten(f"{name}.{key}", value).items()}
        elif isinstance(value, bool):
            inner = {key: "true" if value else "false"}
        elif isinstance(value, str | int | float):
            inner = {key: str(value)}
        else:
            raise SettingError("must be a text, a number or true/false", key=f"{name}.{key}")
        for twice in flat.keys() & inner.keys():
            raise SettingError("is given twice, in two spellings", key=f"{name}.{twice}")
        flat |= inner
    return flat
