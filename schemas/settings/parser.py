"""Reader of one TOML file and of the environment, in which every value can be set, too.

``[source] dsn`` is ``PGSLUICE_SOURCE__DSN`` in the environment; with ``_FILE`` after it, the
variable names a file that holds the value (for secrets). Lists are comma separated there. In the
tables of free properties, ``[kafka]`` and ``[registry]``, dots become underscores:
``PGSLUICE_KAFKA__BOOTSTRAP_SERVERS``. The environment wins over the file.

Relative paths in the file, and those by default, are relative to the file's folder; in the
environment they are relative to the current one.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Final

from schemas.settings.fields import (
    PREFIX,
    Declared,
    SettingError,
    declared,
    free_tables,
    tables,
    variable_of,
)
from schemas.settings.tables import Settings
from schemas.settings.text_files import LONGEST_FILE, LONGEST_SECRET, read_text
from schemas.settings.values import convert, flatten

__all__ = ["Parsed", "find_file", "parse"]

_FILE_VARIABLE: Final = "PGSLUICE_CONFIG"
_USUAL: Final = Path("pgsluice.toml")
_OF_THE_SYSTEM: Final = Path("/etc/pgsluice/pgsluice.toml")
_SECRETS: Final = ("password", "secret", "sasl.oauthbearer.client.secret", "user.info")
_TABLES: Final = tables(Settings)
_FREE: Final = free_tables(Settings)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Tables of the configuration.

    Attributes:
        path: Path of the file.
        tables: An object of its class, or the properties, by a table's name.
        file: The values of the file alone, as TOML has them.
        warnings: Lines for the log about doubtful settings.
    """

    path: Path
    tables: Mapping[str, Any]
    file: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...]


def find_file(
    given: Path | None,
    environment: Mapping[str, str],
    *,
    here: Path = _USUAL,
    system: Path = _OF_THE_SYSTEM,
) -> Path:
    """Return the configuration file that is meant.

    Args:
        given: File that ``--config`` names; it and the one that ``PGSLUICE_CONFIG`` names count,
            whether or not they exist.
        environment: Environment of the process.
        here: File that is looked for next.
        system: File that is looked for last.

    Raises:
        SettingError: none is named, and none is in either place.
    """
    if given is not None:
        return given
    if named := environment.get(_FILE_VARIABLE):
        return Path(named)
    for path in (here, system):
        if path.is_file():
            return path
    raise SettingError(
        f"there is no configuration file: neither {here} in this folder nor {system}",
        hint=f"give its path with --config or in {_FILE_VARIABLE}, or let `pgsluice init DSN` "
        "write one",
    )


def parse(
    given: Path | None, environment: Mapping[str, str] | None, *, only: Collection[str] = ()
) -> Parsed:
    """Read the configuration file, then the environment.

    Args:
        given: The file; None for the one that `find_file` finds.
        environment: The process's own where None.
        only: Names of the tables that are wanted; of others only the names are checked. By default
            all are.

    Raises:
        SettingError: the file is missing or not TOML; a key is unknown, missing, of the wrong type,
            out of range or given twice. Names the key.
    """
    environment = os.environ if environment is None else environment
    path = find_file(given, environment)
    file = _read_toml(path)
    wanted = only or (*_TABLES, *_FREE)
    problems: list[SettingError] = []
    for table in file:
        with _noted(problems):
            _check_known("table", table, {*_TABLES, *_FREE}, f"[{table}]")
    raw: dict[str, dict[str, Any]] = {
        name: flatten(name, file.get(name, {})) if name in _FREE else dict(file.get(name, {}))
        for name in wanted
    }
    warnings = tuple(
        f"{path.name}: {table}.{key} is a secret; set {variable_of(table, key)}_FILE instead"
        for table in _FREE
        for key in raw.get(table, {})
        if key.endswith(_SECRETS)
    )
    _anchor_paths(raw, path.resolve().parent)
    _overlay(raw, environment)
    parsed = {name: _table(name, raw[name], problems) for name in wanted}
    _refuse(problems)
    return Parsed(path, parsed, file, warnings)


@contextmanager
def _noted(problems: list[SettingError]) -> Iterator[None]:
    """Note a wrong setting instead of raising it: a person mends all of them at once."""
    try:
        yield
    except SettingError as error:
        problems.append(error)


