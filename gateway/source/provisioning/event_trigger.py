"""SQL of the event triggers that write DDL messages into the stream.

Optional, and made by a superuser: `INSTALL` has the statements. Whatever alters a publication, the
partitions of a tree, a column that a filter names, or a type, writes a transactional logical
message, which says what was altered, and how all publications and partitions were then. A gateway
that lags applies each definition at its place. An ALTER TABLE that gives rows other values names
that table. `gateway.definitions.ddl.alterations` reads the messages.

A message is written in a transaction that may end much later, so it says up to which position of
the WAL it has what others have committed (``as_of``), and nothing where that cannot be known.

Invariants:

- The functions run as a role that cannot log in and has no rights but to read the key, to take
  the locks and to write messages; never as the superuser who made the triggers.
- Every function, relation and type is named with its schema, and pg_temp is searched last.
  Operators need no schema: PostgreSQL looks for none in pg_temp, and only pg_catalog comes first.
- A message has a code that only who can read `pgsluice.key` can compute, over its text, the
  transaction and the position (`gateway.definitions.ddl.authentication`). The key is in a
  materialized view because that is in no publication, not even one FOR ALL TABLES, nor in a dump.
- Who may not alter a publication cannot make those wait who may: the locks are rows of a table
  that nobody else can read, one row for each publication. The table is unlogged, and so in no
  publication either.
- No DDL fails because a message cannot be written, or is too large with what others have defined:
  then it says less, at last only what was altered, and if not even that, there is a warning.
  Anything it does not say is as in the catalog. Temporary objects are nobody's concern, and write
  nothing.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DEFINERS", "FUNCTIONS", "INSTALL", "ROLE", "SETTINGS", "TRIGGERS"]

ROLE: Final = "pgsluice_ddl"
"""Owner of the functions."""
_PATH: Final = "search_path=pg_catalog, pg_temp"
_FORMATS: Final = frozenset(
    {
        *(_PATH, "DateStyle=ISO", "TimeZone=UTC", "IntervalStyle=postgres"),
        *("extra_float_digits=3", "bytea_output=hex", "quote_all_identifiers=off"),
    }
)
SETTINGS: Final = {
    "emit": frozenset({_PATH}),
    "tell": _FORMATS,
    "publications_altered": frozenset({_PATH}),
    "table_rewritten": frozenset({_PATH}),
}
"""By function, what ``pg_proc.proconfig`` has."""
DEFINERS: Final = frozenset({"publications_altered", "table_rewritten"})
"""Functions with SECURITY DEFINER."""
TRIGGERS: Final = ("pgsluice_altered", "pgsluice_dropped", "pgsluice_rewritten")

INSTALL: Final = """\
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $install$
DECLARE
    installer oid := (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user);
    role pg_catalog.pg_roles;
    other text;
BEGIN
    -- Who may read the key stays who may: only what is made now is nobody's.
    PERFORM pg_catalog.set_config('pgsluice.is_new', (
        pg_catalog.to_regclass('pgsluice.key') IS NULL)::text, true);
    LOOP
        SELECT * INTO role FROM pg_catalog.pg_roles WHERE rolname = 'pgsluice_ddl';
        EXIT WHEN role.oid IS NOT NULL;
        BEGIN
            CREATE ROLE pgsluice_ddl NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            -- Made meanwhile for another database of the server: it is looked at as well.
            IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE;  -- No later snapshot would have it.
            END IF;
        END;
    END LOOP;
    IF role.rolcanlogin OR role.rolsuper OR role.rolcreaterole OR role.rolcreatedb
        OR role.rolreplication OR role.rolbypassrls OR EXISTS (
            SELECT FROM pg_catalog.pg_auth_members AS m
            WHERE m.member = role.oid OR (m.roleid = role.oid AND m.member <> installer))
    THEN
        RAISE EXCEPTION 'role "pgsluice_ddl" exists and can do more than this needs'
            USING HINT = 'Nobody may log in as it or be a member of it: drop it, or rename it.';
    END IF;
    SELECT pg_catalog.format('%s, owned by %I', what, pg_catalog.pg_get_userbyid(owner))
    INTO other FROM (
        SELECT 'schema pgsluice', n.nspowner, n.nspowner <> installer
        FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'pgsluice'
        UNION ALL
        SELECT 'relation pgsluice.' || c.relname, c.relowner, c.relowner <> installer
            OR (c.relname, c.relkind) NOT IN (('key', 'm'), ('locks', 'r'), ('locks_pkey', 'i'))
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'pgsluice'
        UNION ALL
        SELECT 'function pgsluice.' || f.proname, f.proowner,
            f.proowner NOT IN (installer, coalesce(role.oid, installer))
            OR f.proname NOT IN ('emit', 'tell', 'publications_altered', 'table_rewritten')
        FROM pg_catalog.pg_proc AS f
        JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace WHERE n.nspname = 'pgsluice'
    ) AS found (what, owner, foreign_to_us) WHERE foreign_to_us LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION '% is in the way', other USING HINT = pg_catalog.format(
            'Schema pgsluice must be owned by %I and have nothing else in it: drop it first.',
            current_user);
    END IF;
