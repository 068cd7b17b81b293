"""The plan of a running gateway, which follows its source's catalog.

`gateway.runtime.planning.plan` says which catalog counts for which change.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import replace
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.copy import Snapshot
from gateway.core.errors import GatewayError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import Watermark
from gateway.definitions.ddl.alterations import Alteration, read_alteration
from gateway.definitions.ddl.authentication import Key, UntrustedMessageError, authenticate
from gateway.definitions.ddl.effects import (
    DdlState,
    apply_ddl,
    as_published,
    concerns,
    published_of,
    untouched,
)
from gateway.definitions.model import Definitions, Plan
from gateway.definitions.moving import inner_oids
from gateway.definitions.tables.inner import other_trees
from gateway.definitions.tables.retired import with_retired
from gateway.definitions.tables.shape import unseen_changes
from gateway.observe import event
from gateway.pgoutput.messages import LogicalMessage
from gateway.runtime.planning.plan import read_plan
from gateway.source.catalog.shapes import has_unseen_changes
from gateway.source.catalog.tables import existing_relations
from gateway.source.catalog.watch import CatalogWatch
from gateway.source.filters.immutable import check_filters
from gateway.source.provisioning.trigger_installation import read_key
from gateway.source.session.visibility import read_snapshot, wait_until_visible

__all__ = ["PlanReader"]

_LOG: Final = logging.getLogger(__name__)
_KEY_LOOK_S: Final = 1.0
_KEYS: Final = 4
_DDL_XIDS: Final = 1_000
"""Transactions that are kept: a later one of them can be visible before an earlier one."""


class PlanReader:
    """Reader of the plan of one definitions text, for as long as an attempt lasts.

    Args:
        plan: Plan as read at the start, with recalled tables.
        before: Value of `gateway.source.catalog.watch.whole_digest` before that.
        reports_ddl: Whether the stream reports how publications of the database are altered.
        since: Position where the stream begins.

    Attributes:
        refused_filters: Number of DDL messages with a filter that was refused.
        altered_trees: OIDs of the partitioned tables, with those above, whose partitions the last
            DDL message is about.
    """

    def __init__(
        self,
        settings: Settings,
        connection: psycopg.Connection,
        definitions: Definitions,
        plan: Plan,
        watermark: Watermark,
        *,
        before: str,
        reports_ddl: bool = False,
        since: Lsn = ZERO_LSN,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._definitions = definitions
        self._plan = plan
        self._watermark = watermark
        self._watch = CatalogWatch(definitions, before)
        self._left = {relation_oid for _, relation_oid in plan.earlier}
        self._reports_ddl = reports_ddl
        self._since = max(since, watermark.end_lsn)
        self._published = published_of(definitions)
        self.refused_filters = 0
        self.altered_trees: frozenset[int] = frozenset()
        self._ddl_state: DdlState | None = None
        self._ddl_xids: deque[int] = deque(maxlen=_DDL_XIDS)
        self._snapshot: Snapshot | None = None
        self._keys: tuple[Key, ...] = ()
        self._next_look = 0.0
        self._visible: int | None = None
        defined = {publication.name for publication in definitions.publications}
        self._defined = {
            s.name for s in definitions.subscriptions if not defined.isdisjoint(s.publications)
        }

    def current_plan(self, repeated: int | None, xid: int | None) -> Plan | None:
        """Return the current plan; None if it has not changed, or cannot be made.

        Dropped relations are in it as they were: the stream may still have rows of them. The same
        holds for those that had left a publication or a tree when the attempt began, each until the
        stream announces it once more, as it does after such a change.

        Args:
            repeated: OID of the relation that is announced now, if it was before.
            xid: Committed transaction that announces it, and may have altered it; None if it is
                prepared.

        Raises:
            TransientError: the connection is gone, or other sessions do not see the transaction.
        """
        self._wait_for(xid)
        changed = self._watch.has_changed(self._connection, self._plan)
        changed = changed or (repeated is not None and self._has_unseen_changes(repeated))
        if not changed and (self._reports_ddl or repeated not in self._left):
            return None
        if repeated is not None:
            self._left.discard(repeated)
        return self._read()

    def _has_unseen_changes(self, relation_oid: int) -> bool:
        """Whether the targets of a relation have changed, and its Relation message has not."""
        publishes = (p for p in self._plan.publishes if p.relation_oid == relation_oid)
        targets = {publish.target_oid for publish in publishes}
        for copy in self._plan.copies:  # whose filters read it
            for oid in inner_oids(copy.filters):
                if relation_oid in (oid, *self._plan.tables[oid].leaves):
                    targets |= {copy.target_oid, oid}
        return bool(targets) and has_unseen_changes(self._connection, self._plan, targets)

    def apply_ddl(self, content: bytes, xid: int) -> Plan | None:
        """Return the plan from a DDL message on; None if it has not changed, or cannot be made.

        A table whose filter cannot be checked is published as in the catalog.

        Raises:
            UntrustedMessageError: it cannot be parsed.
            TransientError: the connection is gone.
        """
        now = read_alteration(content, self._published)
        before = self._ddl_state or DdlState()
        ddl_state = apply_ddl(before, now, self._since)
        tables = self._plan.tables
        self.altered_trees = frozenset(
            oid
            for tree in now.trees
            for oid in (tree, *(tables[tree].ancestors if tree in tables else ()))
        )
        matters = concerns(self._plan, now, ddl_state)
        if matters or ddl_state.has_base != before.has_base:
            ddl_state = replace(ddl_state, refused=ddl_state.refused | self._refused(now))
        if matters or ddl_state.has_base:
            self._ddl_state = ddl_state  # partitions of a tree that is attached later are in it
        if not matters:
            return None
        if ddl_state.is_same(before) and self._sees(xid):
            return None  # an ALTER TYPE, which the catalog had when it was read
        self._ddl_xids.append(xid)
        self._wait_for(xid)
        return self._read()

    def _wait_for(self, xid: int | None) -> None:
        """Wait until the catalog shows what a committed transaction has changed."""
        if xid is not None and xid != self._visible:
            wait_until_visible(self._connection, xid)
            self._visible = xid

    def _sees(self, xid: int) -> bool:
        """Whether the catalog had what a transaction has changed when it was read last."""
        return self._snapshot is not None and self._snapshot.sees(xid)

    def _refused(self, now: Alteration) -> set[str]:
        """Return filters of a message that cannot be checked, or that no publication can have."""
        try:
            check_filters(self._connection, now.filters)
        except UntrustedMessageError:
            pass
        else:
            return set()
        found = set()
        for name, relation in (
            (p.name, r) for p in now.publications.values() for r in p.relations if r.where
        ):
            try:
                check_filters(self._connection, [relation.where or ""])
            except UntrustedMessageError as error:
                found.add(relation.where or "")
                event(
                    _LOG,
                    logging.WARNING,
                    "table published as in the catalog: a DDL message's filter cannot be checked",
                    publication=name,
                    oid=relation.table_oid,
                    because=str(error).partition("\n")[0],
                )
        self.refused_filters += 1
        return found

    def authenticate(self, message: LogicalMessage, xid: int | None) -> bytes:
        """Return the body of a DDL message that the event triggers have written.

        The key is looked up again when it does not match, at intervals: any role can write messages
        that match none.

        Raises:
            UntrustedMessageError: the event triggers have not written it, or it cannot be parsed.
            TransientError: the connection is gone.
        """
        if not self._reports_ddl:  # or the triggers are new: the next attempt reads their messages
            raise UntrustedMessageError("unexpected", "there were no event triggers at the start")
        try:
            return authenticate(message, xid, self._keys)
        except UntrustedMessageError as error:
            if error.reason != "forged" or time.monotonic() < self._next_look:
                raise
        self._next_look = time.monotonic() + _KEY_LOOK_S
        key = read_key(self._connection)
        if key is not None and key not in self._keys:
            # The one before stays: messages from before it was replaced may still come.
            self._keys = (key, *self._keys)[:_KEYS]
        return authenticate(message, xid, self._keys)

    def stream_plan(self) -> Plan | None:
        """Return the plan according to DDL messages; None before the first one."""
        return None if self._ddl_state is None else self._plan

    def settle(self, plan: Plan, definitions: Definitions, snapshot: Snapshot) -> Plan:
        """Return a plan that comes into force, with the DDL messages that it was read without.

        Args:
            plan: The plan.
            definitions: Its definitions.
            snapshot: Snapshot from before it was read.
        """
        same = definitions.fingerprint == self._definitions.fingerprint
        if same and not all(map(snapshot.sees, self._ddl_xids)):
            return as_published(plan, self._plan.publishes)
        return plan

    def _read(self) -> Plan | None:
        ddl_state = self._ddl_state
        self._snapshot = read_snapshot(self._connection)
        try:
            plan = read_plan(
                self._settings,
                self._connection,
                self._definitions,
                self._watermark,
                ddl_state=ddl_state,
                known=self._plan.tables if ddl_state is not None else {},
                rights=False,
            )
        except TransientError:
            raise
        except GatewayError as error:
            event(
                _LOG,
                logging.ERROR,
                "definitions refused after a change of the catalog, the old ones stay in force",
                error=error.message,
                hint=error.hint or "",
            )
            return None
        gone = set(self._plan.tables) - existing_relations(self._connection, self._plan.tables)
        before = self._plan
        stay: set[tuple[str, int]] = set()
        if ddl_state is not None:
            stay = untouched(before, plan, ddl_state, gone)
            kept = [
                p
                for p in before.publishes
                if p.subscription in self._defined or (p.subscription, p.relation_oid) in stay
            ]
            before = replace(before, publishes=tuple(kept))
        plan = with_retired(plan, before, gone | self._left, self._left, stay)
        if self._reports_ddl and ddl_state is None:
            plan = with_retired(plan, before, before.tables, before.tables)
        was = self._plan.tables
        if plan == self._plan and not (unseen_changes(was, plan) or other_trees(was, plan)):
            return None
        self._plan = plan
        return plan
