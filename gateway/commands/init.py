"""``pgsluice init``: a commented configuration and definitions, from what a database has."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gateway.core.display import shown
from gateway.core.errors import ConfigError, FatalError
from gateway.core.identifiers import one_line
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Plan, Table
from gateway.definitions.sql.parser import parse_definitions
from gateway.source.catalog.catalog import read_catalog
from gateway.source.catalog.tables import estimated_rows
from gateway.source.provisioning.event_trigger import INSTALL
from gateway.source.provisioning.truncate_trigger import INSTALL as DELETE_ROWS
from gateway.source.provisioning.truncate_trigger import trigger_sql
from gateway.source.session.connection import ServerFacts, connect, server_facts

__all__ = ["init", "quoted"]

_NOT_A_NAME: Final = re.compile(r"[^a-z0-9_]+")
_EVERYTHING: Final = (
    "CREATE PUBLICATION everything FOR ALL TABLES;"
    "CREATE SUBSCRIPTION everything CONNECTION '' PUBLICATION everything;"
)
_SIZES: Final = """
SELECT c.oid, pg_catalog.pg_size_pretty(
    CASE WHEN c.relkind = 'p' THEN (
        SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(t.relid)), 0)::bigint
        FROM pg_catalog.pg_partition_tree(c.oid) AS t WHERE t.isleaf)
    ELSE pg_catalog.pg_total_relation_size(c.oid) END)
FROM pg_catalog.pg_class AS c WHERE c.oid = ANY (%s)
"""
_HEAD: Final = """\
-- What pgsluice publishes of database {database}, in PostgreSQL's own statements.
--
-- A row filter follows its table: public.t WHERE (region = 'NSW'). If updates and deletes are
-- published, it can only use columns of the key; after ALTER TABLE ... REPLICA IDENTITY FULL, any
-- column. Each subscription has its own topics: <subscription>.<schema>.<table>. A subscription can
-- also name publications that exist in the database.
"""
_TRIGGER_HEAD: Final = """\
-- Optional, once, by a superuser in the source database (psql -f event-trigger.sql), PostgreSQL 15
-- and later: ALTER PUBLICATION then takes effect at its LSN, however far the
-- gateway lags. A gateway that is no superuser has to be let read the key afterwards:
--   GRANT USAGE ON SCHEMA pgsluice TO replicator;
--   GRANT SELECT ON pgsluice.key TO replicator;
-- docs/event-triggers.md.

"""
_TRUNCATES_HEAD: Final = """\
-- Optional, once, by the owner of the tables (psql -f truncate-triggers.sql), for subscriptions
-- whose topics have no truncates ([envelope]): a TRUNCATE then deletes its rows first, which takes
-- as long and writes as much WAL as a DELETE of all rows. Leave out tables that no such
-- subscription has.
-- docs/debezium.md, "Truncates as deletes".

