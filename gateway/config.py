"""The configuration file: one TOML file, every value also settable from the environment.

``[source] dsn`` is ``PGSLUICE_SOURCE__DSN`` in the environment; with ``_FILE`` behind it, the
variable names a file that holds the value (for secrets). Lists are comma separated there. In the
tables of free properties, ``[kafka]`` and ``[registry]``, dots become underscores:
``PGSLUICE_KAFKA__BOOTSTRAP_SERVERS``. The environment wins over the file.

Relative paths in the file are relative to the file's folder, in the environment to the current one.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gateway.errors import ConfigError

__all__ = [
    "ConsumerTable",
    "CopyTable",
    "DefinitionsTable",
    "FiltersTable",
    "GatewayTable",
    "LimitsTable",
    "MessagesTable",
    "Settings",
    "SourceTable",
    "TopicsTable",
    "TypesTable",
    "load_settings",
]

ENVIRONMENT_PREFIX: Final = "PGSLUICE_"
_FREE_TABLES: Final = frozenset({"kafka", "registry"})
_SECRETS: Final = ("password", "secret", "sasl.oauthbearer.client.secret", "user.info")


@dataclass(frozen=True, slots=True)
class SourceTable:
    """``[source]``: the PostgreSQL server.

    Attributes:
        dsn: libpq connection string or URI, with `connect_timeout_s` when it has none of its own.
        slot: Name of the replication slot; also the prefix of the gateway's own publications.
        connect_timeout_s: For each connection, host and address.
        receiver_timeout_s: A stream on which nothing has come for so long is given up; the server
            is asked for a word at half of it. 0: never. None: the server's wal_sender_timeout.
        on_lost_slot: What a start does when changes since the watermark cannot be read any more
            (slot dropped, invalidated or moved): ``stop``, or ``resync`` with a new slot, which
            copies all tables anew.
    """

    dsn: str
    slot: str = "pgsluice"
    connect_timeout_s: int = 10
    receiver_timeout_s: float | None = None
    on_lost_slot: Literal["stop", "resync"] = "stop"


@dataclass(frozen=True, slots=True)
class DefinitionsTable:
    """``[definitions]``: the publications and subscriptions.

    Attributes:
        on_filter_error: What becomes of a row on which a row filter raises (division by zero and
            the like): ``stop`` as PostgreSQL does, or ``quarantine`` it in the error topic.
        watch_interval_s: How often the source's catalog is looked at for altered publications and
            for tables and partitions made later; 0: only at a reload.
    """

    file: Path
    missing_identity: Literal["refuse", "insert_only"] = "refuse"
    on_filter_error: Literal["stop", "quarantine"] = "stop"
    watch_interval_s: float = 5.0


@dataclass(frozen=True, slots=True)
class FiltersTable:
    """``[filters]``: who evaluates row filters that the gateway does not evaluate itself.

    Attributes:
        server: ``on``: a server; ``off``: nobody, they are refused.
        dsn: Of that server, None: the source. Another one must be of the same major version, with
            the same collations and time zones; a standby is.
        timeout_s: How long it may work on one statement.
    """

    server: Literal["on", "off"] = "on"
    dsn: str | None = None
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class GatewayTable:
    """``[gateway]``: this daemon. `spool_directory` takes what does not fit into memory."""

    name: str = "pgsluice"
    spool_directory: Path | None = None


@dataclass(frozen=True, slots=True)
class TopicsTable:
    """``[topics]``: how topics are made.

    Attributes:
        partitions: Of a table's topic when it is created.
        replication_factor: -1 leaves it to the broker.
        names: Overrides, from ``subscription.schema.table`` to the topic's name.
        tombstones: Follow each ``d`` record by a tombstone, where there is a key.
        truncate: ``publish``, or ``skip`` to leave ``t`` records of the stream out.
        config: Further topic settings at creation.
    """

    partitions: int = 1
    replication_factor: int = -1
    names: Mapping[str, str] = field(default_factory=dict)
    tombstones: bool = True
    truncate: Literal["publish", "skip"] = "publish"
    progress: str = "pgsluice.progress"
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypesTable:
    """``[types]``: choices in the mapping to Avro. See docs/envelope.md."""

    numeric: Literal["decimal", "string"] = "decimal"


@dataclass(frozen=True, slots=True)
class MessagesTable:
    """``[messages]``: which ``pg_logical_emit_message`` prefixes are published."""

    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """``[limits]``: memory, time and the size of group commits.

    Attributes:
        max_buffer_bytes: Undecoded bytes of open transactions kept in memory; more goes to disk.
        max_batch_records: A Kafka transaction is committed when it has this many records,
            max_batch_bytes: or bytes,
            max_batch_ms: or is this old; and at once when the stream has nothing more to give.
        progress_interval_s: At most one PROGRESS marker per subscription in this time.
        feedback_interval_s: A standby status update at least this often.
        shutdown_timeout_s: What is complete is committed within this time after SIGTERM.
        retry_for_s: Give up with exit code 75 when nothing has worked for this long.
    """

    max_buffer_bytes: int = 64 << 20
    max_batch_records: int = 10_000
    max_batch_bytes: int = 8 << 20
    max_batch_ms: int = 200
    progress_interval_s: float = 1.0
    feedback_interval_s: float = 5.0
    shutdown_timeout_s: float = 10.0
    retry_for_s: float = 300.0


@dataclass(frozen=True, slots=True)
class CopyTable:
    """``[copy]``: how tables are copied while the stream goes on.

    Attributes:
        parallel: Tables copied at the same time, each with a connection of its own.
        chunk_rows: Rows of a chunk at most; what the stream waits for is one chunk.
        chunk_bytes: The same in bytes, as far as the rows of the chunk before tell.
        rows_per_second: Of all tables together; 0: as fast as it goes.
    """

    parallel: int = 2
    chunk_rows: int = 5_000
    chunk_bytes: int = 4 << 20
    rows_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerTable:
    """``[consumer]``: the Spark job.

    Attributes:
        warehouse: Delta tables stand at ``<warehouse>/<subscription>/<schema>/<table>``.
        checkpoint: Spark's, one folder below it per subscription.
        trigger_interval_s: Time between micro-batches.
        max_batch_records: Records that are applied together at most.
        parallel_tables: How many tables are written side by side.
        kafka_java: Properties of Spark's Kafka client under their Java names.
        spark: Further Spark properties for a session that `pgsluice consume` makes itself.
    """

    warehouse: str = "warehouse"
    checkpoint: str = "checkpoint"
    trigger_interval_s: float = 5.0
    max_batch_records: int = 1_000_000
    parallel_tables: int = 2
    kafka_java: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """All of the configuration.

    Attributes:
        kafka: librdkafka properties.
        registry: ``url`` and further properties of Confluent's registry client.
        warnings: Lines for the log about doubtful settings.
    """

    source: SourceTable
    definitions: DefinitionsTable
    kafka: Mapping[str, str]
    registry: Mapping[str, str]
    filters: FiltersTable = FiltersTable()
    gateway: GatewayTable = GatewayTable()
    topics: TopicsTable = field(default_factory=TopicsTable)
    types: TypesTable = TypesTable()
    messages: MessagesTable = MessagesTable()
    limits: LimitsTable = LimitsTable()
    copy: CopyTable = CopyTable()
    consumer: ConsumerTable = field(default_factory=ConsumerTable)
    warnings: tuple[str, ...] = ()


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
        kafka=_properties("kafka", raw["kafka"]),
        registry=_properties("registry", raw["registry"]),
        warnings=warnings,
    )
    _check_ranges(settings)
    return settings


_TABLES: Final[Mapping[str, type]] = {
    "source": SourceTable,
    "definitions": DefinitionsTable,
    "filters": FiltersTable,
    "gateway": GatewayTable,
    "topics": TopicsTable,
    "types": TypesTable,
    "messages": MessagesTable,
    "limits": LimitsTable,
    "copy": CopyTable,
    "consumer": ConsumerTable,
}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(
            f"the configuration file {path} does not exist",
            hint="give its path with --config; docs/operations.md has one to start from",
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
    values = {key: _convert(f"{name}.{key}", value, hints[key]) for key, value in raw.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = next(key for key in hints if key not in values)
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}__{missing.upper()}"
        raise ConfigError(
            "is required", key=f"{name}.{missing}", hint=f"or set {variable}"
        ) from None


def _convert(key: str, value: Any, hint: Any) -> Any:
    """Turn a TOML value, or the text of an environment variable, into the field's type."""
    if get_origin(hint) is Literal:
        return _literal(key, value, get_args(hint))
    if hint in (Path, Path | None):
        return Path(_expect(key, value, str, "a path"))
    if hint in (str, str | None):
        return _expect(key, value, str, "a text")
    if get_origin(hint) is tuple:
        return _texts(key, value)
    if get_origin(hint) is Mapping:
        return _properties(key, _expect(key, value, dict, "a table"))
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
_MAY_BE_ZERO: Final = frozenset({"source.receiver_timeout_s"})


