"""Published tables that somebody else has taken out of the gateway's own publications.

pgoutput decodes a change with the publications of its time: whatever is written to a table while it
is in none of them is never sent, and nothing in the stream shows that. The members are therefore
compared with the committed states: a table that is not read as its state says has missed changes,
and only a copy makes up for them. A publication that does not exist is left to the stream, which
ends at the next change of any table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg

from gateway.core.watermark import CopyState
from gateway.definitions.changes import fingerprint_of
from gateway.definitions.model import (
    IDENTIFYING,
    Fault,
    Operation,
    Plan,
    Publish,
    Table,
    TableCopy,
    TableId,
)
from gateway.definitions.moving import inner_oids
from gateway.definitions.server import SUFFIXES, needs_generated
from gateway.definitions.tables.remembered import read_description
from gateway.definitions.tables.unread import unread_in
from gateway.rowfilter.server.pushdown import adds_to
from gateway.source.catalog.filter_text import RENDERING_SETTINGS
from gateway.source.catalog.locked_tables import NEXT_LOCK_TIMEOUT
from gateway.source.provisioning.publication_sql import LOCK_TIMEOUT
from gateway.source.provisioning.publication_state import Existing, read_existing
from gateway.source.session.server_errors import classify_server_error

__all__ = ["MembersWatch"]

_Connection = psycopg.Connection[Any]
_Member = tuple[str, int]
"""Name of a publication, and OID of a table in it."""

_OUT: Final = "somebody has taken it out of the gateway's publications: changes of it are missing"
_OTHERWISE: Final = (
    "somebody has altered how the gateway's publications have it: changes of it are missing"
)
_INNER: Final = (
    "somebody has altered how the gateway's publications have a table that its filter reads: "
    "changes of that one are missing"
)
_FILTERED: Final = frozenset({Operation.INSERT, *IDENTIFYING})
_UNDER_ROOTS: Final = tuple(suffix for suffix in SUFFIXES if suffix.startswith("_root"))
_UNPUBLISHED: Final = frozenset({"held", "missing", "gone"})
_TREES: Final = """
SELECT c.oid::pg_catalog.int8,
       ARRAY(SELECT a.relid::pg_catalog.int8 FROM pg_catalog.pg_partition_ancestors(c.oid) AS a)
FROM pg_catalog.pg_class AS c
WHERE c.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""


