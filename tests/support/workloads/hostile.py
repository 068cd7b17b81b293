"""A schema in which everything that PostgreSQL has is there once more, and tells who uses it.

It is searched first by whoever does not say otherwise, as a database owner, or a schema `public`
that anybody may write into, can have it. What is made there is derived from `pg_catalog` itself, so
that a name which the gateway begins to use tomorrow is there as well. Each of these objects leaves
a file in the server's data folder, which a superuser's session can do, and which no ROLLBACK and no
READ ONLY takes away; then it raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.support.backends.servers import Connection, Database

__all__ = ["hostile", "make_trap", "plain_connection", "sprung"]

TRAP = """
CREATE SCHEMA trap;
CREATE FUNCTION trap.spring(what pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE plpgsql SET search_path = pg_catalog AS $trap$
BEGIN
    IF current_setting('application_name') LIKE 'pgsluice%' THEN
        EXECUTE format('COPY (SELECT %L) TO %L', what || ' by ' || current_query(),
            current_setting('data_directory') || '/trap.' || current_database() || '.'
            || md5(what));
    END IF;
    RETURN true;
END $trap$;
"""

# Under search_path = pg_catalog, so that format_type prints what CREATE FUNCTION reads.
SHADOWS = """
CREATE SCHEMA hostile;
CREATE FUNCTION trap.function(f oid, name text, arguments text, result text, sets bool)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $make$
BEGIN
    EXECUTE format($f$CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE plpgsql AS $body$
        BEGIN PERFORM trap.spring(%L);
        IF pg_catalog.current_setting('application_name') OPERATOR(pg_catalog.~~) 'pgsluice%%' THEN
            RAISE EXCEPTION 'code of somebody else: %%', %L; END IF;
        RETURN%s; END $body$ $f$, name, arguments,
        CASE WHEN sets THEN 'SETOF ' ELSE '' END || result, 'function ' || name, name,
        CASE WHEN sets OR result = 'void' THEN '' ELSE ' NULL' END);
EXCEPTION WHEN others THEN NULL;  -- a pseudo-type, which no language but C can take
END $make$;
DO $do$
DECLARE
    o record;
    made text;
BEGIN
    PERFORM set_config('check_function_bodies', 'off', true);
    PERFORM trap.function(p.oid, p.proname, replace(coalesce((
            SELECT string_agg(CASE WHEN t.nr = p.pronargs AND p.provariadic <> 0
                THEN 'VARIADIC ' ELSE '' END || format_type(t.oid, NULL), ', ' ORDER BY t.nr)
            FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS t (oid, nr)), ''), '"any"',
            'anyelement'),
        CASE WHEN p.proname = 'to_regclass' THEN 'regclass'
            ELSE format_type(p.prorettype, NULL) END, p.proretset)
    FROM pg_proc AS p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prorettype <> ALL (
        '{internal,trigger,event_trigger,cstring,index_am_handler,table_am_handler}'::regtype[]);
    -- What takes any number of any types, with the types that catalogs have.
    PERFORM trap.function(0, n, a, 'text', false)
    FROM unnest('{concat,concat_ws,format,json_build_object,jsonb_build_object,num_nulls}'::text[])
        AS n,
        unnest('{oid|text,text|oid,text|oid|oid,text|int2|oid|int4|name,text|text|text|text|text}'
            ::text[]) AS given, replace(given, '|', ', ') AS a;
    PERFORM trap.function(0, n, a, 'json', false)
    FROM unnest('{json_object_agg,jsonb_object_agg,json_agg,to_json,to_jsonb}'::text[]) AS n,
        unnest('{oid|text,name|text,pg_inherits,pg_publication,pg_database,record,text}'::text[])
            AS given, replace(given, '|', ', ') AS a;
    FOR o IN SELECT oid, oprname, oprleft, oprright, oprresult, oprkind FROM pg_operator
            WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' LOOP
        made := 'operator_' || o.oid;
        PERFORM trap.function(0, made, format_type(o.oprleft, NULL) || ', '
            || format_type(o.oprright, NULL), format_type(o.oprresult, NULL), false);
        BEGIN
            EXECUTE format('CREATE OPERATOR hostile.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = '
                'hostile.%I)', o.oprname, format_type(o.oprleft, NULL),
                format_type(o.oprright, NULL), made);
        EXCEPTION WHEN others THEN NULL;
        END;
    END LOOP;
    FOR o IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace
            AND typtype = 'b' AND typcategory <> 'A' AND typname NOT LIKE 'pg\\_%' LOOP
        EXECUTE format('CREATE DOMAIN hostile.%I AS pg_catalog.%I CHECK (trap.spring(%L))',
            o.typname, o.typname, 'type ' || o.typname);
    END LOOP;
    FOR o IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace
            AND relkind IN ('r', 'v') LOOP
        BEGIN
            EXECUTE format('CREATE VIEW hostile.%I AS SELECT * FROM pg_catalog.%I'
                ' WHERE trap.spring(%L)', o.relname, o.relname, 'relation ' || o.relname);
        EXCEPTION WHEN others THEN NULL;  -- a column of a pseudo-type
        END;
    END LOOP;
END $do$;
"""


def plain_connection(database: Database) -> Connection:
    """A connection that does not walk into the trap itself."""
    return psycopg.connect(
        database.dsn, autocommit=True, options="-c search_path=public", application_name="test"
    )


def make_trap(connection: Connection) -> None:
    """Make ``trap.spring(what)``, which leaves a file when a session of the gateway calls it."""
    connection.execute(TRAP)


@contextmanager
def hostile(database: Database) -> Iterator[None]:
    """Let everybody who connects to the database find the hostile schema first."""
    name = sql.Identifier(database.name)
    with plain_connection(database) as connection:
        connection.execute("SET search_path = pg_catalog")
        connection.execute(SHADOWS.encode())
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = hostile, public, pg_catalog").format(name)
        )
    try:
        yield
    finally:
        with plain_connection(database) as connection:
            connection.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(name))


def sprung(connection: Connection) -> list[str]:
    """What has been run of the hostile objects, and by which statement; takes the files away."""
    found = [
        str(row[0])
        for row in connection.execute(
            "SELECT pg_read_file(f) FROM pg_ls_dir(current_setting('data_directory')) AS f"
            " WHERE f LIKE 'trap.' || current_database() || '.%'"
        )
    ]
    database = connection.info.dbname
    connection.execute(f"COPY (SELECT) TO PROGRAM 'rm -f trap.{database}.*'")
    return found
