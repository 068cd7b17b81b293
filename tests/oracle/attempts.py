"""What a server makes of an expression for many arguments, errors included, in one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from gateway.pgtypes.errors import EvaluationError

__all__ = ["Attempt", "Failure", "attempts", "outcome"]

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The arguments as their types print them, and the result as text or the error's message."""

    arguments: tuple[bytes | None, ...]
    result: bytes | None
    error: str | None


def attempts(
    connection: Connection,
    expression: str,
    types: Sequence[str],
    rows: Sequence[Sequence[str | None]],
) -> list[Attempt]:
    """Evaluate `expression` over ``a1``, ``a2``, ... of `types` for each row of `rows`."""
    names = [f"a{number}" for number in range(1, len(types) + 1)]
    parameters = ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True))
    connection.execute(
        f"CREATE OR REPLACE FUNCTION pg_temp.attempt({parameters}) RETURNS text[]"
        f" LANGUAGE plpgsql AS $attempt$ BEGIN RETURN ARRAY['value', ({expression})::text];"
        " EXCEPTION WHEN others THEN RETURN ARRAY['error', sqlerrm]; END $attempt$".encode()
    )
    casts = [f"{n}::{t}" for n, t in zip(names, types, strict=True)]
    texts = ", ".join(f"({cast})::text" for cast in casts)
    query = (
        f"SELECT r[1], r[2], t.* FROM (SELECT n, pg_temp.attempt({', '.join(casts)}) AS r, {texts}"
        f" FROM unnest({', '.join(['%s::text[]'] * len(types))}) WITH ORDINALITY"
        f" AS u({', '.join(names)}, n)) AS t ORDER BY n"
    )
    columns = [[row[number] for row in rows] for number in range(len(types))]
    found = connection.execute(query.encode(), columns).fetchall()
    connection.execute(f"DROP FUNCTION pg_temp.attempt({', '.join(types)})".encode())
    return [
        Attempt(
            tuple(None if text is None else str(text).encode() for text in row[4:]),
            None if row[0] == "error" or row[1] is None else str(row[1]).encode(),
            str(row[1]) if row[0] == "error" else None,
        )
        for row in found
    ]


def outcome(function: Callable[..., object], arguments: Sequence[object]) -> object:
    """What `function` returns, or the message of its error as `Failure`."""
    try:
        return function(*arguments)
    except EvaluationError as error:
        return Failure(error.message)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, so that it is not taken for a value."""

    message: str
