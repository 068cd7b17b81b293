"""One wide table on a server, and what the server says of expressions on its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from gateway.definitions.model import Column
from gateway.pgtypes.catalog import TYPES
from gateway.source.catalog.tables import read_tables_by_oid
from tests.support.filters.invented import invented
from tests.support.filters.literals import values_of
from tests.support.filters.signatures import Types, read_types

__all__ = ["Answers", "Slot", "Table", "create_table", "every_type", "prepare", "read_table"]

_SETTINGS: Final = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres';"
    "SET extra_float_digits = 3; SET bytea_output = 'hex'; SET search_path = ''"
)
_BATCH: Final = 200
_COLLATED: Final = ("text", "varchar", "bpchar")
_SIZED: Final = {"varchar": "character varying(8)", "bpchar": "character(5)", "bit": "bit(3)"}

_FUNCTIONS: Final = """
CREATE FUNCTION public.shown(anyelement) RETURNS text STRICT LANGUAGE plpgsql AS
    'BEGIN RETURN format(''%s'', $1); END';
CREATE FUNCTION public.renderings(expressions text[])
    RETURNS TABLE (rendering text, refusal text) LANGUAGE plpgsql AS $$
DECLARE expression text;
BEGIN
    FOREACH expression IN ARRAY expressions LOOP
        rendering := NULL; refusal := NULL;
        BEGIN
            EXECUTE format('CREATE PUBLICATION p FOR TABLE public.f WHERE (%s)', expression);
            SELECT pg_get_expr(prqual, prrelid) INTO rendering FROM pg_publication_rel;
            RAISE EXCEPTION USING ERRCODE = 'UX001';
        EXCEPTION WHEN SQLSTATE 'UX001' THEN NULL; WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS refusal = MESSAGE_TEXT;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE FUNCTION public.answers(expressions text[])
    RETURNS TABLE (results text[], errors text[]) LANGUAGE plpgsql AS $$
DECLARE expression text; result text; error text; number int;
BEGIN
    FOREACH expression IN ARRAY expressions LOOP
        results := '{}'; errors := NULL;
        BEGIN
            EXECUTE format('SELECT array_agg(public.shown(%s) ORDER BY id) FROM public.f',
                           expression) INTO results;
            IF pg_column_size(results) > 100000000 THEN
                RAISE EXCEPTION 'row by row, then';
            END IF;
        EXCEPTION WHEN OTHERS THEN
            results := '{}'; errors := '{}';
            FOR number IN SELECT id FROM public.f ORDER BY id LOOP
                result := NULL; error := NULL;
                BEGIN
                    EXECUTE format('SELECT public.shown(%s) FROM public.f WHERE id = %s',
                                   expression, number) INTO result;
                    IF length(result) > 1000000 THEN
                        result := NULL; error := 'too large to compare';
                    END IF;
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS error = MESSAGE_TEXT;
                END;
                results := results || result; errors := errors || error;
            END LOOP;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
"""


TOO_LARGE = "too large to compare"
"""In the place of an error: there is a value, of more than a million characters."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A column of the table that the gateway may read, and the OID of its type."""

    name: str
    type_oid: int


@dataclass(frozen=True, slots=True)
class Answers:
    """For each row the value as its output function prints it, or None; and the error, or None."""

    values: tuple[bytes | None, ...]
    errors: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The table ``public.f``.

    Attributes:
        columns: As the gateway reads them from the catalog.
        slots: The columns that filters are about, without ``id``.
        rows: Each with all columns, as the server prints them.
    """

    connection: psycopg.Connection[Any]
    types: Types
    columns: tuple[Column, ...]
    slots: tuple[Slot, ...]
    rows: tuple[tuple[bytes | None, ...], ...]

    def renderings(self, expressions: Sequence[str]) -> list[tuple[str | None, str | None]]:
        """For each filter the server's rendering, or why the server refuses it."""
        return self._in_batches("SELECT * FROM public.renderings(%s)", expressions)

    def answers(self, expressions: Sequence[str]) -> list[Answers]:
        """For each expression of any type what it is in each row."""
        found = self._in_batches("SELECT * FROM public.answers(%s)", expressions)
        nothing = [None] * len(self.rows)
        return [
            Answers(
                tuple(None if text is None else text.encode() for text in results),
                tuple(errors or nothing),
            )
            for results, errors in found
        ]

    def _in_batches(self, query: str, expressions: Sequence[str]) -> list[tuple[Any, ...]]:
        """Ask about some at a time: a transaction that undoes much gets slow."""
        return [
            row
            for start in range(0, len(expressions), _BATCH)
            for row in self.connection.execute(
                query.encode(), [list(expressions[start : start + _BATCH])]
            ).fetchall()
        ]


