"""The gateway's share of reading the configuration: connection strings, and the slots of groups.

Everything else about the file and the environment is in `schemas.settings`, which the Spark job
reads with, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.config.groups import each_group
from gateway.core.dsn import Dsn
from gateway.core.errors import ConfigError
from schemas.settings import parser
from schemas.settings.fields import SettingError, variable_of
from schemas.settings.tables import FiltersTable, Settings, SourceTable

__all__ = ["load_settings"]


def load_settings(
    given: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read the configuration file, by default the usual one, then the environment.

    Raises:
        ConfigError: as `schemas.settings.parser.parse` says, or a connection string or a slot's
            name cannot work. The message names the key.
    """
    try:
        parsed = parser.parse(given, environment)
    except SettingError as error:
        raise ConfigError(error.message, key=error.key, hint=error.hint) from error
    warnings = list(parsed.warnings)
    for table in ("source", "filters"):
        dsn = parsed.file.get(table, {}).get("dsn", "")
        if "password" in _parse_dsn(f"{table}.dsn", dsn):
            variable = f"{variable_of(table, 'dsn')}_FILE"
            warnings.append(
                f"{parsed.path.name}: {table}.dsn holds a password; use a passfile or {variable}"
            )
    if "hash_key" in parsed.file.get("columns", {}):
        variable = f"{variable_of('columns', 'hash_key')}_FILE"
        warnings.append(f"{parsed.path.name}: columns.hash_key is a secret; set {variable} instead")
    tables = {
        **parsed.tables,
        "source": _with_connect_timeout(parsed.tables["source"]),
        "filters": _with_command(parsed.tables["filters"]),
    }
    settings = Settings(**tables, warnings=tuple(warnings))
    _check_slot("source.slot", settings.source.slot)
    for each in each_group(settings):
        _check_slot(f"source.groups.{each.group}", each.source.slot)
    return settings


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


def _with_connect_timeout(source: SourceTable) -> SourceTable:
    """Put it and the password command where every connection finds them."""
    from psycopg.conninfo import make_conninfo  # here, so that --help need not load psycopg

    given = _parse_dsn("source.dsn", source.dsn)
    _check_one_password("source", given, source.password_command)
    timeout = {"connect_timeout": source.connect_timeout_s}
    dsn = make_conninfo(**{**timeout, **given})
    return replace(source, dsn=Dsn(dsn, source.password_command))


def _with_command(filters: FiltersTable) -> FiltersTable:
    if filters.dsn is None:
        if filters.password_command is not None:
            raise ConfigError(
                "without filters.dsn it is never used",
                key="filters.password_command",
                hint="the source evaluates the filters, with source.password_command",
            )
        return filters
    _check_one_password("filters", _parse_dsn("filters.dsn", filters.dsn), filters.password_command)
    return replace(filters, dsn=Dsn(filters.dsn, filters.password_command))


def _check_one_password(table: str, given: Mapping[str, Any], command: str | None) -> None:
    if command is not None and "password" in given:
        raise ConfigError(
            f"{table}.dsn has a password, too",
            key=f"{table}.password_command",
            hint="remove one of the two",
        )


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