END
$install$;

DROP EVENT TRIGGER IF EXISTS pgsluice_altered;
DROP EVENT TRIGGER IF EXISTS pgsluice_dropped;
DROP EVENT TRIGGER IF EXISTS pgsluice_rewritten;

CREATE SCHEMA IF NOT EXISTS pgsluice;
REVOKE ALL ON SCHEMA pgsluice FROM PUBLIC;
DROP FUNCTION IF EXISTS pgsluice.publications_altered();
DROP FUNCTION IF EXISTS pgsluice.table_rewritten();
DROP FUNCTION IF EXISTS pgsluice.tell(text[], bigint[], bigint[]);
DROP FUNCTION IF EXISTS pgsluice.tell(jsonb, pg_lsn, boolean);
DROP FUNCTION IF EXISTS pgsluice.emit(text, jsonb);

CREATE MATERIALIZED VIEW IF NOT EXISTS pgsluice.key AS
SELECT pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    || pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) AS inner_key,
    pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    || pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) AS outer_key;
CREATE UNLOGGED TABLE IF NOT EXISTS pgsluice.locks (publication oid PRIMARY KEY);
REVOKE ALL ON pgsluice.key, pgsluice.locks FROM PUBLIC;

CREATE FUNCTION pgsluice.emit(prefix text, said jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    body pg_catalog.text := (said || pg_catalog.jsonb_build_object(
        'xid', pg_catalog.pg_current_xact_id()::pg_catalog.text,
        'lsn', pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text))::pg_catalog.text;
    code pg_catalog.bytea := (
        SELECT pg_catalog.sha256(k.outer_key || pg_catalog.sha256(
            k.inner_key || pg_catalog.convert_to(prefix || E'\\n' || body, 'UTF8')))
        FROM pgsluice.key AS k);
BEGIN
    PERFORM pg_catalog.pg_logical_emit_message(true, prefix,
        pg_catalog.convert_to(pg_catalog.encode(code, 'hex') || ' ' || body, 'UTF8'));
END
$$;

CREATE FUNCTION pgsluice.tell(altered jsonb, as_of pg_lsn, unsaid boolean)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp SET "DateStyle" = 'ISO'
SET "TimeZone" = 'UTC' SET "IntervalStyle" = 'postgres' SET extra_float_digits = 3
SET bytea_output = 'hex' SET quote_all_identifiers = off AS $$
SELECT pgsluice.emit('pgsluice.publications', pg_catalog.jsonb_build_object(
    'altered', altered, 'as_of', as_of::pg_catalog.text, 'unsaid', unsaid,
    'publications', (
        SELECT coalesce(pg_catalog.jsonb_object_agg(p.pubname, pg_catalog.jsonb_build_object(
            'operations', pg_catalog.array_remove(ARRAY[
                CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
                CASE WHEN p.pubdelete THEN 'delete' END,
                CASE WHEN p.pubtruncate THEN 'truncate' END], NULL),
            'all_tables', p.puballtables, 'via_root', p.pubviaroot,
            'generated', coalesce(pg_catalog.to_jsonb(p) ->> 'pubgencols', 'n') = 's',
            'schemas', ARRAY(
                SELECT n.nspname FROM pg_catalog.pg_publication_namespace AS s
                JOIN pg_catalog.pg_namespace AS n ON n.oid = s.pnnspid WHERE s.pnpubid = p.oid),
            'tables', (
                SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(
                    r.prrelid::pg_catalog.int8, pg_catalog.pg_get_expr(r.prqual, r.prrelid),
                    (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY a.attnum)
                     FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = r.prrelid
                     AND a.attnum = ANY (r.prattrs::pg_catalog.int2[])))), '[]')
                FROM pg_catalog.pg_publication_rel AS r WHERE r.prpubid = p.oid
                AND coalesce(pg_catalog.to_jsonb(r) ->> 'prexcept', 'false') = 'false'),
            'excepted', ARRAY(
                SELECT r.prrelid::pg_catalog.int8 FROM pg_catalog.pg_publication_rel AS r
                WHERE r.prpubid = p.oid AND pg_catalog.to_jsonb(r) ->> 'prexcept' = 'true'))), '{}')
        FROM pg_catalog.pg_publication AS p
        WHERE NOT unsaid AND (as_of IS NOT NULL OR altered -> 'publications' ? p.pubname OR EXISTS (
            SELECT FROM pg_catalog.pg_publication_rel AS r WHERE r.prpubid = p.oid
            AND altered -> 'tables' @> pg_catalog.to_jsonb(r.prrelid::pg_catalog.int8)))),
    'parents', (
        SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(
            i.inhrelid::pg_catalog.int8, i.inhparent::pg_catalog.int8)), '[]')
        FROM pg_catalog.pg_inherits AS i
        JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
        WHERE c.relispartition AND NOT i.inhdetachpending AND NOT unsaid AND (as_of IS NOT NULL
            OR altered -> 'trees' @> pg_catalog.to_jsonb(i.inhparent::pg_catalog.int8)))))