def every_type() -> list[int]:
    """OIDs of all built-in types and of their arrays."""
    return sorted({oid for pair in TYPES.values() for oid in pair if oid})


def create_table(
    connection: psycopg.Connection[Any], random: Random, readable: Sequence[int], rows: int
) -> Table:
    """Make the table, with columns of each type of `readable` that there are values for.

    There are ``typname 1`` and ``typname 2``, and ``typname =`` for an answer to compare with. The
    second column of text has the database's collation, the first sorts by bytes.
    """
    prepare(connection)
    types = read_types(connection)
    listing: list[str] = []
    pools: list[Sequence[str | None]] = []
    slots: list[Slot] = []
    for oid in sorted(readable):
        kind = types.get(oid)
        if kind is None or (kind.element and kind.element not in types):
            continue
        element = types[kind.element].name if kind.element else None
        pool = values_of(kind.name, element)
        if not pool:
            continue
        for number in ("1", "2", "="):
            name = f"{kind.name} {number}"
            collated = (element or kind.name) in _COLLATED and number == "1"
            sql = _SIZED.get(kind.name, kind.sql) if number != "=" else kind.sql
            listing.append(f'"{name}" {sql}' + (' COLLATE pg_catalog."C"' if collated else ""))
            more = [invented(kind.name, random) for _ in pool] if element is None else []
            pool = (*pool, *(text for text in more[: len(pool) // 2] if text is not None))
            pools.append(_fitting(kind.name, pool) if number != "=" else (None,))
            if number != "=":
                slots.append(Slot(name, oid))
    connection.execute(
        f"CREATE TABLE public.f (id integer PRIMARY KEY, {', '.join(listing)})".encode()
    )
    insert = f"INSERT INTO public.f VALUES (%s{', %s' * len(pools)})".encode()
    for row in range(rows):
        values = [None if random.random() < 0.12 else random.choice(pool) for pool in pools]
        connection.execute(insert, [row, *values])
    return read_table(connection, slots, rows)


class _Text(Loader):
    """Reads also what the server has cut in the middle of a character, as some of its messages."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="replace")


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Make the functions that say what the server says of filters."""
    connection.adapters.register_loader("text", _Text)
    connection.execute(_SETTINGS.encode())
    connection.execute(_FUNCTIONS)


def read_table(connection: psycopg.Connection[Any], slots: Sequence[Slot], rows: int) -> Table:
    """Describe ``public.f``, which has `rows` rows."""
    found = connection.execute("SELECT 'public.f'::regclass::oid::int8").fetchone()
    assert found is not None
    columns = tuple(read_tables_by_oid(connection, [found[0]])[found[0]].columns)
    types = read_types(connection)
    return Table(connection, types, columns, tuple(slots), _read(connection, rows))


def _fitting(name: str, pool: Sequence[str]) -> Sequence[str]:
    limit = {"varchar": 8, "bpchar": 5}.get(name)
    return pool if limit is None else [text[:limit] for text in pool]


def _read(connection: psycopg.Connection[Any], rows: int) -> tuple[tuple[bytes | None, ...], ...]:
    result = connection.execute("SELECT * FROM public.f ORDER BY id").pgresult
    assert result is not None
    return tuple(
        tuple(result.get_value(row, column) for column in range(result.nfields))
        for row in range(rows)
    )
