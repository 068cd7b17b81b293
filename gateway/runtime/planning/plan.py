"""The plan: what the definitions mean on the source server, now and as its catalog changes.

A publication of the database can be altered, and partitions come and go, while the gateway runs.
pgoutput decodes each change with the catalog of its moment; what the gateway reads is the catalog
of now. The two are the same as long as the gateway keeps up; one that is behind takes the changes
before the last alteration by the last definition already. Not so what was dropped, or had left the
publications when an attempt began: it stays as it was until the stream has passed its end. And not
so where an event trigger has the stream tell of alterations: each counts at its place then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import ConfigError, GatewayError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.records import CopyState, Watermark
from gateway.definitions.combine import TableId, make_plan
from gateway.definitions.ddl.alterations import Alteration, read_alteration
from gateway.definitions.ddl.effects import (
    DdlState,
    apply_ddl,
    as_published,
    catalog_at,
    concerns,
    published_of,
    untouched,
)
from gateway.definitions.ddl.messages import Key, UnbelievedError, open_message
from gateway.definitions.groups import only_group
from gateway.definitions.model import Catalog, Definitions, Fault, Plan, Table
from gateway.definitions.sql.parser import parse_definitions
from gateway.definitions.tables.listed import Listed
from gateway.definitions.tables.remembered import known_tables, oids_of, recall, texts_of
from gateway.definitions.tables.retired import with_retired
from gateway.definitions.tables.shape import unseen_changes
from gateway.observe import event
from gateway.pgoutput.messages import LogicalMessage
from gateway.rowfilter.permitted import is_collation
from gateway.rowfilter.server.pushdown import is_exact_on, push_down
from gateway.runtime.planning.table_checks import find_faults
from gateway.source.catalog.catalog import read_catalog
from gateway.source.catalog.shapes import has_unseen_changes
from gateway.source.catalog.tables import existing_relations
from gateway.source.catalog.watch import CatalogWatch
from gateway.source.filters.immutable import check_filters
from gateway.source.provisioning.trigger_installation import read_key
from gateway.source.session.connection import wal_flush_lsn
from schemas.settings.text_files import LONGEST_FILE, read_text

__all__ = ["PlanReader", "read_definitions", "read_plan", "recalled_plan"]

_LOG: Final = logging.getLogger(__name__)
_KEY_LOOK_S: Final = 1.0
_KEYS: Final = 4


def read_definitions(settings: Settings) -> Definitions:
    """Read and parse the definitions file; of a group only its subscriptions.

    Raises:
        ConfigError: the file cannot be read.
        DefinitionError: it does not parse, or says what is not supported.
    """
    path = settings.definitions.file
    try:
        text = read_text(path, LONGEST_FILE)
    except FileNotFoundError:
        raise ConfigError(f"the file {path} does not exist", key="definitions.file") from None
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigError(why, key="definitions.file") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not text in UTF-8", key="definitions.file") from error
    definitions = parse_definitions(text)
    if not definitions.subscriptions:
        raise ConfigError(
            f"{path} defines no subscription",
            key="definitions.file",
            hint="add a line like: CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;",
        )
    return only_group(definitions, settings.source.groups, settings.group)


def read_plan(
    settings: Settings,
    connection: psycopg.Connection,
    definitions: Definitions,
    watermark: Watermark | None = None,
    *,
    ddl_state: DdlState | None = None,
    known: Mapping[int, Table] = MappingProxyType({}),
    faults: Mapping[TableId, Fault] = MappingProxyType({}),
    rights: bool = True,
) -> Plan:
    """Return what follows from the definitions on this server.

    A table that cannot be published is held, where such tables are to be held, unless the file
    names it and is new: then it may be a mistake, and the definitions are refused as a whole. A
    table that may not be read is held whoever names it, as natively the others go on. With
    ``on_table_error = "stop"`` nothing is held.

    Args:
        settings: The configuration.
        connection: To the source.
        definitions: As parsed.
        watermark: Which tables have been published: with it a table that is listed and was dropped
            is no error; nor is one that was altered so that it cannot be published any more.
        ddl_state: Publications and trees at a position of the stream; without it they are as of
            now.
        known: The tables that were published there.
        faults: Tables that are held for what only their registration has shown, and why.
        rights: Tables are about to be copied and published: hold those that the role may not.

    Raises:
        DefinitionError: the definitions cannot be served.
        TransientError: the connection is gone.
    """
    states = () if watermark is None else watermark.copies
    catalog = read_catalog(
        connection,
        definitions,
        known_tables(states),
        () if ddl_state is None else _oids_of(ddl_state, known),
    )
    if ddl_state is not None:
        catalog = catalog_at(catalog, ddl_state, known)
    plan = _vetted(settings, connection, definitions, catalog, watermark, faults, rights=rights)
    if settings.filters.pushdown and is_exact_on(connection.info.server_version):
        return push_down(plan, definitions)
    return plan


def _vetted(
    settings: Settings,
    connection: psycopg.Connection,
    definitions: Definitions,
    catalog: Catalog,
    watermark: Watermark | None,
    faults: Mapping[TableId, Fault],
    *,
    rights: bool,
) -> Plan:
    """Make the plan without the tables that are to be held."""
    states = () if watermark is None else watermark.copies
    same = watermark is not None and watermark.definitions == definitions.fingerprint
    published = {(s.subscription, s.schema, s.table) for s in states if same or s.state == "held"}
    listed = Listed(definitions, catalog)
    holds = settings.definitions.on_table_error == "hold"

    def holdable(subscription: str, table: Table) -> bool:
        key = (subscription, table.schema, table.name)
        return holds and (key in published or not listed.has(subscription, table))

    found = dict(faults)
    while True:
        plan = make_plan(
            definitions,
            catalog,
            holdable=holdable,
            faults=found,
            prefix=settings.source.slot,
            missing_identity=settings.definitions.missing_identity,
        )
        noticed = find_faults(settings, connection, plan, states, rights=rights) if holds else {}
        more = {
            (name, oid): fault
            for (name, oid), fault in noticed.items()
            if (fault.always or holdable(name, catalog.tables[oid])) and (name, oid) not in found
        }
        if not more:
            return plan
        found |= more


def recalled_plan(
    connection: psycopg.Connection,
    definitions: Definitions,
    plan: Plan,
    watermark: Watermark,
    *,
    was_down: bool,
    tells: bool = False,
) -> Plan:
    """Return `plan` with what was published of relations that were dropped meanwhile.

    And, where the gateway `was_down`, of those that have left a publication or a tree. Where one
    attempt has followed another at once there was no time for that, and it would count too late.
    Where the stream `tells` how publications are altered, all is as it was until it does.

    Raises:
        TransientError: the connection is gone.
    """
    states = [_believed(connection, state) for state in watermark.copies]
    return recall(
        plan,
        states,
        existing_relations(connection, oids_of(states)),
        same_definitions=(was_down or tells) and definitions.fingerprint == watermark.definitions,
        exactly=tells,
    )


def _believed(connection: psycopg.Connection, state: CopyState) -> CopyState:
    """Return a state without what it remembers, where that is not what a gateway has written."""
    try:
        filters, collations = texts_of(state)
        check_filters(connection, filters)
        because = next((c for c in collations if not is_collation(c)), None)
    except (ValueError, KeyError, TypeError, AttributeError, UnbelievedError) as error:
        because = str(error)
    if because is None:
        return state
    event(
        _LOG,
        logging.WARNING,
        "how a table was published is ignored: Kafka has it in a form that no gateway writes",
        subscription=state.subscription,
        relation=f"{state.schema}.{state.table}",
        because=because,
    )
    return replace(state, taken="")


def _oids_of(ddl_state: DdlState, known: Mapping[int, Table]) -> set[int]:
    listed = {r.table_oid for p in ddl_state.publications.values() for r in p.relations}
    return listed.union(known)


class PlanReader:
    """Reads the plan of one definitions text anew, for as long as an attempt lasts.

    Args:
        plan: As it was read at the start, with what was recalled.
        before: What `gateway.source.catalog.watch.whole_digest` said before that.
        tells: The stream tells how publications of the database are altered.
        since: Position where the stream begins.

    Attributes:
        refused_filters: Number of DDL messages with a filter that was not believed.
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
        tells: bool = False,
        since: Lsn = ZERO_LSN,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._definitions = definitions
        self._plan = plan
        self._watermark = watermark
        self._watch = CatalogWatch(definitions, before)
        self._left = {relation_oid for _, relation_oid in plan.earlier}
        self._tells = tells
        self._since = max(since, watermark.end_lsn)
        self._published = published_of(definitions)
        self.refused_filters = 0
        self._ddl_state: DdlState | None = None
        self._ddl_at = ZERO_LSN
        self._read_at = ZERO_LSN
        self._keys: tuple[Key, ...] = ()
        self._next_look = 0.0
        defined = {publication.name for publication in definitions.publications}
        self._defined = {
            s.name for s in definitions.subscriptions if not defined.isdisjoint(s.publications)
        }

    def now(self, again: int | None) -> Plan | None:
        """Return the plan as of now; None when it is as it was, or cannot be made.

        Relations that were dropped are in it as they were: the stream may still have rows of them.
        So are those that had left a publication or a tree when the attempt began, each until the
        stream announces it once more, as it does behind such a change.

        Args:
            again: The OID of the relation that is announced now, and was before.

        Raises:
            TransientError: the connection is gone.
        """
        changed = self._watch.has_changed(self._connection, self._plan)
        changed = changed or (again is not None and self._has_unseen_changes(again))
        if not changed and (self._tells or again not in self._left):
            return None
        if again is not None:
            self._left.discard(again)
        return self._read()

    def _has_unseen_changes(self, relation_oid: int) -> bool:
        """Whether what a relation is published as has changed, and the relation reads the same."""
        publishes = (p for p in self._plan.publishes if p.relation_oid == relation_oid)
        targets = {publish.target_oid for publish in publishes}
        return bool(targets) and has_unseen_changes(self._connection, self._plan, targets)

    def apply_ddl(self, content: bytes, commit_lsn: Lsn) -> Plan | None:
        """Return the plan from a message on that tells how publications were altered.

        None when it is as it was, or cannot be made. A table whose filter cannot be checked is as
        in the catalog.

        Raises:
            UnbelievedError: it does not read.
            TransientError: the connection is gone.
        """
        now = read_alteration(content, self._published)
        before = self._ddl_state or DdlState()
        ddl_state = apply_ddl(before, now, self._since)
        matters = concerns(self._plan, now, ddl_state)
        if matters or ddl_state.has_base != before.has_base:
            ddl_state = replace(ddl_state, refused=ddl_state.refused | self._refused(now))
        if matters or ddl_state.has_base:
            self._ddl_state = ddl_state  # partitions of a tree that is attached later are in it
        if not matters:
            return None
        if ddl_state.is_same(before) and commit_lsn < self._read_at:
            return None  # an ALTER TYPE, which the catalog had when it was read
        self._ddl_at = commit_lsn
        return self._read()

    def _refused(self, now: Alteration) -> set[str]:
        """Return filters of a message that cannot be checked, or that no publication can have."""
        try:
            check_filters(self._connection, now.filters)
        except UnbelievedError:
            pass
        else:
            return set()
        found = set()
        for name, relation in (
            (p.name, r) for p in now.publications.values() for r in p.relations if r.where
        ):
            try:
                check_filters(self._connection, [relation.where or ""])
            except UnbelievedError as error:
                found.add(relation.where or "")
                event(
                    _LOG,
                    logging.WARNING,
                    "a table is published as in the catalog: the filter that a DDL message has for "
                    "it cannot be checked",
                    publication=name,
                    oid=relation.table_oid,
                    because=str(error).partition("\n")[0],
                )
        self.refused_filters += 1
        return found

    def believe(self, message: LogicalMessage, xid: int | None) -> bytes:
        """Return the body of a DDL message that the event triggers have written.

        The key is looked up again when it does not fit, once in a while: any role can write
        messages that do not fit any.

        Raises:
            UnbelievedError: somebody else has written it, or it does not read.
            TransientError: the connection is gone.
        """
        if not self._tells:  # or somebody has just made the triggers; the next attempt listens
            raise UnbelievedError("unexpected", "there were no event triggers at the start")
        try:
            return open_message(message, xid, self._keys)
        except UnbelievedError as error:
            if error.reason != "forged" or time.monotonic() < self._next_look:
                raise
        self._next_look = time.monotonic() + _KEY_LOOK_S
        key = read_key(self._connection)
        if key is not None and key not in self._keys:
            # The one before stays: messages from before it was replaced may still come.
            self._keys = (key, *self._keys)[:_KEYS]
        return open_message(message, xid, self._keys)

    def stream_plan(self) -> Plan | None:
        """Return the plan according to DDL messages; None before the first one."""
        return None if self._ddl_state is None else self._plan

    def settle(self, plan: Plan, definitions: Definitions, read_at: Lsn) -> Plan:
        """Return a plan that takes over, with what the stream has told since it was read."""
        same = definitions.fingerprint == self._definitions.fingerprint
        if same and self._ddl_at > read_at:
            return as_published(plan, self._plan.publishes)
        return plan

    def _read(self) -> Plan | None:
        ddl_state = self._ddl_state
        self._read_at = wal_flush_lsn(self._connection)
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
                "the catalog has changed so that the definitions are refused, the old ones stay",
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
        if self._tells and ddl_state is None:
            plan = with_retired(plan, before, before.tables, before.tables)
        if plan == self._plan and not unseen_changes(self._plan.tables, plan):
            return None
        self._plan = plan
        return plan
