"""Check whether an announced relation can be published as planned. Pure.

The plan was made from the catalog as of another time, and checked against that by
`gateway.definitions.combine.find_problems`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gateway.definitions.masks import reused_name
from gateway.definitions.model import IDENTIFYING, Operation, Publish, Table
from gateway.definitions.moving import unlogged
from gateway.definitions.tables.keys import key_of
from gateway.pgoutput.messages import Relation, ReplicaIdentity
from gateway.routing.build.publication_history import Publishes
from gateway.routing.row.filters import Filters

__all__ = ["mismatch_of", "published_as", "targets_of", "targets_of_changes"]


def published_as(relation_oid: int, publishes: Iterable[Publish]) -> list[Publish]:
    """Return the publish of an announced relation for each subscription.

    A tree that is read under its root has one for every leaf. They are alike, except that leaves
    without an identity lack updates and deletes. The root has them nevertheless: a leaf that had
    them may have left since. The subscription gets no operation that a leaf with an identity lacks,
    even if the server sends it for others.
    """
    widest: dict[str, Publish] = {}
    denied: dict[str, set[Operation]] = {}
    for publish in publishes:
        lacked = set(Operation) - publish.operations - publish.omitted
        denied.setdefault(publish.subscription, set()).update(lacked)
        if publish.relation_oid != relation_oid:
            publish = replace(publish, operations=publish.operations | publish.omitted)
        known = widest.setdefault(publish.subscription, publish)
        if len(publish.operations) > len(known.operations):
            widest[publish.subscription] = publish
    return [
        replace(one, operations=one.operations - (one.omitted & denied[name]))
        for name, one in widest.items()
    ]


def targets_of(publishes: Publishes, oids: Iterable[int]) -> set[tuple[str, int]]:
    """Return subscription and OID of the tables as which relations are published."""
    found = [publish for oid in oids for publish in publishes.get(oid, ())]
    return {(publish.subscription, publish.target_oid) for publish in found}


def targets_of_changes(before: Publishes, after: Publishes) -> set[int]:
    """Return the OIDs of the tables with a relation whose publication differs."""
    oids = {oid for oid in before.keys() | after.keys() if before.get(oid) != after.get(oid)}
    changed = (*targets_of(before, oids), *targets_of(after, oids))
    return {target_oid for _, target_oid in changed}


def mismatch_of(
    publish: Publish,
    relation: Relation,
    filters: Filters,
    planned: Table,
    present: Iterable[tuple[Table, Table | None]] = (),
) -> str | None:
    """Return why `publish` cannot receive the rows of `relation`, or None.

    Columns that the replica identity already lacked in the plan are not missed. The identity of a
    partition that is published as an ancestor is not checked, unless the filter reads other tables.

    Args:
        publish: One of the relation's publishes.
        relation: Relation as announced.
        filters: Row filters of the plan.
        planned: Table of `publish` as it was when the plan was made.
        present: That table and the announced one, each as planned and as it is, or None if it was
            dropped; needed only with masks.
    """
    names = {column.name for column in relation.columns}
    if publish.columns is not None and not names.issuperset(publish.columns):
        return "a column of its column list is gone"
    direct = publish.relation_oid == publish.target_oid == relation.relation_oid
    masked = {name for name, _ in publish.masks}
    for before, now in present if masked else ():
        numbers = {column.attnum: column.name for column in before.columns}
        if now is not None and reused_name(numbers, now.columns, masked) is not None:
            return "another column has the name of a masked one"
        known = [before] if now is None else [before, now]
        if before.oid == relation.relation_oid and not any(
            _has_columns(table, relation, publish.target_oid) for table in known
        ):
            return "one of its columns may be a masked one that was renamed"
    identity = {column.name for column in relation.columns if column.is_key}
    full = relation.replica_identity is ReplicaIdentity.FULL
    had = names if planned.replica_identity is ReplicaIdentity.FULL else {*planned.identity}
    for operation, clauses in publish.filters.items():
        read = {name for clause in clauses for name in filters.of(clause).columns}
        if not names.issuperset(read):
            return "a column of its row filter is gone"
        identified = operation in publish.operations and operation in IDENTIFYING
        if identified and direct and not full and not identity.issuperset(read & had):
            return "a column of its row filter is not in its replica identity any more"
        if identified and not direct and any(clause.formula for clause in clauses):
            key = key_of(planned, publish.columns or [column.name for column in planned.columns])
            missing = unlogged(relation.replica_identity, identity, {*read, *(key or ())})
            if missing is not None:
                return f"column {missing} is not part of the replica identity of a partition"
    return None


def _has_columns(table: Table, relation: Relation, target_oid: int) -> bool:
    """Whether `table` has the columns of `relation`, in their order.

    The order never changes: where two columns have exchanged their names, the names are in another
    one. The description of a partition that was gone at the start has the order of its root.
    """
    sent = [column.name for column in relation.columns]
    known = [column.name for column in table.columns if column.name in sent]
    is_as_its_root = table.kind == "p" and table.oid != target_oid
    return sorted(sent) == sorted(known) if is_as_its_root else sent == known