def _refuse(problems: Sequence[SettingError]) -> None:
    """Raise the wrong settings, one of them as it is, several as one error that names each."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = [f"  {error}" + (f" ({error.hint})" if error.hint else "") for error in problems]
        raise SettingError("\n".join((f"{len(problems)} settings are wrong:", *lines)))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        raw = tomllib.loads(read_text(path, LONGEST_FILE))
        with_nul = [name for name, table in raw.items() if _has_nul({name: table})]
    except FileNotFoundError:
        raise SettingError(
            f"the configuration file {path} does not exist",
            hint="give its path with --config, or let `pgsluice init DSN` write one",
        ) from None
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror or error}") from error
    except RecursionError:
        raise SettingError(f"{path} is nested too deeply") from None
    except ValueError as error:  # that of TOML, of UTF-8, and of a number with too many digits
        raise SettingError(f"{path} is not TOML: {error}") from error
    for name, table in raw.items():
        if name in with_nul:
            raise SettingError("has a text with a null character", key=f"[{name}]")
        if not isinstance(table, dict):
            raise SettingError(
                "a value outside a table", key=name, hint=f"write it below a line like [{name}]"
            )
    return raw


def _anchor_paths(raw: Mapping[str, dict[str, Any]], folder: Path) -> None:
    """Make the file's relative paths, and those by default, relative to the file.

    URIs are left as they are.
    """
    for table, values in raw.items():
        for key, known in _declared(table).items():
            value = values.get(key, known.default)
            if known.rule.path and isinstance(value, str) and "://" not in value:
                values[key] = str(folder / value)


def _overlay(raw: Mapping[str, dict[str, Any]], environment: Mapping[str, str]) -> None:
    """Put the environment's values into the wanted tables."""
    set_by: dict[tuple[str, str], str] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or "__" not in variable:
            continue
        table, _, key = variable.removeprefix(PREFIX).lower().partition("__")
        _check_known("table", table, {*_TABLES, *_FREE}, variable)
        if table not in raw:
            continue
        if key.endswith("_file") and key not in _declared(table):
            key, value = key.removesuffix("_file"), _read_secret(variable, value)
        if table in _FREE:
            key = key.replace("_", ".")
        else:
            _check_known("key", key, _declared(table), variable)
        if (table, key) in set_by:
            raise SettingError(f"conflicts with {set_by[table, key]}: set one", key=variable)
        set_by[table, key] = variable
        raw[table][key] = value


def _read_secret(variable: str, path: str) -> str:
    try:
        value = read_text(Path(path), LONGEST_SECRET).rstrip("\r\n")
    except OSError as error:
        why = f"the file cannot be read: {error.strerror or error}"
        raise SettingError(why, key=variable) from error
    except ValueError:  # which can quote the secret
        raise SettingError("the file is not text in UTF-8", key=variable) from None
    if "\0" in value:
        raise SettingError("the file has a null character", key=variable)
    return value


def _has_nul(value: object) -> bool:
    """Whether a value has a text that no connection, path or header can have."""
    if isinstance(value, dict):
        return any("\0" in key or _has_nul(one) for key, one in value.items())
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _table(name: str, raw: Mapping[str, Any], problems: list[SettingError]) -> Any:
    """Return a table, or None if one of its values is wrong, which is added to `problems`."""
    if name in _FREE:
        free = _FREE[name]
        if not raw.get(free.required):
            problems.append(_required(name, free.required, f"for example {free.example}; or set"))
        return raw
    known, values, before = _declared(name), {}, len(problems)
    for key, value in raw.items():
        with _noted(problems):
            _check_known("key", key, known, f"{name}.{key}")
            values[key] = convert(f"{name}.{key}", value, known[key])
    problems += (
        _required(name, key, "or set")
        for key, one in known.items()
        if one.default is MISSING and key not in raw
    )
    return None if len(problems) > before else _TABLES[name](**values)


def _declared(table: str) -> Mapping[str, Declared]:
    return {} if table in _FREE else declared(_TABLES[table])


def _required(table: str, key: str, hint: str) -> SettingError:
    return SettingError(
        "is required", key=f"{table}.{key}", hint=f"{hint} {variable_of(table, key)}"
    )


def _check_known(what: str, name: str, known: Collection[str], key: str) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
        raise SettingError(f"unknown {what}; {hint}", key=key)
