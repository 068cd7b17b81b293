"""SQL of the triggers by which a TRUNCATE deletes its rows first.

Optional, and made by who owns the tables: a consumer that cannot take a `t` then removes the rows
by their deletes. `docs/debezium.md` says what that costs.

Invariants:

- The function has the rights of who truncates, and every name in it has its schema: it does nothing
  that this role could not do itself, whatever its search_path.
- Either every row that the TRUNCATE removes is deleted, or the TRUNCATE fails with the reason. A
  snapshot from before the table's lock hides rows, and so do policies; triggers and rules can keep
  rows from being deleted. One exception: rows that triggers of one truncated table insert into
  another, which the same statement has named before and which has been emptied already.
- Tables that refer to the truncated one are truncated by the same statement, or PostgreSQL refuses
  it. One statement deletes from all of them, so that no foreign key is violated in between; and
  none is checked after the TRUNCATE, when the deleted rows cannot be found any more.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INSTALL", "trigger_sql"]

INSTALL: Final = """\
CREATE SCHEMA pgsluice_truncate;

CREATE FUNCTION pgsluice_truncate.delete_rows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    place pg_catalog.text := pg_catalog.format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
    emptied pg_catalog.oid[];
    is_hidden pg_catalog.bool;
    deletes pg_catalog.text;
    remaining pg_catalog.text;
    remains pg_catalog.bool;
    deferrable_ones pg_catalog.text;
    deferred_ones pg_catalog.text;
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=)
        ANY (ARRAY['repeatable read', 'serializable'])
    THEN
        RAISE EXCEPTION 'a TRUNCATE of % has to be READ COMMITTED', place USING
            DETAIL = 'Other transactions remove rows that they do not see, and no delete says so.',
            HINT = 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED.';
    END IF;
    -- The statement truncates the partitions and the referring tables, too.
    WITH RECURSIVE found (relation) AS (
        SELECT TG_RELID
        UNION
        SELECT next.relation FROM found AS f CROSS JOIN LATERAL (
            SELECT k.conrelid FROM pg_catalog.pg_constraint AS k
            WHERE k.confrelid OPERATOR(pg_catalog.=) f.relation
                AND k.contype OPERATOR(pg_catalog.=) 'f'
            UNION ALL
            SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i
            JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.inhrelid
            WHERE i.inhparent OPERATOR(pg_catalog.=) f.relation AND c.relispartition
        ) AS next (relation))
    SELECT pg_catalog.array_agg(c.oid), pg_catalog.bool_or(pg_catalog.row_security_active(c.oid)),
        pg_catalog.string_agg(pg_catalog.format(
            'd%s AS (DELETE FROM ONLY %I.%I)', c.oid, n.nspname, c.relname), ', '),
        pg_catalog.string_agg(pg_catalog.format(
            'SELECT 1 FROM ONLY %I.%I', n.nspname, c.relname), ' UNION ALL ')
    INTO emptied, is_hidden, deletes, remaining
    FROM found AS f JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) f.relation
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relkind OPERATOR(pg_catalog.=) 'r';
    IF deletes IS NULL THEN
        RETURN NULL;
    ELSIF is_hidden THEN
        RAISE EXCEPTION 'row security may hide rows that a TRUNCATE of % removes', place USING
            HINT = 'Truncate it as its owner, or as a role with BYPASSRLS.';
    END IF;
    -- SET CONSTRAINTS counts for all constraints of a name, and refuses to defer some of them.
    SELECT pg_catalog.string_agg(DISTINCT k.place, ', '),
        pg_catalog.string_agg(DISTINCT k.place, ', ') FILTER (WHERE k.is_deferred)
    INTO deferrable_ones, deferred_ones
    FROM (
        SELECT pg_catalog.format('%I.%I', n.nspname, k.conname), NOT EXISTS (
            SELECT FROM pg_catalog.pg_constraint AS other
            WHERE other.conname OPERATOR(pg_catalog.=) k.conname
                AND other.connamespace OPERATOR(pg_catalog.=) k.connamespace
                AND NOT other.condeferred)
        FROM pg_catalog.pg_trigger AS t
        JOIN pg_catalog.pg_constraint AS k ON k.oid OPERATOR(pg_catalog.=) t.tgconstraint
        JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) k.connamespace
        WHERE t.tgrelid OPERATOR(pg_catalog.=) ANY (emptied) AND t.tgdeferrable
    ) AS k (place, is_deferred);
    IF deferrable_ones IS NOT NULL THEN
        EXECUTE pg_catalog.format('SET CONSTRAINTS %s IMMEDIATE', deferrable_ones);
    END IF;
    EXECUTE pg_catalog.format('WITH %s SELECT', deletes);
    IF deferred_ones IS NOT NULL THEN
        EXECUTE pg_catalog.format('SET CONSTRAINTS %s DEFERRED', deferred_ones);
    END IF;
    EXECUTE pg_catalog.format('SELECT EXISTS (%s)', remaining) INTO remains;
    IF remains THEN
        RAISE EXCEPTION 'rows that a TRUNCATE of % removes cannot be deleted', place USING
            HINT = 'Triggers or rules ON DELETE keep them: disable those, or DROP TRIGGER'
                ' pgsluice_delete_rows.';
    END IF;
    RETURN NULL;
END
$$;
"""
"""Run once, by a role that may create a schema in the database; PostgreSQL 14 and later."""


def trigger_sql(table: str) -> str:
    """Return the statements that make the trigger of a table or a partition, in a line.

    Args:
        table: Quoted name with its schema.
    """
    return (
        f"CREATE TRIGGER pgsluice_delete_rows BEFORE TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION pgsluice_truncate.delete_rows();"
        f" ALTER TABLE {table} ENABLE ALWAYS TRIGGER pgsluice_delete_rows;"
    )