BEGIN;
"""
_SECRETS: Final = ("password", "sslpassword")
_UNLOGGED: Final = """
SELECT n.nspname || '.' || c.relname
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'u' AND c.oid >= 16384 ORDER BY 1
"""


def init(
    dsn: str,
    folder: Path,
    *,
    subscription: str | None = None,
    kafka: str = "localhost:9092",
    registry: str = "http://localhost:8081",
) -> int:
    """Write ``pgsluice.toml`` and ``replication.sql``; nothing is changed on the server.

    And ``event-trigger.sql``, for a superuser who wants alterations of publications to count at
    their place in the stream, and ``truncate-triggers.sql``, for consumers without truncates.

    Tables that would be refused are in the definitions as comments, with PostgreSQL's reason.

    Args:
        dsn: DSN of the database.
        folder: Folder for the files, which must not exist.
        subscription: Name of the subscription, the first part of every topic; None for the
            database's.
        kafka: ``bootstrap.servers``.
        registry: URL of the schema registry.

    Raises:
        ConfigError: a file is there already, or `dsn` does not read.
        FatalError: the server refuses.
        TransientError: the server cannot be reached.
    """
    settings, definitions = folder / "pgsluice.toml", folder / "replication.sql"
    trigger, truncates = folder / "event-trigger.sql", folder / "truncate-triggers.sql"
    for path in (settings, definitions, trigger, truncates):
        if path.exists():
            raise ConfigError(f"{path} exists", hint="remove it, or name another --folder")
    with connect(dsn) as connection:
        facts = server_facts(connection)
        name = subscription or _name_of(facts.database)
        everything = _Everything.read(connection)
        text = _definitions(connection, facts, name, everything)
        _check(connection, text)
    written = _settings(dsn, name, kafka, registry)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = (
            *((settings, written), (definitions, text), (trigger, _TRIGGER_HEAD + INSTALL)),
            (truncates, _truncate_triggers(everything)),
        )
        for path, content in files:
            # Neither a file that another user has put there, nor the target of their link.
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
            print(f"{path} written")
    except OSError as error:
        raise FatalError(f"{folder} cannot be written: {error.strerror}") from error
    if _has_secret(dsn):
        print("the password of the connection string is in none: the first says where it goes")
        print("on a command line every user of this machine can read it: a passfile hides it")
    named = "" if settings == Path("pgsluice.toml") else f" --config {settings}"
    print(f"optional: {trigger.name}, by which ALTER PUBLICATION takes effect at its LSN")
    print(f"optional: {truncates.name}, for subscriptions whose topics have no truncates")
    print(f"next: set [kafka] and [registry] in {settings}, then: pgsluice check{named}")
    sys.stdout.flush()
    return 0


def _name_of(database: str) -> str:
    name = _NOT_A_NAME.sub("_", database.lower()).strip("_")
    return name if name and not name[0].isdigit() else f"db_{name}"


def _has_secret(dsn: str) -> bool:
    return any(conninfo_to_dict(dsn).get(name) for name in _SECRETS)


# The definitions


@dataclass(frozen=True, slots=True)
class _Everything:
    """Tables that a database has.

    Attributes:
        tables: Ordinary tables and roots of trees that have leaves, by OID.
        refused: Why some of them cannot be published, by OID.
        members: Tables and partitions of all kinds, by OID.
    """

    tables: Mapping[int, Table]
    refused: Mapping[int, str]
    members: Mapping[int, Table]

    @classmethod
    def read(cls, connection: psycopg.Connection) -> Self:
        everything = parse_definitions(_EVERYTHING)
        catalog = read_catalog(connection, everything)
        tables = {
            oid: table
            for oid, table in catalog.tables.items()
            if not table.ancestors and (table.kind == "r" or table.leaves)
        }
        plan = make_plan(
            everything,
            catalog,
            prefix="pgsluice",
            missing_identity="refuse",
            holdable=lambda subscription, table: True,
        )
        return cls(tables, _refused(plan, catalog.tables), catalog.tables)


def _truncate_triggers(everything: _Everything) -> str:
    """Return the triggers of what can be published: trees as a whole, and by each partition."""
    lines = [_TRUNCATES_HEAD + DELETE_ROWS]
    for oid, table in everything.tables.items():
        if oid in everything.refused:
            continue
        partitions = [one for one in everything.members.values() if oid in one.ancestors]
        lines += [trigger_sql(quoted(one)) for one in (table, *partitions)]
    return "\n".join([*lines, "COMMIT;", ""])


def _definitions(
    connection: psycopg.Connection, facts: ServerFacts, name: str, everything: _Everything
) -> str:
    tables, refused = everything.tables, everything.refused
    sizes = _sizes(connection, tables)
    lines = list(_lines(connection, facts, name, tables, refused, sizes))
    lines += [
        f"-- {_in_comment(table)}: unlogged, so its changes are not in the WAL"
        for (table,) in connection.execute(_UNLOGGED)
    ]
    return "\n".join(lines) + "\n"


def _refused(plan: Plan, tables: Mapping[int, Table]) -> dict[int, str]:
    """Return why a table cannot be published, by OID; a tree for the first of its leaves."""
    refused: dict[int, str] = {}
    for held in plan.held:
        table = tables[held.oid]
        root = table.ancestors[-1] if table.ancestors else table.oid
        refused.setdefault(root, held.reason)
    return refused


def _sizes(connection: psycopg.Connection, tables: Mapping[int, Table]) -> dict[int, str]:
    estimates = estimated_rows(connection)
    found = {}
    for oid, size in connection.execute(_SIZES, [list(tables)]):
        table = tables[oid]
        rows = estimates.get((table.schema, table.name))
        about = "rows not counted yet" if rows is None else f"about {rows} rows"
        found[oid] = f"{about}, {size}"
    return found


def _lines(
    connection: psycopg.Connection,
    facts: ServerFacts,
    name: str,
    tables: Mapping[int, Table],
    refused: Mapping[int, str],
    sizes: Mapping[int, str],
) -> Iterator[str]:
    yield _HEAD.format(database=_in_comment(facts.database))
    publication = sql.Identifier(f"{name}_tables").as_string(connection)
    subscription = sql.Identifier(name).as_string(connection)
    accepted = [table for oid, table in tables.items() if oid not in refused]
    if accepted:
        yield f"CREATE PUBLICATION {publication} FOR TABLE"
        for place, table in enumerate(accepted):
            end = "," if place + 1 < len(accepted) else ""
            about = f"{_in_comment(_key(table))}; {sizes[table.oid]}"
            yield f"    {quoted(table)}{end}  -- {about}"
        yield "WITH (publish_via_partition_root = true);"
        yield ""
        yield "-- CONNECTION is not used: the gateway reads the database of [source] dsn."
        yield f"CREATE SUBSCRIPTION {subscription} CONNECTION '' PUBLICATION {publication};"
    else:
        yield "-- No table can be published as it is."
    if refused:
        yield ""
        yield "-- Left out, because PostgreSQL would refuse writes to them:"
    for oid, reason in refused.items():
        table, name = tables[oid], _in_comment(quoted(tables[oid]))
        yield f"-- {name}; {sizes[oid]}"
        yield f"--     {_in_comment(reason)}"
        if not table.identity:
            yield f"--     ALTER TABLE {name} ADD PRIMARY KEY (...); or"
            yield f"--     ALTER TABLE {name} REPLICA IDENTITY FULL;"


def _in_comment(text: str) -> str:
    """Return text without line breaks, which would end a comment; names may have them."""
    return shown(text)


def quoted(table: Table) -> str:
    """Return a table's name as the definitions have it, in one line."""
    return one_line(sql.Identifier(table.schema, table.name).as_string(None))


