"""The plan of the definitions on the source server, read at a start and as its catalog changes.

A publication of the database can be altered, and partitions come and go, while the gateway runs.
pgoutput decodes each change with the catalog of that time; the gateway reads the current catalog.
The two are the same as long as the gateway keeps up; a gateway that lags applies the last
definition to changes before the last alteration, too. There are two exceptions. Tables that were
dropped, or had left the publications when an attempt began, stay as they were until the stream has
passed their end. And with an event trigger the stream reports alterations: each counts at its place
then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import ConfigError, DefinitionError, GatewayError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.combine import make_plan
from gateway.definitions.ddl.alterations import Alteration, read_alteration
from gateway.definitions.ddl.authentication import Key, UntrustedMessageError, authenticate
from gateway.definitions.ddl.effects import (
    DdlState,
    apply_ddl,
    as_published,
    catalog_at,
    concerns,
    published_of,
    untouched,
)
from gateway.definitions.groups import only_group
from gateway.definitions.masks import PlannedMasks, with_masks
from gateway.definitions.model import Catalog, Definitions, Fault, Plan, Table, TableId
from gateway.definitions.moving import inner_oids
from gateway.definitions.sql.parser import parse_definitions
from gateway.definitions.tables.keys import unpublished_names
from gateway.definitions.tables.listed import Listed
from gateway.definitions.tables.remembered import (
    known_tables,
    masked_before,
    oids_of,
    recall,
    texts_of,
)
from gateway.definitions.tables.retired import with_retired
from gateway.definitions.tables.shape import unseen_changes
from gateway.observe import event
from gateway.pgoutput.messages import LogicalMessage
from gateway.routing.build.followed_tables import unfollowed
from gateway.rowfilter.permitted import is_collation
from gateway.rowfilter.server.pushdown import is_exact_on, push_down
from gateway.runtime.planning.table_checks import find_faults, key_faults
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


def read_definitions(settings: Settings, *, masks: bool = True) -> Definitions:
    """Read and parse the definitions file; of a group only its subscriptions.

    Args:
        settings: The configuration.
        masks: Whether masks belong to them; who needs names alone needs no key of ``hash``.

    Raises:
        ConfigError: the file cannot be read, or a mask or a format is of no subscription.
        DefinitionError: it does not parse, or uses something that is not supported.
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
    _check_envelope(settings, [subscription.name for subscription in definitions.subscriptions])
    chosen = only_group(definitions, settings.source.groups, settings.group)
    if not masks:
        return chosen
    return with_masks(
        chosen,
        settings.columns.masks,
        settings.columns.hash_key,
        defined=[subscription.name for subscription in definitions.subscriptions],
    )


