"""Conversion of CREATE PUBLICATION and CREATE SUBSCRIPTION statements to `Definitions`.

Pure: PostgreSQL's grammar parses, and nothing is looked up. Missing tables and publications, and
filters that are not allowed, are detected when the definitions are combined with the catalog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from postgast import pg_query_pb2 as pb

from gateway.definitions.model import (
    Definitions,
    PublicationDefinition,
    SubscriptionDefinition,
    TableClause,
)
from gateway.definitions.sql.options import (
    get_boolean,
    get_generated_columns,
    get_operations,
    get_origin,
    get_streaming_mode,
)
from gateway.definitions.sql.source import SourceText, strip_locations

__all__ = ["parse_definitions"]

_Reader = Callable[[str, Any], Any]

_PUBLICATION_OPTIONS: Final[dict[str, _Reader]] = {
    "publish": get_operations,
    "publish_via_partition_root": get_boolean,
    "publish_generated_columns": get_generated_columns,
}

_PUBLICATION_FIELDS: Final = {
    "publish": "operations",
    "publish_via_partition_root": "via_root",
    "publish_generated_columns": "generated",
}

_SUBSCRIPTION_OPTIONS: Final[dict[str, _Reader]] = {
    "copy_data": get_boolean,
    "origin": get_origin,
    "binary": get_boolean,
    "streaming": get_streaming_mode,
    "two_phase": get_boolean,
}

_REFUSED_OPTIONS: Final = {
    "connect": "the gateway always connects; its connection is [source].dsn",
    "create_slot": "all subscriptions share the gateway's one slot, which it creates itself",
    "slot_name": "all subscriptions share the gateway's one slot, named by [source].slot",
    "enabled": "every subscription in the file is served; leave one out to disable it",
    "synchronous_commit": "nothing is acknowledged before Kafka has committed it",
    "disable_on_error": "the gateway stops at an error; nothing is skipped",
    "password_required": "the connection is [source].dsn, for all subscriptions",
    "run_as_owner": "changes go to Kafka, no table owner is involved",
    "failover": "it is a property of the slot, which all subscriptions share",
    "retain_dead_tuples": "conflicts are not detected",
    "max_retention_duration": "conflicts are not detected",
    "wal_receiver_timeout": "one stream serves all subscriptions: [source] receiver_timeout_s",
}


def parse_definitions(text: str) -> Definitions:
    """Parse the definitions file.

    Names are unquoted and case folded, filters are exact slices of `text`, positions count
    characters. A publication named by a subscription need not be defined in the text.

    Raises:
        DefinitionError: a syntax error, in PostgreSQL's words; another kind of statement; an option
            that is unknown, invalid or not supported; a name that is defined twice.

    Source: gram.y; parse_publication_options in publicationcmds.c, parse_subscription_options and
    check_duplicates_in_publist in subscriptioncmds.c.
    """
    source = SourceText(text)
    publications: dict[str, PublicationDefinition] = {}
    subscriptions: dict[str, SubscriptionDefinition] = {}
    digest = hashlib.sha256()
    for raw in source.tree.stmts:
        position = source.first_token(raw.stmt_location)
        match raw.stmt.WhichOneof("node"):
            case "create_publication_stmt":
                statement = raw.stmt.create_publication_stmt
                name = statement.pubname
                if name in publications:
                    raise source.error(f'publication "{name}" already exists', position)
                publications[name] = _publication(source, statement, position)
            case "create_subscription_stmt":
                statement = raw.stmt.create_subscription_stmt
                name = statement.subname
                if name in subscriptions:
                    raise source.error(f'subscription "{name}" already exists', position)
                subscriptions[name] = _subscription(source, statement, position)
                statement.ClearField("conninfo")  # not used, and may contain a password
            case _:
                raise source.error(
                    "only CREATE PUBLICATION and CREATE SUBSCRIPTION are allowed here", position
                )
        strip_locations(raw.stmt)
        digest.update(raw.stmt.SerializeToString(deterministic=True) + b";")
    return Definitions(
        publications=tuple(publications.values()),
        subscriptions=tuple(subscriptions.values()),
        text=text,
        fingerprint=digest.hexdigest(),
    )


def _publication(source: SourceText, statement: Any, position: int) -> PublicationDefinition:
    options = dict(_options(source, statement.options, _publication_option))
    tables: list[TableClause] = []
    schemas: list[str | None] = []
    for node in statement.pubobjects:
        item = node.publication_obj_spec
        match item.pubobjtype:
            case pb.PUBLICATIONOBJ_TABLE:
                tables.append(_table(source, item.pubtable))
            case pb.PUBLICATIONOBJ_TABLES_IN_SCHEMA:
                schemas.append(item.name)
            case pb.PUBLICATIONOBJ_TABLES_IN_CUR_SCHEMA:
                schemas.append(None)
            case kind:
                raise source.error(
                    f"not supported: publication object {pb.PublicationObjSpecType.Name(kind)}",
                    source.character(item.location),
                )
    return PublicationDefinition(
        name=statement.pubname,
        tables=tuple(tables),
        schemas=tuple(dict.fromkeys(schemas)),
        all_tables=statement.for_all_tables,
        position=position,
        **options,
    )


def _table(source: SourceText, table: Any) -> TableClause:
    relation = table.relation
    position = source.character(relation.location)
    if relation.catalogname:
        name = f"{relation.catalogname}.{relation.schemaname}.{relation.relname}"
        raise source.error(
            f'cross-database references are not implemented: "{name}"',
            position,
            hint="Leave the database out: it is the one of [source].dsn.",
        )
    where = where_position = None
    if table.HasField("where_clause"):
        where_position, end = source.where_slice(relation.location)
        where = source.text[where_position:end]
    return TableClause(
        schema=relation.schemaname or None,
        name=relation.relname,
        only=not relation.inh,
        columns=tuple(column.string.sval for column in table.columns) or None,
        where=where,
        position=position,
        where_position=where_position,
    )


def _subscription(source: SourceText, statement: Any, position: int) -> SubscriptionDefinition:
    options = dict(_options(source, statement.options, _subscription_option))
    names = [publication.string.sval for publication in statement.publication]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise source.error(f'publication name "{name}" used more than once', position)
    return SubscriptionDefinition(
        name=statement.subname,
        publications=tuple(names),
        connection_given=statement.conninfo != "",
        position=position,
        **options,
    )


def _options(
    source: SourceText, nodes: Any, read: Callable[[str, Any], tuple[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Yield the options as pairs of field and value; errors have their positions."""
    seen: set[str] = set()
    for node in nodes:
        option = node.def_elem
        argument = option.arg if option.HasField("arg") else None
        try:
            if option.defname in seen:
                raise ValueError("conflicting or redundant options")
            result = read(option.defname, argument)
        except ValueError as error:
            raise source.error(str(error), source.character(option.location)) from None
        seen.add(option.defname)
        yield result


def _publication_option(name: str, argument: Any) -> tuple[str, Any]:
    if (reader := _PUBLICATION_OPTIONS.get(name)) is None:
        raise ValueError(f'unrecognized publication parameter: "{name}"')
    value = reader(name, argument)
    return _PUBLICATION_FIELDS[name], value


def _subscription_option(name: str, argument: Any) -> tuple[str, Any]:
    if (reason := _REFUSED_OPTIONS.get(name)) is not None:
        raise ValueError(f'subscription parameter "{name}" is not supported: {reason}')
    if (reader := _SUBSCRIPTION_OPTIONS.get(name)) is None:
        raise ValueError(f'unrecognized subscription parameter: "{name}"')
    return name, reader(name, argument)
