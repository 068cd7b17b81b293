"""The job's settings from a TOML file, and from the environment.

The file is the gateway's, or one of its own with the same tables: ``[kafka]``, ``[registry]`` and
``[consumer]`` are read, and nothing else, so that the job needs to know nothing of the source.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from spark_consumer.errors import SettingsError
from spark_consumer.settings import ConsumerSettings

__all__ = ["find_settings", "load_settings"]

_PREFIX: Final = "PGSLUICE_"
_FREE: Final = ("kafka", "registry")
_NOT_KEYS: Final = ("kafka", "registry_url", "registry", "available_now", "endpos", "jars")
_FILE_VARIABLE: Final = "PGSLUICE_CONFIG"
_USUAL: Final = Path("pgsluice.toml")
_OF_THE_SYSTEM: Final = Path("/etc/pgsluice/pgsluice.toml")


def find_settings(
    given: str | None,
    environment: Mapping[str, str] | None = None,
    *,
    here: Path = _USUAL,
    system: Path = _OF_THE_SYSTEM,
) -> Path:
    """Return the configuration file that is meant, by the gateway's rules.

    Args:
        given: By ``--config``; it and the one that ``PGSLUICE_CONFIG`` names count, whether or not
            they exist.
        environment: The process's own by default.
        here: Looked for next.
        system: Looked for last.

    Raises:
        SettingsError: none is named, and none is in either place.
    """
    named = given or (os.environ if environment is None else environment).get(_FILE_VARIABLE)
    if named:
        return Path(named)
    for path in (here, system):
        if path.is_file():
            return path
    raise SettingsError(
        f"there is no configuration file: neither {here} in this folder nor {system}",
        hint=f"give its path with --config or in {_FILE_VARIABLE}",
    )


def load_settings(path: Path, environment: Mapping[str, str] | None = None) -> ConsumerSettings:
    """Read the file, then the environment: ``PGSLUICE_KAFKA__SASL_PASSWORD`` and its like.

    A variable that ends in ``_FILE`` names a file that has the value. Paths of the warehouse and
    of checkpoints are from the file's folder unless they are URLs.

    Raises:
        SettingsError: the file is missing or not TOML, or a key is unknown, missing or wrong.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    tables: dict[str, dict[str, Any]] = {
        name: dict(raw.get(name, {})) for name in ("kafka", "registry", "consumer")
    }
    _overlay(tables, os.environ if environment is None else environment)
    registry = {key: str(value) for key, value in tables["registry"].items()}
    if "url" not in registry:
        raise SettingsError("[registry] url is missing")
    known = {field.name for field in fields(ConsumerSettings)} - set(_NOT_KEYS)
    consumer = tables["consumer"]
    if unknown := sorted(set(consumer) - known):
        raise SettingsError(f"[consumer] has no key {unknown[0]}", hint=f"it has {sorted(known)}")
    given = {key: _typed(key, value) for key, value in consumer.items()}
    for key in ("warehouse", "checkpoint"):
        folder = str(given.get(key, key))
        given[key] = folder if "://" in folder else str(path.resolve().parent / folder)
    return ConsumerSettings(
        kafka={key: str(value) for key, value in tables["kafka"].items()},
        registry_url=registry.pop("url"),
        registry=registry,
        **{"subscriptions": (), **given},
    )


def _overlay(tables: dict[str, dict[str, Any]], environment: Mapping[str, str]) -> None:
    for variable, value in sorted(environment.items()):
        table, _, key = variable.removeprefix(_PREFIX).lower().partition("__")
        if not variable.startswith(_PREFIX) or not key or table not in tables:
            continue
        if key.endswith("_file"):
            key = key.removesuffix("_file")
            try:
                value = Path(value).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SettingsError(f"{variable} cannot be read: {error.strerror}") from error
        tables[table][key.replace("_", ".") if table in _FREE else key] = value


def _typed(key: str, value: object) -> Any:
    """A value as the settings have it; from the environment all values come as text."""
    kinds = {field.name: str(field.type) for field in fields(ConsumerSettings)}
    kind = kinds[key]
    try:
        if kind.startswith("tuple"):
            names = value.split(",") if isinstance(value, str) else value
            return tuple(str(name).strip() for name in names)  # type: ignore[attr-defined]
        if kind.startswith("Mapping"):
            return {name: str(text) for name, text in value.items()}  # type: ignore[attr-defined]
        if kind.startswith("int"):
            return int(value)  # type: ignore[call-overload]
        return float(value) if kind == "float" else str(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError):
        raise SettingsError(f"[consumer] {key} is not of type {kind}") from None
