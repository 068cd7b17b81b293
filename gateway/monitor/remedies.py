"""Remedies for held tables, by what the reason says. Pure.

The state of a table in Kafka has the reason as text, and `pgsluice status` has nothing else. Names
in it are those that other roles have chosen, as `x (ALTER ROLE mallory SUPERUSER)`: no remedy lets
anybody run what a reason says.
"""

from __future__ import annotations

from typing import Final

from gateway.core.display import shown
from gateway.core.watermark import HeldCause, hint_of

__all__ = ["REMEDIES", "remedy_of"]

_PRINTED: Final = "runs what `pgsluice check --sql` prints for it"

REMEDIES: Final = (
    ("(GRANT ", f"the owner of the table, or a superuser, {_PRINTED}"),
    ("(ALTER PUBLICATION ", f"the owner of the table {_PRINTED}"),
    (
        "(ALTER ROLE ",
        "a superuser runs ALTER ROLE ... BYPASSRLS for the role of source.dsn, if it may read what "
        "row security hides in any table",
    ),
    ("row security hides rows", "ALTER ROLE ... BYPASSRLS for the role of source.dsn"),
    ("permission denied", "grant the role of source.dsn what `pgsluice check` says it lacks"),
    ("a lock on it is held by", "let that session end, or end it with pg_terminate_backend"),
    ("[topics.keys]", "change that setting, the table's key or [envelope], and start again"),
    ("[topics.partition_by]", "change that setting or the publication's columns, and start again"),
    (
        "it has no key, and [envelope]",
        "give the table a primary key, or let [envelope] have `t` records, and start again",
    ),
    (
        "cannot update table",
        "let the replica identity have what the reason says is missing (a primary key, or ALTER "
        "TABLE ... REPLICA IDENTITY FULL), or leave it out of the filter",
    ),
    (
        "cannot delete from table",
        "let the replica identity have what the reason says is missing (a primary key, or ALTER "
        "TABLE ... REPLICA IDENTITY FULL), or leave it out of the filter",
    ),
    (
        "refuses the schema",
        "give the table another topic in [topics] names, or delete the old versions of its "
        "subject from the registry, and start again",
    ),
    (
        "bytes of text, more than the",
        "publish fewer of its columns or partitions, or raise max.message.bytes of that topic and "
        '"message.max.bytes" in [kafka]',
    ),
    ("give it another name in [topics] names", "give the table another name in [topics] names"),
    ("cleanup.policy=", "let its topic have the cleanup.policy that its records need"),
    ("grant Describe and Write", "grant the user of [kafka] what is missing on the topic"),
    (
        "one of its partitions is a foreign table",
        "publish its other partitions, or detach that one",
    ),
    ("of the column list is gone", "change the column list in the definitions: `pgsluice reload`"),
    (
        '" does not exist',
        "name in the definitions what the table has now, then `pgsluice reload`; or give the "
        "table the column again",
    ),
)
"""Part of a reason, and the remedy; the first one counts."""


def remedy_of(cause: HeldCause, reason: str, table: str) -> str:
    """Return what to do about a held table.

    Args:
        cause: Code of a hold that only a request for a copy ends.
        reason: Reason in its state.
        table: Name of the table.
    """
    if not cause:
        # Its owner has chosen the table's name, with the schema or in quotes.
        bare = shown(table.partition(".")[2])
        said = reason.replace(table, "").replace(f'"{bare}"', '""')
        for part, remedy in REMEDIES:
            if part in said:
                return f"{remedy}; the table is then copied automatically"
    return hint_of(cause, table)