def _check_envelope(settings: Settings, defined: Sequence[str]) -> None:
    for key in ("subscriptions", "without_truncates"):
        for name in getattr(settings.envelope, key):
            if name not in defined:
                raise ConfigError(
                    f"there is no subscription {name!r}",
                    key=f"envelope.{key}",
                    hint=f"those in {settings.definitions.file}: {', '.join(sorted(defined))}",
                )


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
    """Return the plan of the definitions on this server.

    A table that cannot be published is held, where such tables are to be held, unless the file
    names it and is new: then it may be a mistake, and the definitions are refused as a whole. A
    table that may not be read is held whoever names it, as natively the others go on. With
    ``on_table_error = "stop"`` nothing is held.

    Args:
        settings: The configuration.
        connection: To the source.
        definitions: Parsed definitions.
        watermark: Watermark, which knows the published tables: with it a listed table may have been
            dropped, or altered so that it can no longer be published.
        ddl_state: Publications and trees at a position of the stream; None for the current ones.
        known: Tables that were published there.
        faults: Faults of tables that only their registration has shown.
        rights: Whether to hold tables that the role may not copy or publish.

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
    """Return the plan without the tables that are to be held."""
    states = () if watermark is None else watermark.copies
    same = watermark is not None and watermark.definitions == definitions.fingerprint
    published = {(s.subscription, s.schema, s.table) for s in states if same or s.state == "held"}
    listed = Listed(definitions, catalog)
    holds = settings.definitions.on_table_error == "hold"

    def holdable(subscription: str, table: Table) -> bool:
        key = (subscription, table.schema, table.name)
        return holds and (key in published or not listed.has(subscription, table))

    masked = masked_before(states) if definitions.masks else ()
    # A table whose description is lost could have got another name: then none may be unknown.
    described = all(s.taken for s in states if s.state not in ("held", "missing"))
    streamed = watermark is not None and watermark.end_lsn != ZERO_LSN
    found = dict(faults)
    while True:
        plan = make_plan(
            definitions,
            catalog,
            holdable=holdable,
            faults=found,
            prefix=settings.source.slot,
            missing_identity=settings.definitions.missing_identity,
            masked=masked,
            accepted=same and streamed and described,
        )
        plan = replace(
            plan, types=settings.types, envelope=settings.envelope, topics=settings.topics
        )
        unfit = unfollowed(plan)
        for (name, oid), error in unfit.items():
            if not holdable(name, catalog.tables[oid]):
                raise error
        noticed = find_faults(settings, connection, plan, states, rights=rights) if holds else {}
        noticed |= {table_id: Fault(error.reason) for table_id, error in unfit.items()}
        if not holds and (wrong := key_faults(settings, plan)):
            (_, oid), fault = min(wrong.items(), key=lambda one: one[0])
            raise DefinitionError(f"table {plan.tables[oid]}: {fault.reason}")
        more = {
            (name, oid): fault
            for (name, oid), fault in noticed.items()
            if (fault.always or holdable(name, catalog.tables[oid])) and (name, oid) not in found
        }
        if not more:
            # Another group's gateway may publish them.
            unknown = () if settings.group is not None else unpublished_names(plan)
            return replace(plan, warnings=(*plan.warnings, *unknown))
        found |= more


def recalled_plan(
    connection: psycopg.Connection,
    definitions: Definitions,
    plan: Plan,
    watermark: Watermark,
    *,
    was_down: bool,
    reports_ddl: bool = False,
) -> Plan:
    """Return `plan` with the relations that were dropped meanwhile, as they were published.

    If the gateway `was_down`, those that have left a publication or a tree are included as well.
    Between two attempts without a pause there was no time for that, and it would count too late.
    If the stream `reports_ddl` how publications are altered, everything is as it was until it does.

    Raises:
        TransientError: the connection is gone.
    """
    states = [_checked(connection, state) for state in watermark.copies]
    recalled = recall(
        plan,
        states,
        existing_relations(connection, oids_of(states)),
        same_definitions=(was_down or reports_ddl)
        and definitions.fingerprint == watermark.definitions,
        exactly=reports_ddl,
    )
    if not definitions.masks:
        return recalled
    masks = PlannedMasks(definitions, Catalog(recalled.tables, {}), masked_before(states))
    publishes = (
        masks.restored(p, recalled.tables[p.target_oid])
        if (p.subscription, p.relation_oid) in recalled.earlier
        else p
        for p in recalled.publishes
    )
    return replace(recalled, publishes=tuple(publishes))


def _checked(connection: psycopg.Connection, state: CopyState) -> CopyState:
    """Return a state, without its description if that is not what a gateway writes."""
    try:
        filters, collations = texts_of(state)
        check_filters(connection, filters)
        because = next((c for c in collations if not is_collation(c)), None)
    except (ValueError, KeyError, TypeError, AttributeError, UntrustedMessageError) as error:
        because = str(error)
    if because is None:
        return state
    event(
        _LOG,
        logging.WARNING,
        "description of a table ignored: no gateway writes what Kafka has",
        subscription=state.subscription,
        relation=f"{state.schema}.{state.table}",
        because=because,
    )
    return replace(state, taken="")


def _oids_of(ddl_state: DdlState, known: Mapping[int, Table]) -> set[int]:
    listed = {r.table_oid for p in ddl_state.publications.values() for r in p.relations}
    return listed.union(known)


class PlanReader:
    """Reader of the plan of one definitions text, for as long as an attempt lasts.

    Args:
        plan: Plan as read at the start, with recalled tables.
        before: Value of `gateway.source.catalog.watch.whole_digest` before that.
        reports_ddl: Whether the stream reports how publications of the database are altered.
        since: Position where the stream begins.

    Attributes:
        refused_filters: Number of DDL messages with a filter that was refused.
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
        """Return the current plan; None if it has not changed, or cannot be made.

        Dropped relations are in it as they were: the stream may still have rows of them. The same
        holds for those that had left a publication or a tree when the attempt began, each until the
        stream announces it once more, as it does after such a change.

        Args:
            again: OID of the relation that is announced now, and was before.

        Raises:
            TransientError: the connection is gone.
        """
        changed = self._watch.has_changed(self._connection, self._plan)
        changed = changed or (again is not None and self._has_unseen_changes(again))
        if not changed and (self._reports_ddl or again not in self._left):
            return None
        if again is not None:
            self._left.discard(again)
        return self._read()

    def _has_unseen_changes(self, relation_oid: int) -> bool:
        """Whether the targets of a relation have changed, and its Relation message has not."""
        publishes = (p for p in self._plan.publishes if p.relation_oid == relation_oid)
        targets = {publish.target_oid for publish in publishes}
        for copy in self._plan.copies:  # whose filters read it
            if relation_oid in inner_oids(copy.filters):
                targets |= {copy.target_oid, relation_oid}
        return bool(targets) and has_unseen_changes(self._connection, self._plan, targets)

    def apply_ddl(self, content: bytes, commit_lsn: Lsn) -> Plan | None:
        """Return the plan from a DDL message on; None if it has not changed, or cannot be made.

        A table whose filter cannot be checked is published as in the catalog.

        Raises:
            UntrustedMessageError: it cannot be parsed.
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

    def settle(self, plan: Plan, definitions: Definitions, read_at: Lsn) -> Plan:
        """Return a plan that comes into force, with the DDL messages since it was read."""
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
        if plan == self._plan and not unseen_changes(self._plan.tables, plan):
            return None
        self._plan = plan
        return plan
