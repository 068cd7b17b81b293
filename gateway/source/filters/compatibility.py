"""Comparison of another server's evaluation of a row filter with the source's.

The result of a filter depends on the major version, on the collations (their versions change with
the C library and with ICU), on the database's default locale, and on the time zone data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg

from gateway.core.errors import ConfigError
from gateway.source.session.server_errors import classify_server_error

__all__ = ["check_alike"]

_COLLATIONS: Final = """
    SELECT collname || ' ' || collprovider::pg_catalog.text,
           coalesce(pg_catalog.pg_collation_actual_version(oid), '') FROM pg_catalog.pg_collation
    WHERE collnamespace = 'pg_catalog'::pg_catalog.regnamespace
"""
_LOCALE: Final = """
    SELECT (pg_catalog.to_jsonb(d) - ARRAY['oid', 'datname', 'datdba', 'datistemplate',
        'datallowconn', 'dathasloginevt', 'datconnlimit', 'datlastsysoid', 'datfrozenxid',
        'datminmxid', 'dattablespace', 'datacl'])::pg_catalog.text
    FROM pg_catalog.pg_database AS d WHERE datname = pg_catalog.current_database()
"""
_ZONES: Final = """
    SELECT name, pg_catalog.md5(pg_catalog.string_agg(
        (moment AT TIME ZONE name)::pg_catalog.text, ' ' ORDER BY moment))
    FROM pg_catalog.pg_timezone_names,
        pg_catalog.generate_series(
            '1900-01-01'::pg_catalog.timestamptz, '2040-01-01', '6 months') AS moment
    GROUP BY name
"""


def check_alike(source: psycopg.Connection, other: psycopg.Connection) -> None:
    """Compare `other`, of ``[filters] dsn``, with the source.

    A collation or a time zone that only one of them has makes no difference: a filter with it is
    refused there.

    Raises:
        ConfigError: they differ.
        TransientError: a connection is gone.
    """
    versions = [connection.info.server_version // 10000 for connection in (source, other)]
    if versions[0] != versions[1]:
        raise _differs(f"is PostgreSQL {versions[1]}, the source is {versions[0]}")
    try:
        if source.execute(_LOCALE).fetchall() != other.execute(_LOCALE).fetchall():
            raise _differs("has another default locale in its database than the source")
        for query, what in ((_COLLATIONS, "collation"), (_ZONES, "time zone")):
            ours, theirs = _read(source, query), _read(other, query)
            different = sorted(name for name in ours if theirs.get(name, ours[name]) != ours[name])
            if different:
                raise _differs(
                    f"has {len(different)} of the source's {what}s in another version, among them "
                    f"{different[0]!r}"
                )
    except psycopg.Error as error:
        raise classify_server_error(
            error.sqlstate, str(error), doing="comparing the server of [filters] dsn"
        ) from None


def _read(connection: psycopg.Connection, query: str) -> Mapping[str, str]:
    return dict(connection.execute(query.encode()).fetchall())


def _differs(how: str) -> ConfigError:
    return ConfigError(
        f"that server {how}: row filters could give another answer there",
        key="filters.dsn",
        hint="name a standby of the source on a machine of the same kind, or leave the key out",
    )
