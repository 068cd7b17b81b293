"""Keys of published tables: what identifies a row, and what ``[topics]`` has chosen instead. Pure.

The columns that ``[topics]`` names change the record key and the partition alone. A row remains
identified by `key_of`, for copies, for comparisons and for consumers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from gateway.core.errors import HeldCause
from gateway.definitions.model import Fault, Operation, Plan, Table
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.tables import ChosenColumns

__all__ = [
    "KeyColumns",
    "chosen_fault",
    "identifies",
    "key_of",
    "record_key",
    "unpublished",
    "unpublished_names",
]

KeyColumns: TypeAlias = tuple[str, ...] | None
"""Names of the key columns in table order, ``()`` for the whole row, None for no key."""


def key_of(table: Table, published: Collection[str]) -> KeyColumns:
    """Return the key of `table` when the columns `published` are published.

    The key is the replica identity; under FULL, the primary key or, without one, the whole row.
    There is no key under NOTHING or without a usable identity. A column list may omit part of the
    key if neither UPDATE nor DELETE is published; the key is then the whole row under FULL, and
    otherwise missing.
    """
    match table.replica_identity:
        case ReplicaIdentity.NOTHING:
            return None
        case ReplicaIdentity.FULL:
            complete = table.primary_key and set(table.primary_key) <= set(published)
            return table.primary_key if complete else ()
        case _:
            complete = table.identity and set(table.identity) <= set(published)
            return table.identity if complete else None


def record_key(key: KeyColumns, chosen: ChosenColumns) -> KeyColumns:
    """Return the columns of the record key, like `key_of`, of a table whose rows `key` identifies.

    Args:
        key: Result of `key_of`.
        chosen: Columns chosen for the table.
    """
    return chosen.key or key


def identifies(key: KeyColumns, chosen: ChosenColumns) -> bool:
    """Whether two rows never have the same record key, and a tombstone deletes one row."""
    return bool(key) and set(key or ()) <= set(record_key(key, chosen) or ())


def chosen_fault(
    chosen: ChosenColumns,
    published: Collection[str],
    operations: Collection[Operation],
    replica_identity: ReplicaIdentity,
    identity: Collection[str],
) -> Fault | None:
    """Return why a table cannot have the columns `chosen`; None if it can.

    Args:
        chosen: Columns chosen for the table.
        published: Its published columns.
        operations: Its published operations. INSERT and TRUNCATE need no old values.
        replica_identity: Replica identity of the relation that changes.
        identity: Columns of that identity.
    """
    is_logged = replica_identity is ReplicaIdentity.FULL
    is_logged |= {Operation.UPDATE, Operation.DELETE}.isdisjoint(operations)
    settings: tuple[tuple[HeldCause, Collection[str]], ...]
    settings = (("keys", chosen.key), ("partition_by", chosen.partition))
    for setting, names in settings:
        for name in names:
            why = f"[topics.{setting}] has its column {name!r}, "
            if name not in published:
                return Fault(f"{why}which is not published", always=True, cause=setting)
            if not is_logged and name not in identity:
                why += (
                    "whose old value an UPDATE or DELETE does not log: it is not part of the"
                    " replica identity (ALTER TABLE ... REPLICA IDENTITY FULL)"
                )
                return Fault(why, always=True, cause=setting)
    return None


def unpublished_names(plan: Plan) -> Iterator[str]:
    """Yield warnings of tables that ``[topics]`` names and the plan neither publishes nor holds."""
    for setting in ("keys", "partition_by"):
        yield from unpublished(plan, f"[topics.{setting}]", getattr(plan.topics, setting))


def unpublished(plan: Plan, setting: str, names: Iterable[str]) -> Iterator[str]:
    """Yield warnings of tables that a setting names and a plan neither publishes nor holds.

    Args:
        plan: The plan.
        setting: Name of the setting, as messages call it.
        names: Its tables, as ``schema.table``.
    """
    known = {str(plan.tables[oid]) for _, oid in plan.targets}
    known.update(f"{held.schema}.{held.table}" for held in plan.held)
    for name in sorted(set(names) - known):
        yield (
            f"{setting} has {name}, and no such table is published: write it as "
            "schema.table, without quotes inside; under publish_via_partition_root the root"
        )