def _key(table: Table) -> str:
    if table.primary_key:
        return f"key ({', '.join(table.primary_key)})"
    if table.identity and len(table.identity) < len(table.columns):
        return f"replica identity ({', '.join(table.identity)})"
    return "no key; every column is the replica identity"


def _check(connection: psycopg.Connection, text: str) -> None:
    """Parse the generated definitions as `check` does; they must be valid."""
    definitions = parse_definitions(text)
    if definitions.subscriptions:
        catalog = read_catalog(connection, definitions)
        make_plan(definitions, catalog, prefix="pgsluice", missing_identity="refuse")


# The settings


def _settings(dsn: str, name: str, kafka: str, registry: str) -> str:
    parameters = {k: v for k, v in conninfo_to_dict(dsn).items() if k not in _SECRETS}
    shown = make_conninfo("", **parameters)
    note = ""
    if _has_secret(dsn):
        note = """
# The password does not belong here. Put the whole connection string into a file that only the
# daemon can read, and its name into PGSLUICE_SOURCE__DSN_FILE; or use ~/.pgpass."""
    return f"""\
# Configuration of pgsluice. Any value can be set in the environment instead, which wins: [source]
# dsn is PGSLUICE_SOURCE__DSN; with _FILE appended, the variable names a file.
# These are the settings that most people need; docs/operations.md has them all.

[source]{note}
dsn = {_toml(shown)}
# The replication slot; also the prefix of the gateway's own publications. One daemon per slot.
slot = {_toml(f"pgsluice_{_name_of(name)}"[:50])}

[definitions]
file = "replication.sql"
# What to do about a table without a key: "refuse" to start, or "insert_only".
# missing_identity = "refuse"

[gateway]
# The name in source.name of every record.
name = {_toml(name)}

[kafka]
# Any property of librdkafka; secrets go into the environment (PGSLUICE_KAFKA__SASL_PASSWORD_FILE).
"bootstrap.servers" = {_toml(kafka)}

[registry]
url = {_toml(registry)}

[topics]
# -1: the broker's default.
# replication_factor = -1

[http]
# Metrics for Prometheus, /healthz, /readyz and /status.
listen = "127.0.0.1:9187"

[consumer]
# The Spark job: Delta tables at <warehouse>/<subscription>/<schema>/<table>.
warehouse = "warehouse"
checkpoint = "checkpoint"
"""


def _toml(text: str) -> str:
    escaped = "".join(
        f"\\u{ord(c):04X}" if ord(c) < 32 else f"\\{c}" if c in '"\\' else c for c in text
    )
    return f'"{escaped}"'
