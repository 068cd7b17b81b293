"""Resolution of the definitions' names in the source's catalog, by PostgreSQL's rules.

Source: CreatePublication, OpenTableList and CheckPubRelationColumnList in publicationcmds.c;
is_publishable_class and pub_collist_validate in pg_publication.c.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, Final

import psycopg

from gateway.core.errors import DefinitionError, HeldCause, TransientError
from gateway.definitions.model import (
    Definitions,
    Operation,
    Publication,
    PublicationDefinition,
    PublishedRelation,
    SubscriptionDefinition,
    Table,
    TableClause,
)
from gateway.source.catalog.database_publications import Listed, read_listed
from gateway.source.catalog.filter_text import RENDERING_SETTINGS, FilterResolver
from gateway.source.catalog.subselects import SubselectResolver
from gateway.source.catalog.tables import FIRST_NORMAL_OID, read_tables, read_tables_by_oid
from gateway.source.session.search_path import role_schemas, withheld_schemas
from gateway.subselects.text.normalise import has_subselect
from gateway.subselects.text.render import sql_of

__all__ = ["DefinitionLookup"]

_Connection = psycopg.Connection[Any]

_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"})

_KINDS: Final = {
    "i": "indexes",
    "I": "partitioned indexes",
    "S": "sequences",
    "t": "TOAST tables",
    "v": "views",
    "m": "materialized views",
    "c": "composite types",
    "f": "foreign tables",
}

_BY_OID: Final = """
    SELECT c.oid, c.relkind::pg_catalog.text, c.relpersistence::pg_catalog.text, c.relname,
        n.nspname
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = %s"""

# As a search_path of these schemas finds a name, without the right to use one of them: a table in
# a schema that may not be used is one table's trouble, and to_regclass would raise.
_IN_SCHEMAS: Final = _BY_OID.replace(
    "%s",
    """(
        SELECT f.oid FROM pg_catalog.unnest(%s::pg_catalog.text[]) WITH ORDINALITY AS s (name, nr)
        JOIN pg_catalog.pg_namespace AS m ON m.nspname = s.name
        JOIN pg_catalog.pg_class AS f ON f.relnamespace = m.oid
        WHERE f.relname = %s ORDER BY s.nr LIMIT 1)""",
)

_INHERITORS: Final = """
    WITH RECURSIVE heirs(oid) AS (
        SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = %s
      UNION
        SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN heirs AS h ON i.inhparent = h.oid)
    SELECT c.oid FROM heirs AS h JOIN pg_catalog.pg_class AS c ON c.oid = h.oid
    WHERE c.relkind IN ('r', 'p') ORDER BY c.oid"""

_PUBLISHABLE: Final = """
    SELECT c.oid FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= %s"""

_OPERATION_COLUMNS: Final = (
    Operation.INSERT,
    Operation.UPDATE,
    Operation.DELETE,
    Operation.TRUNCATE,
)


class DefinitionLookup:
    """One reading of the catalog, in the transaction that the connection is in.

    A table that a FOR TABLE names and that was published already under this name is found by its
    OID when nothing bears the name any more: renamed, it is published on; dropped, it is missing.

    Args:
        known: OIDs of the tables that were published, by schema and name.

    Attributes:
        missing: Schema and name of tables that were dropped or renamed, and the reason.
        broken: Fault of a table that was published already, by publication and OID.
    """

    def __init__(
        self,
        connection: _Connection,
        definitions: Definitions,
        known: Mapping[tuple[str, str], int],
    ) -> None:
        self._known = known
        self.missing: dict[tuple[str, str], str] = {}
        self.broken: dict[tuple[str, int], DefinitionError] = {}
        self._connection = connection
        self._text = definitions.text
        self._version = connection.info.server_version
        self._filters = FilterResolver(connection, definitions.text)
        self._subselects = SubselectResolver(connection, definitions.text)
        self._tables: dict[int, Table] = {}  # one may be in a hundred publications

    def define(self, definition: PublicationDefinition) -> Publication:
        """Resolve a publication of the file."""
        if definition.generated and self._version < 180000:
            raise self._error(
                'unrecognized publication parameter: "publish_generated_columns"',
                definition.position,
                hint="the source server is older than PostgreSQL 18",
            )
        schemas = tuple(
            dict.fromkeys(self._schema(name, definition) for name in definition.schemas)
        )
        relations = []
        for clause, table in self._open_tables(definition.tables):
            try:
                relations.append(self._publish(definition, clause, table))
            except DefinitionError as error:
                if table.oid not in self._known.values():
                    raise
                self.broken[definition.name, table.oid] = error
        return Publication(
            name=definition.name,
            operations=definition.operations,
            via_root=definition.via_root,
            all_tables=definition.all_tables,
            schemas=schemas,
            relations=tuple(relations),
            generated=definition.generated,
        )

    def load(self, name: str, subscription: SubscriptionDefinition) -> Publication:
        """Read a publication of the database."""
        generated = "pubgencols::pg_catalog.text" if self._version >= 180000 else "'n'"
        row = self._connection.execute(
            "SELECT oid, puballtables, pubviaroot, pubinsert, pubupdate, pubdelete,"  # noqa: S608
            f" pubtruncate, {generated} FROM pg_catalog.pg_publication WHERE pubname = %s".encode(),
            (name,),
        ).fetchone()
        if row is None:
            raise self._error(
                f'publication "{name}" does not exist',
                subscription.position,
                hint=f"define it, or create it in the source database (subscription "
                f'"{subscription.name}" names it)',
            )
        listed = self._read_listed(row[0])
        self.broken |= {(name, error.table_oid): error for error in listed.locked}
        return Publication(
            name=name,
            operations=frozenset(
                o for o, on in zip(_OPERATION_COLUMNS, row[3:7], strict=True) if on
            ),
            via_root=row[2],
            all_tables=row[1],
            schemas=tuple(self._read_schemas(row[0])),
            relations=listed.relations,
            generated=row[7] == "s",
            excepted=listed.excepted,
        )

    def tables(
        self, publications: Collection[Publication], others: Iterable[int]
    ) -> dict[int, Table]:
        """Describe all tables that `publications` publish, and `others`."""
        oids = {*others, *self._subselects.tables}
        schemas: set[str] = set()
        for publication in publications:
            oids.update(relation.table_oid for relation in publication.relations)
            schemas.update(publication.schemas)
            if publication.all_tables:
                oids.update(self._oids(_PUBLISHABLE, FIRST_NORMAL_OID))
        if schemas:
            oids.update(
                self._oids(
                    f"{_PUBLISHABLE} AND n.nspname = ANY(%s)", FIRST_NORMAL_OID, list(schemas)
                )
            )
        found = read_tables(self._connection, oids)
        listed = {r.table_oid for publication in publications for r in publication.relations}
        followed = {r.table_oid for p in publications for r in p.relations if r.formula is not None}
        read = self._subselects.tables | {oid: self._tables[oid] for oid in followed}
        _check_all_found(listed | read.keys(), found)
        _check_as_read(read, found)
        return found

    def _open_tables(self, clauses: Iterable[TableClause]) -> Iterator[tuple[TableClause, Table]]:
        """Look up a FOR TABLE list, with heirs; refuse contradictions.

        Source: OpenTableList in publicationcmds.c.
        """
        opened: dict[int, TableClause] = {}
        filtered: set[int] = set()
        listed: set[int] = set()
        found: list[tuple[int, TableClause]] = []
        for clause in clauses:
            looked_up = self._look_up(clause)
            if looked_up is None:
                continue
            oid, kind = looked_up
            family = [oid]
            if not clause.only and kind != "p":
                family += self._oids(_INHERITORS, oid)
            for member in family:
                if member in opened:
                    for given, known, what in (
                        (clause.where, filtered, "WHERE clauses"),
                        (clause.columns, listed, "column lists"),
                    ):
                        if given is not None or member in known:
                            raise self._error(
                                f'conflicting or redundant {what} for table "{clause.name}"',
                                clause.position,
                            )
                    if member == oid:
                        break  # a table named twice does not bring its heirs again
                    continue
                opened[member] = clause
                if clause.where is not None:
                    filtered.add(member)
                if clause.columns is not None:
                    listed.add(member)
                found.append((member, clause))
        if unknown := opened.keys() - self._tables.keys():
            self._tables |= read_tables_by_oid(self._connection, unknown)
        _check_all_found(opened, self._tables)
        return iter([(clause, self._tables[oid]) for oid, clause in found])

    def _look_up(self, clause: TableClause) -> tuple[int, str] | None:
        """Return OID and kind of the table that a clause names; None when it is missing."""
        parts = [clause.name] if clause.schema is None else [clause.schema, clause.name]
        written = ".".join(parts)
        if clause.schema is None:
            schemas = list(role_schemas(self._connection))
            schemas = schemas if "pg_catalog" in schemas else ["pg_catalog", *schemas]
        else:
            schemas = [clause.schema]
        row = self._connection.execute(_IN_SCHEMAS, (schemas, clause.name)).fetchone()
        if row is None:
            was = self._was_published(clause)
            if was is None and clause.schema is not None and not self._schema_exists(clause.schema):
                raise self._error(f'schema "{clause.schema}" does not exist', clause.position)
            if was is None:
                raise self._error(f'relation "{written}" does not exist', clause.position)
            row = self._connection.execute(_BY_OID, (self._known[was],)).fetchone()
            if row is None:
                self.missing[was] = "not there any more: make it again, or leave it out"
                return None
            if was != (row[4], row[3]):
                self.missing[was] = f"called {row[4]}.{row[3]} now, and published under that name"
        oid, kind, persistence, name, _ = row
        reason = None
        if kind in _KINDS:
            reason = _KINDS[kind]
        elif oid < FIRST_NORMAL_OID:
            reason = "system tables"
        elif persistence != "p":
            reason = "temporary tables" if persistence == "t" else "unlogged tables"
        if reason is not None:
            raise self._error(
                f'cannot add relation "{name}" to publication',
                clause.position,
                hint=f"This operation is not supported for {reason}.",
            )
        return oid, kind

    def _was_published(self, clause: TableClause) -> tuple[str, str] | None:
        """Return schema and name under which the table of a clause was published, if it was.

        Schemas of the role's search_path that it may not use any more count, too.
        """
        if clause.schema is not None:
            schemas: tuple[str, ...] = (clause.schema,)
        else:
            schemas = (*role_schemas(self._connection), *withheld_schemas(self._connection))
        names = [(schema, clause.name) for schema in schemas]
        return next((name for name in names if name in self._known), None)

    def _publish(
        self, definition: PublicationDefinition, clause: TableClause, table: Table
    ) -> PublishedRelation:
        where = formula = None
        if clause.where is not None:
            if table.kind == "p" and not definition.via_root:
                raise self._error(
                    f'cannot use publication WHERE clause for relation "{table.name}"',
                    clause.position,
                    hint="WHERE clause cannot be used for a partitioned table when "
                    "publish_via_partition_root is false.",
                )
            if has_subselect(clause.where):
                formula = self._subselects.resolve(clause, table)
                where = sql_of(formula, self._subselects.tables)
            else:
                where = self._filters.resolve(clause, table)
        if clause.columns is not None:
            self._check_columns(definition, clause, table)
        return PublishedRelation(
            table_oid=table.oid,
            where=where,
            columns=_in_table_order(table, clause.columns),
            clause=clause,
            formula=formula,
        )

    def _check_columns(
        self, definition: PublicationDefinition, clause: TableClause, table: Table
    ) -> None:
        """Refuse a column list as PostgreSQL does.

        Source: CheckPubRelationColumnList in publicationcmds.c, pub_collist_validate in
        pg_publication.c.
        """
        assert clause.columns is not None
        refused = (
            f'cannot use column list for relation "{table}" in publication "{definition.name}"'
        )
        if definition.schemas:
            raise self._error(
                refused,
                clause.position,
                hint="Column lists cannot be specified in publications containing "
                "FOR TABLES IN SCHEMA elements.",
            )
        if table.kind == "p" and not definition.via_root:
            raise self._error(
                refused,
                clause.position,
                hint="Column lists cannot be specified for partitioned tables when "
                "publish_via_partition_root is false.",
            )
        columns = {column.name: column for column in table.columns}
        for index, name in enumerate(clause.columns):
            column = columns.get(name)
            cause: HeldCause = ""
            if name in _SYSTEM_COLUMNS:
                fault = f'cannot use system column "{name}" in publication column list'
            elif column is None:
                fault = f'column "{name}" of relation "{table.name}" does not exist'
                cause = "column"
            elif column.generated == "v":
                fault = f'cannot use virtual generated column "{name}" in publication column list'
            elif column.generated and self._version < 180000:
                fault = f'cannot use generated column "{name}" in publication column list'
            elif name in clause.columns[:index]:
                fault = f'duplicate column "{name}" in publication column list'
            else:
                continue
            raise self._error(fault, clause.position, cause=cause)

    def _schema(self, name: str | None, definition: PublicationDefinition) -> str:
        if name is None:
            schemas = role_schemas(self._connection)
            if not schemas:
                raise self._error(
                    "no schema has been selected for CURRENT_SCHEMA", definition.position
                )
            name = schemas[0]
        if not self._schema_exists(name):
            raise self._error(f'schema "{name}" does not exist', definition.position)
        if name in ("pg_catalog", "pg_toast") or name.startswith(("pg_temp_", "pg_toast_temp_")):
            kind = "temporary" if "temp" in name else "system"
            raise self._error(
                f'cannot add schema "{name}" to publication',
                definition.position,
                hint=f"This operation is not supported for {kind} schemas.",
            )
        return name

    def _schema_exists(self, name: str) -> bool:
        found = self._connection.execute(
            "SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s OR %s = 'pg_temp'", (name, name)
        )
        return found.fetchone() is not None

    def _read_schemas(self, publication_oid: int) -> list[str]:
        if self._version < 150000:
            return []
        rows = self._connection.execute(
            "SELECT n.nspname FROM pg_catalog.pg_publication_namespace AS p"
            " JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pnnspid"
            " WHERE p.pnpubid = %s ORDER BY 1",
            (publication_oid,),
        )
        return [row[0] for row in rows]

    def _read_listed(self, publication_oid: int) -> Listed:
        with self._connection.transaction(force_rollback=True):
            self._connection.execute(RENDERING_SETTINGS)
            return read_listed(self._connection, publication_oid)

    def _oids(self, query: str, *parameters: Any) -> list[int]:
        return [row[0] for row in self._connection.execute(query.encode(), parameters)]

    def _error(
        self, message: str, position: int, *, hint: str | None = None, cause: HeldCause = ""
    ) -> DefinitionError:
        return DefinitionError(message, text=self._text, position=position, hint=hint, cause=cause)


def _in_table_order(table: Table, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    return tuple(column.name for column in table.columns if column.name in columns)


def _check_as_read(read: Mapping[int, Table], found: Mapping[int, Table]) -> None:
    """Refuse tables whose columns are others by now than a filter over other tables was read for.

    Nothing but the gateway itself reads such a filter.
    """
    for oid, table in read.items():
        before, after = (
            [(c.name, c.attnum, c.type_oid, c.type_modifier) for c in each.columns]
            for each in (table, found[oid])
        )
        if before != after:
            raise TransientError(
                f"{found[oid]} was altered while the catalog was read",
                hint="the catalog is read again",
            )


def _check_all_found(oids: Iterable[int], found: Container[int]) -> None:
    """Names and tables are read one after the other: what goes between is no table any more."""
    for oid in oids:
        if oid not in found:
            raise TransientError(
                f"the table with OID {oid} was dropped while the catalog was read",
                hint="the catalog is read again",
            )
