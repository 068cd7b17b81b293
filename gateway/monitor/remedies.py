"""Remedies for held tables, by the cause. Pure.

The text of a reason chooses nothing: names in it are those that other roles have chosen, as
`x (ALTER ROLE mallory SUPERUSER)`. For the same reason no remedy lets anybody run what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.errors import HeldCause
from gateway.core.watermark import hint_of

__all__ = ["REMEDIES", "remedy_of"]

_PRINTED: Final = "runs what `pgsluice check --sql` prints for it"

REMEDIES: Final[Mapping[HeldCause, str]] = {
    "grant": f"the owner of the table, or a superuser, {_PRINTED}",
    "publication": f"the owner of the table {_PRINTED}",
    "bypass_rls": "a superuser runs ALTER ROLE ... BYPASSRLS for the role of source.dsn, if it may "
    "read what row security hides in any table",
    "privilege": "grant the role of source.dsn what `pgsluice check` says it lacks",
    "lock": "let that session end, or end it with pg_terminate_backend",
    "keys": "change that setting, the table's key or [envelope], and start again",
    "partition_by": "change that setting or the publication's columns, and start again",
    "no_key": "give the table a primary key, or let [envelope] have `t` records, and start again",
    "identity": "let the replica identity have what the reason says is missing (a primary key, or "
    "ALTER TABLE ... REPLICA IDENTITY FULL), or leave it out of the filter",
    "schema": "give the table another topic in [topics] names, or delete the old versions of its "
    "subject from the registry, and start again",
    "size": "publish fewer of its columns or partitions, or raise max.message.bytes of that topic "
    'and "message.max.bytes" in [kafka]',
    "topic_name": "give the table another name in [topics] names",
    "compaction": "let its topic have the cleanup.policy that its records need",
    "markers": "let nobody else write to the subscription's topic of markers, or keep a Kafka "
    "transaction open there",
    "marker_schema": "delete from the registry what others have registered under the subject of "
    "its subscription's markers",
    "topic_rights": "grant the user of [kafka] what is missing on the topic",
    "foreign_partition": "publish its other partitions, or detach that one",
    "taken_out": "let nobody alter the gateway's own publications",
    "column": "name in the definitions what the table has now, then `pgsluice reload`; or give the "
    "table the column again",
}


def remedy_of(cause: HeldCause, table: tuple[str, str]) -> str:
    """Return what to do about a table that is held for `cause`; `table` is schema and name."""
    if cause in REMEDIES:
        return f"{REMEDIES[cause]}; the table is then copied automatically"
    return hint_of(cause, table)