class MembersWatch:
    """Watch for changes of the gateway's own publications by others, while a process lasts.

    A member that is taken out and added again between two looks is seen as well: it has another
    row in the catalog. Losses are kept until it is committed that the tables are held: a later look
    may find all well again.

    Args:
        prefix: Prefix of the names of the publications.

    Attributes:
        has_changed: Whether the last look has found something else than the one before.
        lost: Tables of which changes are missing, which are not held yet.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before: Mapping[str, Existing] = {}
        self.has_changed = False
        self.lost: dict[TableId, Fault] = {}

    def look_at_start(
        self, connection: _Connection, plan: Plan, states: Iterable[CopyState]
    ) -> dict[TableId, Fault]:
        """Return the tables of which changes are missing, and that are not in `lost` yet.

        Args:
            connection: Connection in autocommit mode.
            plan: Plan of the start, whose publications may not be on the server yet.
            states: Committed states.

        Raises:
            FatalError, TransientError: the catalog cannot be read.
        """
        try:
            existing = _read(connection, self._prefix)
            before = self._before
            if len(existing) < len(SUFFIXES):
                return {}
            self._before = _without_filters(existing)
            published = {
                (state.subscription, state.oid): state
                for state in states
                if state.state in ("ready", "copying") and state.taken
            }
            replaced = frozenset(_replaced(before, existing))
            return self._new(_Comparison(connection, plan, existing, replaced).faults(published))
        except psycopg.Error as error:
            raise _classified(error) from None

    def look(
        self,
        connection: _Connection,
        plan: Plan,
        states: Iterable[CopyState],
        *,
        again: bool,
        coming: Plan | None = None,
    ) -> dict[TableId, Fault]:
        """Return the tables of which changes are missing, and that are not in `lost` yet.

        It takes locks of filtered tables only if there is something to compare. After an error, the
        next look compares with the same one as this.

        Args:
            connection: Connection in autocommit mode.
            plan: Plan in force.
            states: Current states.
            again: Whether to compare all tables, although the publications are as before.
            coming: Plan that is to replace `plan`, and for which the gateway may have altered the
                publications already. It may need less of a table than the other.

        Raises:
            FatalError, TransientError: the catalog cannot be read.
        """
        try:
            existing = _read(connection, self._prefix, filters=False)
            before, self.has_changed = self._before, existing != self._before
            if len(existing) < len(SUFFIXES) or not (self.has_changed or again):
                return {}
            existing = _read(connection, self._prefix, NEXT_LOCK_TIMEOUT)
            if len(existing) < len(SUFFIXES):
                return {}
            self._before = _without_filters(existing)
            published: dict[TableId, CopyState | None] = {
                (state.subscription, state.oid): state
                for state in states
                if state.state not in _UNPUBLISHED
            }
            copied = {copy.subscription for copy in plan.copies}
            published |= {table_id: None for table_id in plan.targets if table_id[0] not in copied}
            replaced = frozenset(_replaced(before, existing))
            found = _Comparison(connection, plan, existing, replaced).faults(published)
            if coming is not None and found:
                both = {table_id: published[table_id] for table_id in found}
                also = _Comparison(connection, coming, existing, replaced).faults(both)
                found = {table_id: fault for table_id, fault in found.items() if table_id in also}
            return self._new(found)
        except psycopg.Error as error:
            raise _classified(error) from None

    def forget(self) -> None:
        """Forget the last look, because the gateway has altered the publications itself."""
        self._before = {}

    def _new(self, found: Mapping[TableId, Fault]) -> dict[TableId, Fault]:
        new = {table_id: why for table_id, why in found.items() if table_id not in self.lost}
        self.lost.update(found)  # the reason may be another one by now
        return new


def _without_filters(existing: Mapping[str, Existing]) -> dict[str, Existing]:
    return {name: replace(found, filters={}) for name, found in existing.items()}


def _read(
    connection: _Connection, prefix: str, timeout: str = LOCK_TIMEOUT, *, filters: bool = True
) -> dict[str, Existing]:
    with connection.transaction():
        connection.execute(timeout.encode())
        connection.execute(RENDERING_SETTINGS)
        names = [prefix + suffix for suffix in SUFFIXES]
        return read_existing(connection, names, filters=filters)


def _classified(error: psycopg.Error) -> Exception:
    text = error.diag.message_primary or str(error)
    doing = "reading the gateway's publications"
    return classify_server_error(error.sqlstate, text, doing=doing)


def _replaced(before: Mapping[str, Existing], now: Mapping[str, Existing]) -> Iterator[_Member]:
    """Yield the members that were taken out, or published otherwise, for a while."""
    for name in before.keys() & now.keys():
        was, found = before[name], now[name]
        is_back = was.version != found.version and was.is_like(found)
        for oid in was.rows.keys() & found.rows.keys():
            if is_back or was.rows[oid] != found.rows[oid]:
                yield name, oid


@dataclass(frozen=True, slots=True)
class _Needed:
    """The part of one relation that a subscriber table needs.

    Attributes:
        unions: Filters of the rows that it needs, in one or more forms, each a union; None for all
            rows.
        generated: Whether it needs stored generated columns, which servers send from 18 on.
    """

    relation_oid: int
    operations: frozenset[Operation]
    unions: tuple[tuple[str, ...] | None, ...]
    generated: bool = False


class _Comparison:
    """Comparison of the members with what tables need.

    Args:
        connection: To the source.
        plan: A plan.
        existing: The gateway's publications, all of them.
        replaced: Members that count for nothing.
    """

    def __init__(
        self,
        connection: _Connection,
        plan: Plan,
        existing: Mapping[str, Existing],
        replaced: Set[_Member] = frozenset(),
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._members: dict[int, list[tuple[str, Existing]]] = defaultdict(list)
        for name, found in existing.items():
            for oid in found.table_oids:
                self._members[oid].append((name, found))
        self._replaced = replaced
        self._may_send_generated = connection.info.server_version >= 180000
        self._trees: dict[int, Sequence[int]] = {}  # partitions, with themselves

    def faults(self, states: Mapping[TableId, CopyState | None]) -> dict[TableId, Fault]:
        """Return the faults of tables; a state of None is that of a table that is not copied."""
        needed = {table_id: list(self._needed(table_id)) for table_id in states}
        self._read_trees(
            need.relation_oid
            for needs in needed.values()
            for need in needs
            if need.relation_oid not in self._members
        )
        suspects = {
            table_id: needs
            for table_id, needs in needed.items()
            if not all(map(self._reads, needs))
        }
        self._read_trees(need.relation_oid for needs in suspects.values() for need in needs)
        found: dict[TableId, Fault] = {}
        for table_id, needs in suspects.items():
            state = states[table_id]
            lost = [
                need
                for need in (needs if state is None else _described(state, needs))
                if self._is_still(need.relation_oid, table_id[1]) and not self._reads(need)
            ]
            if lost:
                is_out = any(not self._members_with(need.relation_oid) for need in lost)
                found[table_id] = Fault(_OUT if is_out else _OTHERWISE, cause="taken_out")
        for copy in self._plan.copies:
            table_id = (copy.subscription, copy.target_oid)
            if (state := states.get(table_id)) is not None and self._lacks_inner(copy, state):
                found.setdefault(table_id, Fault(_INNER, cause="taken_out"))
        return found

    def _needed(self, table_id: TableId) -> Iterator[_Needed]:
        for publish in self._plan.publishes_of(*table_id):
            if (publish.subscription, publish.relation_oid) not in self._plan.earlier:
                generated = needs_generated(self._plan.tables, [publish])
                yield _of(publish, generated=generated and self._may_send_generated)

    def _read_trees(self, oids: Iterable[int]) -> None:
        """Read the trees around relations, as they are now; those that were dropped have none."""
        if new := sorted(set(oids) - self._trees.keys()):
            self._trees.update(self._connection.execute(_TREES, [new]).fetchall())

    def _is_still(self, relation_oid: int, target_oid: int) -> bool:
        """Whether a relation exists, and is, or is part of, the table as which it is published."""
        tree = self._trees.get(relation_oid)
        return tree is not None and (relation_oid == target_oid or target_oid in tree)

    def _members_with(self, relation_oid: int) -> list[tuple[str, int, Existing]]:
        """Return the members by which a relation is read, and their publications."""
        return [
            (name, member, found)
            for member in {relation_oid, *self._trees.get(relation_oid, ())}
            for name, found in self._members.get(member, ())
            if (name, member) not in self._replaced
        ]

    def _reads(self, need: _Needed) -> bool:
        """Whether all is read that is needed of a relation."""
        table = self._plan.tables[need.relation_oid]
        read = (
            found.operations
            for name, member, found in self._members_with(need.relation_oid)
            if member not in found.listed
            and (found.generated or not need.generated)
            and found.via_root == name.endswith(_UNDER_ROOTS)
            and any(_passes(found.filters.get(member), union, table) for union in need.unions)
        )
        return need.operations <= frozenset[Operation]().union(*read)

    def _lacks_inner(self, copy: TableCopy, state: CopyState) -> bool:
        """Whether changes of a table that a filter reads are missing.

        Partitions are left out: `gateway.definitions.tables.inner` says how these are followed.
        """
        tables = [self._plan.tables[oid] for oid in sorted(inner_oids(copy.filters))]
        tables = [table for table in tables if not table.ancestors]
        if not tables or state.definition != fingerprint_of(self._plan, copy):
            return False  # with another definition it is copied in any case
        return not all(
            any(
                self._reads(_Needed(oid, _FILTERED, (None,)))
                for oid in (table.oid, *(table.leaves if table.kind == "p" else ()))
                if oid in self._plan.tables
            )
            for table in tables
        )


def _of(publish: Publish, *, generated: bool = False) -> _Needed:
    texts = {
        operation: [None if clause.formula else clause.text for clause in clauses]
        for operation, clauses in publish.filters.items()
        if operation in publish.operations
    }
    unions = (_union(publish.operations, texts),)
    return _Needed(publish.relation_oid, publish.operations, unions, generated)


def _union(
    operations: Set[Operation], texts: Mapping[Operation, Sequence[str | None]]
) -> tuple[str, ...] | None:
    """Return the filters of all operations; None if one of these has none."""
    found: set[str] = set()
    for operation in operations & _FILTERED:
        for text in texts.get(operation, ()) or (None,):
            if text is None:
                return None
            found.add(text)
    return tuple(sorted(found))


def _described(state: CopyState, needs: Iterable[_Needed]) -> Iterator[_Needed]:
    """Yield what a table needs and has been getting, according to its state.

    The plan may publish more by now, which is read from the time it comes into force.
    """
    if not state.taken:
        yield from needs
        return
    table, publishes = read_description(state)
    before = {
        publish.relation_oid: _of(
            publish,
            # The description has no other identity than the table's own.
            generated=needs_generated({publish.relation_oid: table, table.oid: table}, [publish]),
        )
        for publish in publishes
    }
    unread = unread_in(state.taken)
    for need in needs:
        if (was := before.get(need.relation_oid)) is None:
            continue
        operations = need.operations & was.operations
        if need.relation_oid in unread:
            # `has_unread_changes` sees what is missing of these.
            operations = operations.difference(IDENTIFYING)
        yield _Needed(
            need.relation_oid,
            operations,
            (*need.unions, *was.unions),
            need.generated and was.generated,
        )


def _passes(text: str | None, union: tuple[str, ...] | None, table: Table) -> bool:
    """Whether the filter of a member lets all rows of a union pass."""
    if text is None:
        return True
    return union is not None and not adds_to(text, union, table.columns, or_leaves=False)
