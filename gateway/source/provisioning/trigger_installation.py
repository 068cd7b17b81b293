"""Installed event triggers, compared with those of the current script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from gateway.definitions.ddl.authentication import Key
from gateway.source.provisioning.event_trigger import DEFINERS, FUNCTIONS, ROLE, SETTINGS, TRIGGERS
from gateway.source.session.server_errors import classify_server_error

__all__ = ["Installation", "find_installation", "has_ddl_messages", "read_key"]

_Connection = psycopg.Connection[Any]

_NEEDED: Final = 150000
_ALWAYS: Final = "A"
_DISABLED: Final = "D"
_ANNOUNCING: Final = frozenset({"pgsluice_altered", "pgsluice_dropped"})

_TRIGGERS: Final = """
SELECT e.evtname::text, e.evtenabled::text, e.evtowner
FROM pg_catalog.pg_event_trigger AS e
JOIN pg_catalog.pg_proc AS p ON p.oid = e.evtfoid
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
WHERE e.evtname = ANY (%s::pg_catalog.text[]) AND n.nspname = 'pgsluice'
"""
_FUNCTIONS: Final = """
SELECT p.proname::text, p.prosrc, p.proconfig, p.prosecdef, r.rolname::text,
    r.rolsuper OR r.rolcanlogin OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
    OR r.rolbypassrls,
    ARRAY(SELECT CASE WHEN a.grantee = 0 THEN 'every role'
                 ELSE 'role ' || pg_catalog.pg_get_userbyid(a.grantee) END
          FROM pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)))
              AS a
          WHERE a.grantee <> p.proowner)
FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
WHERE n.nspname = 'pgsluice'
"""
_KEY: Final = """
SELECT c.relkind::text = 'm' AND c.relispopulated, n.nspowner, c.relowner,
    o.rolsuper OR c.relowner = ANY (%s::pg_catalog.oid[]),
    pg_catalog.has_any_column_privilege('public', c.oid, 'SELECT'),
    pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner
WHERE n.nspname = 'pgsluice' AND c.relname = 'key'
"""
# Roles that can log in and become a role that has the right. Superusers can do everything anyway.
_READERS: Final = """
SELECT u.rolname::text
FROM pg_catalog.pg_roles AS u
WHERE u.rolcanlogin AND NOT u.rolsuper AND u.rolname <> current_user AND EXISTS (
    SELECT FROM pg_catalog.pg_roles AS r
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'pgsluice'
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'key'
    WHERE NOT r.rolsuper AND pg_catalog.pg_has_role(u.oid, r.oid, 'MEMBER')
    AND pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')
    AND pg_catalog.has_any_column_privilege(r.oid, c.oid, 'SELECT'))
ORDER BY 1
"""
# Roles with rights that only the owner and that of the functions need.
_EXCESS: Final = """
SELECT CASE WHEN a.grantee = 0 THEN 'every role'
    ELSE 'role ' || pg_catalog.pg_get_userbyid(a.grantee) END, what.name, a.privilege_type
