"""Reads the configuration: one TOML file, every value also settable from the environment.

``[source] dsn`` is ``PGSLUICE_SOURCE__DSN`` in the environment; with ``_FILE`` behind it, the
variable names a file that holds the value (for secrets). Lists are comma separated there. In the
tables of free properties, ``[kafka]`` and ``[registry]``, dots become underscores:
``PGSLUICE_KAFKA__BOOTSTRAP_SERVERS``. The environment wins over the file.

Relative paths in the file are relative to the file's folder, in the environment to the current one.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, get_type_hints

from gateway.config.groups import each_group
from gateway.config.tables import (
    ConsumerTable,
    CopyTable,
    DefinitionsTable,
    FiltersTable,
    GatewayTable,
    HttpTable,
    LimitsTable,
    LogTable,
    MessagesTable,
    MonitorTable,
    OnErrorTable,
    Settings,
    SourceTable,
    TopicsTable,
    TypesTable,
)
from gateway.config.values import convert, flatten
from gateway.core.errors import ConfigError

__all__ = ["find_settings", "load_settings"]

ENVIRONMENT_PREFIX: Final = "PGSLUICE_"
_FILE_VARIABLE: Final = "PGSLUICE_CONFIG"
_USUAL: Final = Path("pgsluice.toml")
_OF_THE_SYSTEM: Final = Path("/etc/pgsluice/pgsluice.toml")
_FREE_TABLES: Final = frozenset({"kafka", "registry"})
_SECRETS: Final = ("password", "secret", "sasl.oauthbearer.client.secret", "user.info")


def find_settings(
    given: Path | None,
    environment: Mapping[str, str] | None = None,
    *,
    here: Path = _USUAL,
    system: Path = _OF_THE_SYSTEM,
) -> Path:
    """Return the configuration file that is meant.

    Args:
        given: By ``--config``; it and the one that ``PGSLUICE_CONFIG`` names count, whether or not
            they exist.
        environment: The process's own by default.
        here: Looked for next.
        system: Looked for last.

    Raises:
        ConfigError: none is named, and none is in either place.
    """
    if given is not None:
        return given
    if named := (os.environ if environment is None else environment).get(_FILE_VARIABLE):
        return Path(named)
    for path in (here, system):
        if path.is_file():
            return path
    raise ConfigError(
        f"there is no configuration file: neither {here} in this folder nor {system}",
        hint=f"give its path with --config or in {_FILE_VARIABLE}, or let `pgsluice init DSN` "
        "write one",
    )


def load_settings(path: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the configuration file, then the environment.

    Raises:
        ConfigError: the file is missing or not TOML, a key is unknown, missing or of the wrong
            type. The message names the key.
    """
    environment = os.environ if environment is None else environment
    raw = _read_toml(path)
    warnings = tuple(_secrets_in(raw, path))
    _anchor_paths(raw, path.resolve().parent)
    _overlay(raw, environment)
    for table in raw:
        if table not in _TABLES and table not in _FREE_TABLES:
            raise ConfigError(
                "unknown table" + _did_you_mean(table, {*_TABLES, *_FREE_TABLES}), key=f"[{table}]"
            )
    _require(raw, "kafka", "bootstrap.servers", "for example 127.0.0.1:9092")
    _require(raw, "registry", "url", "for example http://127.0.0.1:8081")
    tables = {name: _table(name, kind, raw.get(name, {})) for name, kind in _TABLES.items()}
    tables["source"] = _with_connect_timeout(tables["source"])
    settings = Settings(
        **tables,
        kafka=flatten("kafka", raw["kafka"]),
        registry=flatten("registry", raw["registry"]),
        warnings=warnings,
    )
    _check_ranges(settings)
    return settings


