"""Plan of the gateway's own publications: exactly the tables and operations needed. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from gateway.core.errors import ConfigError
from gateway.definitions.identity import identity_gap
from gateway.definitions.model import (
    ALL_OPERATIONS,
    IDENTIFYING,
    Operation,
    Publish,
    ServerPublication,
    Table,
)
from gateway.definitions.moving import read_columns
from gateway.pgoutput.messages import ReplicaIdentity

__all__ = ["SUFFIXES", "needs_generated", "plan_server_publications"]

SUFFIXES = ("_root", "_root_insert", "_leaf", "_leaf_insert")
"""Suffixes of the names of the gateway's own publications, in the order in which they are read.

PostgreSQL 14 looks at no more of them once it has found all operations of a partition: those under
a root come first.
"""

_NAME_BYTES = 63


def plan_server_publications(
    tables: Mapping[int, Table],
    publishes: Sequence[Publish],
    empty_roots: Mapping[int, frozenset[Operation]],
    wholes: Collection[int],
    detachable: Collection[int],
    alterable: Collection[int],
    prefix: str,
) -> tuple[ServerPublication, ...]:
    """Cover `publishes` with the fewest publications that let every write at the source succeed.

    A tree is read under its root if all subscriptions publish all its leaves under it. If not every
    leaf can publish the updates and deletes that are needed, the root is read for inserts and
    truncates, so that no row of a later partition is missed, and the leaves that can are named
    beside it: PostgreSQL publishes those as the root, too. Other trees are read by leaf. Tables
    without published updates or deletes are kept separate, so that their identity does not matter.

    Args:
        tables: Tables by OID.
        publishes: Publishes of all subscriptions.
        empty_roots: Operations of partitioned tables without a leaf, by OID.
        wholes: Partitioned tables that a publication has as a whole, including later partitions. If
            they are read by leaf, they are named instead of their leaves, so that no change of a
            partition attached meanwhile is missed.
        detachable: Partitions that stay published when they are detached, because a publication has
            them by themselves. If a tree around them is named, they are named beside it.
        alterable: Relations of publications that can be altered on the server at any time. All
            operations that their identity allows are read, so that none is missed when it becomes
            published.
        prefix: Prefix of the names.

    Raises:
        ConfigError: `prefix` is too long.
    """
    if len(prefix.encode()) + max(map(len, SUFFIXES)) > _NAME_BYTES:
        raise ConfigError(
            f"{prefix!r} is too long: the gateway's publications are named after it",
            key="source.slot",
            hint=f"use at most {_NAME_BYTES - max(map(len, SUFFIXES))} bytes",
        )
    needed: dict[int, frozenset[Operation]] = defaultdict(frozenset)
    targets: dict[int, set[int]] = defaultdict(set)
    by_target: dict[int, list[Publish]] = defaultdict(list)
    for publish in publishes:
        needed[publish.relation_oid] |= publish.operations
        if publish.relation_oid in alterable and identity_gap(tables[publish.relation_oid]) is None:
            needed[publish.relation_oid] = ALL_OPERATIONS
        targets[publish.relation_oid].add(publish.target_oid)
        by_target[publish.target_oid].append(publish)
    roots: dict[int, frozenset[Operation]] = {
        oid: operations for oid, operations in empty_roots.items() if operations
    }
    beside: set[int] = set()
    for oid, found in by_target.items():
        table = tables[oid]
        leaves = [leaf for leaf in table.leaves if leaf in needed]
        if table.kind != "p" or not leaves or any(targets[leaf] != {oid} for leaf in leaves):
            continue
        identified = {leaf for leaf in leaves if not needed[leaf].isdisjoint(IDENTIFYING)}
        is_whole = not identified or identified.issuperset(set(table.leaves) & tables.keys())
        if _are_distinct(found, identified) and (is_whole or identity_gap(table) is None):
            operations = frozenset[Operation]().union(*(needed[leaf] for leaf in leaves))
            roots[oid] = operations if is_whole else _without_updates(operations)
            beside |= set() if is_whole else identified
    covered = {leaf for oid in roots for leaf in tables[oid].leaves} - beside
    by_leaf = {oid: operations for oid, operations in needed.items() if oid not in covered}
    generated = needs_generated(tables, publishes)
    result = []
    by_tree = _by_tree(tables, by_leaf, wholes)
    for suffix, members, via_root in (("_root", roots, True), ("_leaf", by_tree, False)):
        for end, identifying in (("", True), ("_insert", False)):
            chosen = {
                oid: operations
                for oid, operations in members.items()
                if operations.isdisjoint(IDENTIFYING) is not identifying
            }
            if chosen:
                result.append(
                    ServerPublication(
                        name=prefix + suffix + end,
                        table_oids=tuple(sorted(chosen)),
                        operations=frozenset[Operation]().union(*chosen.values()),
                        via_root=via_root,
                        generated=generated,
                        detachable_oids=tuple(
                            oid
                            for oid in sorted(set(detachable) - chosen.keys())
                            if not chosen.keys().isdisjoint(tables[oid].ancestors)
                            and not (oid in by_tree and tables[oid].kind == "r")
                        ),
                    )
                )
    return tuple(result)


def _are_distinct(publishes: Iterable[Publish], identified: Collection[int]) -> bool:
    """Whether what arrives under the root is what each subscription publishes of each leaf.

    Args:
        publishes: Publishes of the leaves of one tree under its root.
        identified: Leaves of which updates and deletes arrive.
    """
    asked: dict[str, frozenset[Operation]] = defaultdict(frozenset)
    publishes = list(publishes)
    for publish in publishes:
        asked[publish.subscription] |= publish.operations
    return all(
        (publish.operations ^ asked[publish.subscription])
        <= {Operation.TRUNCATE, *(() if publish.relation_oid in identified else IDENTIFYING)}
        for publish in publishes
    )


def _without_updates(operations: frozenset[Operation]) -> frozenset[Operation]:
    return operations.difference(IDENTIFYING) or frozenset({Operation.INSERT})


def _by_tree(
    tables: Mapping[int, Table],
    leaves: Mapping[int, frozenset[Operation]],
    wholes: Collection[int],
) -> dict[int, frozenset[Operation]]:
    """Name the highest of `wholes` instead of its leaves if all of them are needed.

    If updates and deletes of only some of them are, these stay, and the tree is named without.
    """
    named = dict(leaves)
    highest_first = sorted(wholes, key=lambda oid: (len(tables[oid].ancestors), oid))
    for oid in highest_first:
        below = [leaf for leaf in tables[oid].leaves if leaf in tables]
        if not below or any(leaf not in named for leaf in below):
            continue
        operations = frozenset[Operation]().union(*(named[leaf] for leaf in below))
        plain = [leaf for leaf in below if named[leaf].isdisjoint(IDENTIFYING)]
        if plain and len(plain) < len(below):
            below, operations = plain, _without_updates(operations)
        for leaf in below:
            del named[leaf]
        named[oid] = operations
    return named


def needs_generated(tables: Mapping[int, Table], publishes: Iterable[Publish]) -> bool:
    """Whether stored generated columns are published, read by a filter, or part of an identity."""
    for publish in publishes:
        if publish.generated:
            return True  # also for columns added later
        target, table = tables[publish.target_oid], tables[publish.relation_oid]
        stored = {column.name for column in target.columns if column.generated == "s"}
        if not stored:
            continue
        if publish.columns is not None and not stored.isdisjoint(publish.columns):
            return True
        filters = {clause for clauses in publish.filters.values() for clause in clauses}
        if any(not stored.isdisjoint(read_columns(clause)) for clause in filters):
            return True
        identified = not publish.operations.isdisjoint(IDENTIFYING)
        full = table.replica_identity is ReplicaIdentity.FULL
        if identified and (full or not stored.isdisjoint(table.identity)):
            return True
    return False