def _properties(name: str, raw: Mapping[str, Any]) -> dict[str, str]:
    """Flatten nested tables (an unquoted dotted key makes them) into dotted property names."""
    flat: dict[str, str] = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{k}": v for k, v in _properties(f"{name}.{key}", value).items()}
        elif isinstance(value, bool):
            flat[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            flat[key] = str(value)
        else:
            raise ConfigError("must be a text, a number or true/false", key=f"{name}.{key}")
    return flat


def _check_ranges(settings: Settings) -> None:
    for name in ("filters", "limits", "source"):
        table = getattr(settings, name)
        for f in fields(table):
            key, value = f"{name}.{f.name}", getattr(table, f.name)
            if not isinstance(value, int | float):
                continue
            if value < 0 or (value == 0 and key not in _MAY_BE_ZERO):
                least = "at least 0" if key in _MAY_BE_ZERO else "greater than 0"
                raise ConfigError(f"must be {least}", key=key)
    for f in fields(settings.copy):
        if getattr(settings.copy, f.name) < (f.name != "rows_per_second"):
            raise ConfigError("must be greater than 0", key=f"copy.{f.name}")
    if settings.topics.partitions < 1:
        raise ConfigError("must be at least 1", key="topics.partitions")
    if settings.filters.dsn is not None:
        _parse_dsn("filters.dsn", settings.filters.dsn)
    slot = settings.source.slot
    if (
        not slot
        or len(slot) > 50
        or not all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in slot)
    ):
        raise ConfigError(
            "a slot's name has lower case letters, digits and underscores, at most 50 here",
            key="source.slot",
        )


def _secrets_in(raw: Mapping[str, Any], path: Path) -> list[str]:
    """Say which secrets stand in the file; never show them."""
    found: list[str] = []
    for table in _FREE_TABLES:
        for key in _properties(table, raw.get(table, {})):
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
    given = _parse_dsn("source.dsn", source.dsn)
    timeout = {"connect_timeout": source.connect_timeout_s}
    return replace(source, dsn=make_conninfo(**{**timeout, **given}))


def _parse_dsn(key: str, dsn: str) -> Mapping[str, Any]:
    try:
        return conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # libpq's own message can quote the text, and with it a password.
        raise ConfigError(
            "not a PostgreSQL connection string",
            key=key,
            hint="for example postgresql://user@127.0.0.1:5432/database",
        ) from None


def _did_you_mean(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