_TABLES: Final[Mapping[str, type]] = {
    "source": SourceTable,
    "definitions": DefinitionsTable,
    "on_error": OnErrorTable,
    "filters": FiltersTable,
    "gateway": GatewayTable,
    "topics": TopicsTable,
    "types": TypesTable,
    "messages": MessagesTable,
    "limits": LimitsTable,
    "copy": CopyTable,
    "http": HttpTable,
    "monitor": MonitorTable,
    "log": LogTable,
    "consumer": ConsumerTable,
}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(
            f"the configuration file {path} does not exist",
            hint="give its path with --config, or let `pgsluice init DSN` write one",
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for name, table in raw.items():
        if not isinstance(table, dict):
            raise ConfigError(
                "a value outside a table", key=name, hint=f"write it below a line like [{name}]"
            )
    return raw


def _anchor_paths(raw: dict[str, Any], folder: Path) -> None:
    """Make the file's relative paths relative to the file; URIs are left as they are."""
    for table, key in (
        ("definitions", "file"),
        ("gateway", "spool_directory"),
        ("consumer", "warehouse"),
        ("consumer", "checkpoint"),
    ):
        value = raw.get(table, {}).get(key)
        if isinstance(value, str) and "://" not in value:
            raw[table][key] = str(folder / value)


def _overlay(raw: dict[str, Any], environment: Mapping[str, str]) -> None:
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or "__" not in variable:
            continue
        table, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if key.endswith("_file") and not _is_key(table, key):
            key, value = key.removesuffix("_file"), _read_secret(variable, value)
        if table in _FREE_TABLES:
            key = key.replace("_", ".")
        elif table not in _TABLES:
            raise ConfigError(f"there is no table [{table}]", key=variable)
        elif not _is_key(table, key):
            known = {f.name for f in fields(_TABLES[table])}
            raise ConfigError(
                f"[{table}] has no such key" + _did_you_mean(key, known), key=variable
            )
        raw.setdefault(table, {})[key] = value


def _is_key(table: str, key: str) -> bool:
    kind = _TABLES.get(table)
    return kind is not None and any(f.name == key for f in fields(kind))


def _read_secret(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", key=variable) from error


def _require(raw: dict[str, Any], table: str, key: str, example: str) -> None:
    if not raw.get(table, {}).get(key):
        variable = f"{ENVIRONMENT_PREFIX}{table.upper()}__{key.upper().replace('.', '_')}"
        raise ConfigError("is required", key=f"{table}.{key}", hint=f"{example}; or set {variable}")


def _table(name: str, kind: type, raw: Mapping[str, Any]) -> Any:
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    if unknown := [key for key in raw if key not in hints]:
        raise ConfigError(
            "unknown key" + _did_you_mean(unknown[0], set(hints)), key=f"{name}.{unknown[0]}"
        )
    values = {key: convert(f"{name}.{key}", value, hints[key]) for key, value in raw.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = next(key for key in hints if key not in values)
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}__{missing.upper()}"
        raise ConfigError(
            "is required", key=f"{name}.{missing}", hint=f"or set {variable}"
        ) from None


_MAY_BE_ZERO: Final = frozenset({"source.receiver_timeout_s"})


def _check_ranges(settings: Settings) -> None:
    for name in ("filters", "limits", "source"):
        table = getattr(settings, name)
        for f in fields(table):
            key, value = f"{name}.{f.name}", getattr(table, f.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if value < 0 or (value == 0 and key not in _MAY_BE_ZERO):
                least = "at least 0" if key in _MAY_BE_ZERO else "greater than 0"
                raise ConfigError(f"must be {least}", key=key)
    for f in fields(settings.copy):
        if getattr(settings.copy, f.name) < (f.name != "rows_per_second"):
            raise ConfigError("must be greater than 0", key=f"copy.{f.name}")
    if settings.topics.partitions < 1:
        raise ConfigError("must be at least 1", key="topics.partitions")
    if settings.http.listen is not None:
        _check_listen(settings.http.listen)
    if settings.filters.dsn is not None:
        _parse_dsn("filters.dsn", settings.filters.dsn)
    _check_slot("source.slot", settings.source.slot)
    for each in each_group(settings):
        _check_slot(f"source.groups.{each.group}", each.source.slot)


def _check_slot(key: str, slot: str) -> None:
    if (
        not slot
        or len(slot) > 50
        or not all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in slot)
    ):
        raise ConfigError(
            "a slot's name has lower case letters, digits and underscores, at most 50 here",
            key=key,
            hint=f'the slot would be "{slot}"' if key != "source.slot" else None,
        )


def _check_listen(listen: str) -> None:
    host, colon, port = listen.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(
            "not host:port", key="http.listen", hint="for example 127.0.0.1:9187, or [::1]:9187"
        )


def _secrets_in(raw: Mapping[str, Any], path: Path) -> list[str]:
    """Say which secrets stand in the file; never show them."""
    found: list[str] = []
    for table in _FREE_TABLES:
        for key in flatten(table, raw.get(table, {})):
            if key.endswith(_SECRETS):
                variable = f"{ENVIRONMENT_PREFIX}{table.upper()}__{key.upper().replace('.', '_')}"
                found.append(f"{path.name}: {table}.{key} is a secret; set {variable}_FILE instead")
    for table in ("source", "filters"):
        dsn = raw.get(table, {}).get("dsn", "")
        if isinstance(dsn, str) and "password" in _parse_dsn(f"{table}.dsn", dsn):
            variable = f"{ENVIRONMENT_PREFIX}{table.upper()}__DSN_FILE"
            found.append(f"{path.name}: {table}.dsn holds a password; use a passfile or {variable}")
    return found


def _with_connect_timeout(source: SourceTable) -> SourceTable:
    """Put it into the connection string, where every connection has to take it from."""
    from psycopg.conninfo import make_conninfo  # here, so that --help need not load psycopg

    given = _parse_dsn("source.dsn", source.dsn)
    timeout = {"connect_timeout": source.connect_timeout_s}
    return replace(source, dsn=make_conninfo(**{**timeout, **given}))


def _parse_dsn(key: str, dsn: str) -> Mapping[str, Any]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return conninfo_to_dict(dsn)
    except ProgrammingError:
        # libpq's own message can quote the text, and with it a password.
        raise ConfigError(
            "not a PostgreSQL connection string",
            key=key,
            hint="for example postgresql://user@127.0.0.1:5432/database",
        ) from None


def _did_you_mean(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