$$;

CREATE FUNCTION pgsluice.publications_altered() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names pg_catalog.text[]; tables pg_catalog.int8[]; trees pg_catalog.int8[];
    types pg_catalog.int8[]; collated pg_catalog.int8[]; each record; altered pg_catalog.jsonb;
    as_of pg_catalog.pg_lsn; failure pg_catalog.text;
    -- The snapshot of such a transaction is from before, and its locks come too late for it.
    unsaid pg_catalog.bool := pg_catalog.current_setting('transaction_isolation')
        NOT IN ('read committed', 'read uncommitted');
BEGIN
    IF TG_EVENT = 'sql_drop' THEN
        SELECT pg_catalog.array_agg(DISTINCT CASE WHEN d.object_type = 'publication'
                                             THEN d.address_names[1] ELSE d.address_args[1] END)
        INTO names FROM pg_catalog.pg_event_trigger_dropped_objects() AS d
        WHERE d.object_type IN ('publication', 'publication namespace')
        OR (d.object_type = 'publication relation' AND TG_TAG = 'ALTER PUBLICATION');
        IF TG_TAG NOT IN ('ALTER PUBLICATION', 'DROP PUBLICATION') THEN
            -- A column went, and with it the table from publications that named it. Not whole
            -- tables: the stream may still have rows of those.
            SELECT pg_catalog.array_agg(DISTINCT t.oid::pg_catalog.oid::pg_catalog.int8) INTO tables
            FROM pg_catalog.pg_event_trigger_dropped_objects() AS d,
                pg_catalog.to_regclass(pg_catalog.format('%I.%I', d.address_names[1],
                                                         d.address_names[2])) AS t (oid)
            WHERE d.object_type = 'publication relation' AND t.oid IS NOT NULL;
            -- Who drops a schema does not wait for those who alter the publications that have it.
            unsaid := unsaid OR names IS NOT NULL;
        END IF;
    ELSE
        SELECT pg_catalog.array_agg(DISTINCT p.pubname::pg_catalog.text) INTO names
        FROM pg_catalog.pg_event_trigger_ddl_commands() AS c
        LEFT JOIN pg_catalog.pg_publication_rel AS r ON r.oid = c.objid
            AND c.classid = 'pg_catalog.pg_publication_rel'::pg_catalog.regclass
        LEFT JOIN pg_catalog.pg_publication_namespace AS n ON n.oid = c.objid
            AND c.classid = 'pg_catalog.pg_publication_namespace'::pg_catalog.regclass
        JOIN pg_catalog.pg_publication AS p ON p.oid IN (r.prpubid, n.pnpubid)
            OR (c.classid = 'pg_catalog.pg_publication'::pg_catalog.regclass AND p.oid = c.objid);
        SELECT pg_catalog.array_agg(DISTINCT c.objid::pg_catalog.int8) FILTER (WHERE EXISTS (
                SELECT FROM pg_catalog.pg_publication_rel AS r WHERE r.prrelid = c.objid
                AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))),
            pg_catalog.array_agg(DISTINCT coalesce(i.inhparent, c.objid)::pg_catalog.int8)
                FILTER (WHERE t.relkind = 'p' OR i.inhparent IS NOT NULL)
        INTO tables, trees
        FROM pg_catalog.pg_event_trigger_ddl_commands() AS c
        JOIN pg_catalog.pg_class AS t ON t.oid = c.objid AND t.relpersistence <> 't'
        LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = t.oid AND t.relispartition
        WHERE c.classid = 'pg_catalog.pg_class'::pg_catalog.regclass;
    END IF;
    IF TG_TAG = 'ALTER TYPE' THEN
        SELECT pg_catalog.array_agg(coalesce(t.reltype, c.objid)::pg_catalog.int8) INTO types
        FROM pg_catalog.pg_event_trigger_ddl_commands() AS c
        LEFT JOIN pg_catalog.pg_class AS t ON t.oid = c.objid
            AND c.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
        WHERE c.schema_name IS DISTINCT FROM 'pg_temp';
    ELSIF TG_TAG = 'ALTER COLLATION' THEN
        SELECT pg_catalog.array_agg(DISTINCT a.attrelid::pg_catalog.int8) INTO collated
        FROM pg_catalog.pg_event_trigger_ddl_commands() AS c
        JOIN pg_catalog.pg_attribute AS a ON a.attcollation = c.objid
        JOIN pg_catalog.pg_class AS t ON t.oid = a.attrelid
        WHERE t.relkind IN ('r', 'p') AND t.relpersistence <> 't';
    END IF;
    IF pg_catalog.num_nonnulls(names, tables, trees, types, collated) = 0 THEN
        RETURN;
    END IF;
    IF TG_TAG = 'ALTER PUBLICATION' THEN
        -- Who alters a publication waits here for who has altered it, and sees what they did.
        FOR each IN SELECT p.oid, p.pubname FROM pg_catalog.pg_publication AS p
                    WHERE p.pubname = ANY (names) ORDER BY p.oid LOOP
            BEGIN
                PERFORM FROM pgsluice.locks AS l WHERE l.publication = each.oid FOR UPDATE;
                IF NOT FOUND THEN
                    INSERT INTO pgsluice.locks VALUES (each.oid) ON CONFLICT DO NOTHING;
                    PERFORM FROM pgsluice.locks AS l WHERE l.publication = each.oid FOR UPDATE;
                END IF;
            EXCEPTION
                WHEN serialization_failure THEN
                    NULL;  -- REPEATABLE READ: the row is younger than the snapshot
                WHEN lock_not_available THEN
                    RAISE lock_not_available USING MESSAGE = pg_catalog.format(
                        'publication %I was altered in a transaction that is still open',
                        each.pubname), HINT = 'lock_timeout has ended the wait for its end.';
            END;
        END LOOP;
    END IF;
    altered := pg_catalog.jsonb_build_object(
        'publications', coalesce(pg_catalog.to_jsonb(names), '[]'),
        'tables', coalesce(pg_catalog.to_jsonb(tables), '[]'),
        'trees', coalesce(pg_catalog.to_jsonb(trees), '[]'),
        'types', coalesce(pg_catalog.to_jsonb(types), '[]'),
        'collated', coalesce(pg_catalog.to_jsonb(collated), '[]'));
    -- Whatever was committed before is in the message, unless filters of others are very long.
    as_of := pg_catalog.pg_current_wal_insert_lsn();
    IF unsaid OR (SELECT sum(pg_catalog.pg_column_size(r.prqual)) > 1000000
                  FROM pg_catalog.pg_publication_rel AS r) THEN
        as_of := NULL;
    END IF;
    FOR step IN 1 .. 3 LOOP
        BEGIN  -- with all; with what is altered; that it is altered
            PERFORM pgsluice.tell(altered, CASE step WHEN 1 THEN as_of END, unsaid OR step = 3);
            RETURN;
        EXCEPTION WHEN OTHERS THEN
            failure := pg_catalog.format('(SQLSTATE %s): %s', SQLSTATE, SQLERRM);
        END;
    END LOOP;
    RAISE WARNING 'pgsluice is not told of this % %', TG_TAG, failure;