FROM (
    SELECT 'schema pgsluice', n.nspacl, n.nspowner, ARRAY['CREATE']
    FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'pgsluice'
    UNION ALL
    SELECT 'pgsluice.' || c.relname, c.relacl, c.relowner, CASE c.relname WHEN 'locks'
        THEN ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'MAINTAIN']
        ELSE ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'MAINTAIN'] END
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'pgsluice' AND c.relname IN ('key', 'locks')
) AS what (name, acl, owner, excess)
CROSS JOIN LATERAL pg_catalog.aclexplode(what.acl) AS a
WHERE a.grantee <> what.owner AND a.privilege_type = ANY (what.excess)
AND a.grantee IS DISTINCT FROM (
    SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = %s AND what.name LIKE '%%.locks'
    AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE'))
UNION ALL
SELECT 'whoever it calls', 'pgsluice.' || c.relname, 'a rule or a trigger'
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgsluice' AND c.relname = 'locks' AND (c.relhastriggers OR c.relhasrules)
ORDER BY 1, 2, 3
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """State of the event triggers in a database.

    Attributes:
        problems: Relevant differences from the current script.
        announces: Whether the triggers on publications exist, and are enabled.
        key: Key of their messages; None if it cannot be read.
        may_read_key: Whether this role may read it.
        readers: Other roles that can log in and read it, and so write such messages.
    """

    problems: tuple[str, ...]
    announces: bool
    may_read_key: bool
    readers: tuple[str, ...]
    key: Key | None = field(repr=False)


def find_installation(connection: _Connection) -> Installation | None:
    """Return the state of the event triggers of the database; None if there are none.

    Raises:
        TransientError: the connection is gone.
    """
    if connection.info.server_version < _NEEDED:
        return None
    try:
        triggers = connection.execute(_TRIGGERS, (list(TRIGGERS),)).fetchall()
        if not triggers:
            return None
        functions = connection.execute(_FUNCTIONS).fetchall()
        owners = sorted({owner for _, _, owner in triggers})
        keys = connection.execute(_KEY, (owners,)).fetchall()
        excess = connection.execute(_EXCESS, (ROLE,)).fetchall()
        readers = tuple(name for (name,) in connection.execute(_READERS))
        unseen = tuple(_trigger_problems({name: enabled for name, enabled, _ in triggers}))
        problems = (
            *_function_problems(functions),
            *_key_problems(keys),
            *(f"{who} has {what} on {name}" for who, name, what in excess),
        )
        may_read = bool(keys) and bool(keys[0][5])
        enabled = {name for name, how, _ in triggers if how != _DISABLED}
        key = None
        if may_read and not problems:
            # Only a superuser can have put anything else under this name meanwhile.
            row = connection.execute("SELECT inner_key, outer_key FROM pgsluice.key").fetchone()
            key = None if row is None else Key(bytes(row[0]), bytes(row[1]))
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="looking for triggers") from None
    # Messages about other alterations are still authentic.
    return Installation((*problems, *unseen), enabled >= _ANNOUNCING, may_read, readers, key)


def _trigger_problems(triggers: Mapping[str, str]) -> Iterator[str]:
    for name in TRIGGERS:
        if name not in triggers:
            yield f"event trigger {name} is missing"
        elif triggers[name] != _ALWAYS:
            yield f"event trigger {name} is not ENABLE ALWAYS: some alterations are not reported"


def _function_problems(functions: list[tuple[Any, ...]]) -> Iterator[str]:
    found = {function[0]: function[1:] for function in functions}
    for name, source in FUNCTIONS.items():
        if name not in found:
            yield f"function pgsluice.{name} is missing: made by the script of an earlier release"
            continue
        is_source, settings, is_definer, owner, is_more, callers = found[name]
        as_made = SETTINGS[name], name in DEFINERS
        if is_source != source or (frozenset(settings or ()), is_definer) != as_made:
            yield f"function pgsluice.{name} is not as this release makes it: made by the script "\
                "of an earlier release, or altered"  # fmt: skip
        elif owner != ROLE or is_more:
            yield f"function pgsluice.{name} runs with the rights of {owner}"
        elif callers:
            yield f"function pgsluice.{name} can be called by {callers[0]}"
    for name in sorted(found.keys() - FUNCTIONS.keys()):
        yield f"function pgsluice.{name} is not of this release"
    if len(functions) > len(found):
        yield "schema pgsluice has functions of one name with other arguments"


def _key_problems(keys: list[tuple[Any, ...]]) -> Iterator[str]:
    if not keys:
        yield "pgsluice.key is missing: made by the script of an earlier release"
        return
    is_key, schema_owner, owner, is_trusted, is_open, _ = keys[0]
    if not is_key or schema_owner != owner or not is_trusted:
        yield "pgsluice.key is not as this release makes it, or has another owner"
    elif is_open:
        yield "every role may read pgsluice.key, and so write DDL messages"


def has_ddl_messages(connection: _Connection) -> bool:
    """Whether the stream has authenticated messages about altered publications.

    Raises:
        TransientError: the connection is gone.
    """
    found = find_installation(connection)
    return found is not None and found.announces and found.key is not None


def read_key(connection: _Connection) -> Key | None:
    """Return the key of the event triggers' messages, if both can be trusted.

    Raises:
        TransientError: the connection is gone.
    """
    found = find_installation(connection)
    return None if found is None else found.key
