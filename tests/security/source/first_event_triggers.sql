-- What pgsluice installed before its messages had a code: check has to find it.
CREATE SCHEMA IF NOT EXISTS pgsluice;

CREATE OR REPLACE FUNCTION pgsluice.tell(publications text[], tables bigint[], trees bigint[])
RETURNS void LANGUAGE sql SET search_path = pg_catalog SET "DateStyle" = 'ISO'
SET "TimeZone" = 'UTC' SET "IntervalStyle" = 'postgres' SET extra_float_digits = 3
SET bytea_output = 'hex' SET quote_all_identifiers = off AS $$
SELECT pg_logical_emit_message(true, 'pgsluice.publications', jsonb_build_object(
    'altered', jsonb_build_object(
        'publications', coalesce(to_jsonb(publications), '[]'),
        'tables', coalesce(to_jsonb(tables), '[]'), 'trees', coalesce(to_jsonb(trees), '[]')),
    'publications', (
        SELECT coalesce(jsonb_object_agg(p.pubname, jsonb_build_object(
            'operations', array_remove(ARRAY[
                CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
                CASE WHEN p.pubdelete THEN 'delete' END,
                CASE WHEN p.pubtruncate THEN 'truncate' END], NULL),
            'all_tables', p.puballtables, 'via_root', p.pubviaroot,
            'generated', coalesce(to_jsonb(p) ->> 'pubgencols', 'n') = 's',
            'schemas', ARRAY(
                SELECT n.nspname FROM pg_publication_namespace AS s
                JOIN pg_namespace AS n ON n.oid = s.pnnspid WHERE s.pnpubid = p.oid),
            'tables', (
                SELECT coalesce(jsonb_agg(jsonb_build_array(
                    r.prrelid::bigint, pg_get_expr(r.prqual, r.prrelid),
                    (SELECT jsonb_agg(a.attname ORDER BY a.attnum) FROM pg_attribute AS a
                     WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[])))), '[]')
                FROM pg_publication_rel AS r WHERE r.prpubid = p.oid))), '{}')
        FROM pg_publication AS p),
    'parents', (
        SELECT coalesce(jsonb_agg(jsonb_build_array(i.inhrelid::bigint, i.inhparent::bigint)), '[]')
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE c.relispartition)
)::text)
$$;

CREATE OR REPLACE FUNCTION pgsluice.publications_altered() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    altered text[]; tables bigint[]; trees bigint[]; each text;
BEGIN
    IF TG_EVENT = 'sql_drop' THEN
        SELECT array_agg(DISTINCT CASE WHEN object_type = 'publication'
                                  THEN address_names[1] ELSE address_args[1] END)
        INTO altered FROM pg_event_trigger_dropped_objects()
        WHERE object_type IN ('publication', 'publication relation', 'publication namespace');
    ELSE
        SELECT array_agg(DISTINCT p.pubname::text) INTO altered
        FROM pg_event_trigger_ddl_commands() AS c
        LEFT JOIN pg_publication_rel AS r
            ON c.classid = 'pg_publication_rel'::regclass AND r.oid = c.objid
        LEFT JOIN pg_publication_namespace AS n
            ON c.classid = 'pg_publication_namespace'::regclass AND n.oid = c.objid
        JOIN pg_publication AS p ON p.oid IN (r.prpubid, n.pnpubid)
            OR (c.classid = 'pg_publication'::regclass AND p.oid = c.objid);
        SELECT array_agg(DISTINCT c.objid::bigint) FILTER (WHERE EXISTS (
                SELECT FROM pg_publication_rel AS r WHERE r.prrelid = c.objid
                AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))),
            array_agg(DISTINCT coalesce(i.inhparent, c.objid)::bigint)
                FILTER (WHERE t.relkind = 'p' OR i.inhparent IS NOT NULL)
        INTO tables, trees
        FROM pg_event_trigger_ddl_commands() AS c JOIN pg_class AS t ON t.oid = c.objid
        LEFT JOIN pg_inherits AS i ON i.inhrelid = t.oid AND t.relispartition
        WHERE c.classid = 'pg_class'::regclass;
    END IF;
    IF TG_TAG = 'ALTER PUBLICATION' THEN
        FOR each IN SELECT unnest(altered) ORDER BY 1 LOOP
            PERFORM pg_advisory_xact_lock(hashtextextended('pgsluice.' || each, 0));
        END LOOP;
    END IF;
    IF altered IS NOT NULL OR tables IS NOT NULL OR trees IS NOT NULL THEN
        PERFORM pgsluice.tell(altered, tables, trees);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION pgsluice.table_rewritten() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    rewritten oid := pg_event_trigger_table_rewrite_oid();
BEGIN
    -- 2: a column has computed values; 4: another type, or USING. Not where the rows are stored.
    IF pg_event_trigger_table_rewrite_reason() & 6 <> 0 THEN
        PERFORM pg_logical_emit_message(true, 'pgsluice.rewritten', jsonb_build_object('tables', (
            SELECT jsonb_agg(DISTINCT t.relid::oid::bigint) FROM (
                SELECT rewritten UNION SELECT relid FROM pg_partition_ancestors(rewritten)
            ) AS t (relid)))::text);
    END IF;
END
$$;

DROP EVENT TRIGGER IF EXISTS pgsluice_altered;
DROP EVENT TRIGGER IF EXISTS pgsluice_dropped;
DROP EVENT TRIGGER IF EXISTS pgsluice_rewritten;
CREATE EVENT TRIGGER pgsluice_altered ON ddl_command_end
    WHEN TAG IN ('CREATE PUBLICATION', 'ALTER PUBLICATION', 'CREATE TABLE', 'ALTER TABLE')
    EXECUTE FUNCTION pgsluice.publications_altered();
CREATE EVENT TRIGGER pgsluice_dropped ON sql_drop
    WHEN TAG IN ('ALTER PUBLICATION', 'DROP PUBLICATION')
    EXECUTE FUNCTION pgsluice.publications_altered();
CREATE EVENT TRIGGER pgsluice_rewritten ON table_rewrite
    EXECUTE FUNCTION pgsluice.table_rewritten();
ALTER EVENT TRIGGER pgsluice_altered ENABLE ALWAYS;
ALTER EVENT TRIGGER pgsluice_dropped ENABLE ALWAYS;
ALTER EVENT TRIGGER pgsluice_rewritten ENABLE ALWAYS;
SELECT pgsluice.tell(NULL, NULL, NULL);