END
$$;

CREATE FUNCTION pgsluice.table_rewritten() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rewritten pg_catalog.oid := pg_catalog.pg_event_trigger_table_rewrite_oid();
BEGIN
    -- 2: a column has computed values; 4: another type, or USING. Not where the rows are stored.
    IF pg_catalog.pg_event_trigger_table_rewrite_reason() & 6 <> 0 AND EXISTS (
        SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = rewritten AND c.relpersistence <> 't')
    THEN
        PERFORM pgsluice.emit('pgsluice.rewritten', pg_catalog.jsonb_build_object('tables', (
            SELECT pg_catalog.jsonb_agg(DISTINCT t.relid::pg_catalog.oid::pg_catalog.int8) FROM (
                SELECT rewritten
                UNION SELECT a.relid FROM pg_catalog.pg_partition_ancestors(rewritten) AS a
            ) AS t (relid))));
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'pgsluice is not told of this % (SQLSTATE %): %', TG_TAG, SQLSTATE, SQLERRM;
END
$$;

DO $install$
DECLARE
    each oid;
BEGIN
    FOR each IN SELECT f.oid FROM pg_catalog.pg_proc AS f
                JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
                WHERE n.nspname = 'pg_catalog' AND f.proname = 'pg_logical_emit_message'
                AND NOT pg_catalog.has_function_privilege('pgsluice_ddl', f.oid, 'EXECUTE') LOOP
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO pgsluice_ddl',
                                  each::pg_catalog.regprocedure);
    END LOOP;
END
$install$;
DO $install$
DECLARE
    each record;
BEGIN
    -- Rights that ALTER DEFAULT PRIVILEGES of the installer has given to others.
    FOR each IN
        SELECT pg_catalog.format('FUNCTION %s', f.oid::pg_catalog.regprocedure) AS what, a.grantee
        FROM pg_catalog.pg_proc AS f CROSS JOIN LATERAL pg_catalog.aclexplode(f.proacl) AS a
        WHERE f.pronamespace = 'pgsluice'::pg_catalog.regnamespace AND a.grantee <> f.proowner
        UNION ALL
        SELECT pg_catalog.format('TABLE %s', c.oid::pg_catalog.regclass), a.grantee
        FROM pg_catalog.pg_class AS c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
        WHERE c.relnamespace = 'pgsluice'::pg_catalog.regnamespace AND a.grantee <> c.relowner
        AND pg_catalog.current_setting('pgsluice.is_new') = 'true'
        UNION ALL
        SELECT 'SCHEMA pgsluice', a.grantee
        FROM pg_catalog.pg_namespace AS n CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) AS a
        WHERE n.nspname = 'pgsluice' AND a.grantee <> n.nspowner
        AND pg_catalog.current_setting('pgsluice.is_new') = 'true'
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s FROM %s', each.what,
            CASE WHEN each.grantee = 0 THEN 'PUBLIC'
                 ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(each.grantee)) END);
    END LOOP;
END
$install$;
GRANT USAGE, CREATE ON SCHEMA pgsluice TO pgsluice_ddl;
GRANT SELECT ON pgsluice.key TO pgsluice_ddl;
GRANT SELECT, INSERT, UPDATE ON pgsluice.locks TO pgsluice_ddl;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsluice FROM PUBLIC;
ALTER FUNCTION pgsluice.emit(text, jsonb) OWNER TO pgsluice_ddl;
ALTER FUNCTION pgsluice.tell(jsonb, pg_lsn, boolean) OWNER TO pgsluice_ddl;
ALTER FUNCTION pgsluice.publications_altered() OWNER TO pgsluice_ddl;
ALTER FUNCTION pgsluice.table_rewritten() OWNER TO pgsluice_ddl;
REVOKE CREATE ON SCHEMA pgsluice FROM pgsluice_ddl;

CREATE EVENT TRIGGER pgsluice_altered ON ddl_command_end
    WHEN TAG IN ('CREATE PUBLICATION', 'ALTER PUBLICATION', 'CREATE TABLE', 'ALTER TABLE',
                 'ALTER TYPE', 'ALTER COLLATION')
    EXECUTE FUNCTION pgsluice.publications_altered();
CREATE EVENT TRIGGER pgsluice_dropped ON sql_drop
    EXECUTE FUNCTION pgsluice.publications_altered();
CREATE EVENT TRIGGER pgsluice_rewritten ON table_rewrite
    EXECUTE FUNCTION pgsluice.table_rewritten();
ALTER EVENT TRIGGER pgsluice_altered ENABLE ALWAYS;
ALTER EVENT TRIGGER pgsluice_dropped ENABLE ALWAYS;
ALTER EVENT TRIGGER pgsluice_rewritten ENABLE ALWAYS;
SELECT pgsluice.tell('{"publications": [], "tables": [], "trees": [], "types": [], "collated": []}',
    pg_catalog.pg_current_wal_insert_lsn(), false);
COMMIT;
"""
"""Run by a superuser in the source database, PostgreSQL 15 and later; may be run again."""

FUNCTIONS: Final = dict(
    re.findall(r"^CREATE FUNCTION pgsluice\.(\w+)\([^;]*? AS \$\$(.*?)\$\$;", INSTALL, re.M | re.S)
)
"""By name, the source text of each function, as ``pg_proc.prosrc`` has it."""
