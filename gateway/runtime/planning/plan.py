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
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import ConfigError, DefinitionError, TransientError
from gateway.core.lsn import ZERO_LSN
from gateway.core.watermark import CopyState, Watermark
from gateway.definitions.combine import make_plan
from gateway.definitions.ddl.authentication import UntrustedMessageError
from gateway.definitions.ddl.effects import (
    DdlState,
    catalog_at,
)
from gateway.definitions.groups import only_group
from gateway.definitions.masks import PlannedMasks, with_masks
from gateway.definitions.model import Catalog, Definitions, Fault, Plan, Table, TableId
from gateway.definitions.sql.parser import parse_definitions
from gateway.definitions.tables.keys import unpublished_names
from gateway.definitions.tables.listed import Listed
from gateway.definitions.tables.recalled import known_tables, masked_before, oids_of, recall
from gateway.definitions.tables.remembered import texts_of
from gateway.observe import event
from gateway.routing.build.followed_tables import unfollowed
from gateway.rowfilter.permitted import is_collation
from gateway.rowfilter.server.pushdown import is_exact_on, push_down
from gateway.runtime.planning.table_checks import find_faults, key_faults
from gateway.source.catalog.catalog import read_catalog
from gateway.source.catalog.locked_tables import TableLockedError
from gateway.source.catalog.tables import existing_relations
from gateway.source.filters.immutable import check_filters
from schemas.settings.text_files import LONGEST_FILE, read_text

__all__ = ["read_definitions", "read_plan", "recalled_plan"]

_LOG: Final = logging.getLogger(__name__)


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
    readable: bool = False,
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
        readable: Whether to take all tables for readable by the role.

    Raises:
        DefinitionError: the definitions cannot be served.
        TableLockedError: a table of a filter is locked, and there is no watermark.
        TransientError: the connection is gone; or such a table is locked and cannot be held.
    """
    states = () if watermark is None else watermark.copies
    try:
        catalog = read_catalog(
            connection,
            definitions,
            known_tables(states),
            () if ddl_state is None else _oids_of(ddl_state, known),
        )
        if ddl_state is not None:
            catalog = catalog_at(catalog, ddl_state, known)
        plan = _plan_with_holds(
            settings,
            connection,
            definitions,
            catalog,
            watermark,
            faults,
            rights=rights,
            readable=readable,
        )
    except TableLockedError as error:
        if watermark is None:  # with it, the table may be held
            raise
        raise TransientError(error.message, hint=error.hint) from None
    if settings.filters.pushdown and is_exact_on(connection.info.server_version):
        return push_down(plan, definitions)
    return plan


@dataclass(frozen=True, slots=True)
class _HoldPolicy:
    """Whether a table that cannot be published is held, or refuses the definitions.

    Attributes:
        is_enabled: Whether tables are to be held at all.
        known: Subscription, schema and name of tables that were published or held before.
        listed: Tables that the definitions name.
    """

    is_enabled: bool
    known: Set[tuple[str, str, str]]
    listed: Listed

    def may_hold(self, subscription: str, table: Table) -> bool:
        """Whether a table may be held for a subscription; a new one that is named may not."""
        if not self.is_enabled:
            return False
        key = (subscription, table.schema, table.name)
        return key in self.known or not self.listed.has(subscription, table)


def _plan_with_holds(
    settings: Settings,
    connection: psycopg.Connection,
    definitions: Definitions,
    catalog: Catalog,
    watermark: Watermark | None,
    faults: Mapping[TableId, Fault],
    *,
    rights: bool,
    readable: bool,
) -> Plan:
    """Return the plan in which tables that cannot be published are held."""
    states = () if watermark is None else watermark.copies
    same = watermark is not None and watermark.definitions == definitions.fingerprint
    policy = _HoldPolicy(
        settings.definitions.on_table_error == "hold",
        {(s.subscription, s.schema, s.table) for s in states if same or s.state == "held"},
        Listed(definitions, catalog),
    )
    _check_locked(definitions, catalog, policy)
    masked = masked_before(states) if definitions.masks else ()
    # A table whose description is lost could have got another name: then none may be unknown.
    described = all(s.taken for s in states if s.state not in ("held", "missing"))
    streamed = watermark is not None and watermark.end_lsn != ZERO_LSN
    found = dict(faults)
    while True:  # what is held changes the plan, in which other tables may be at fault
        plan = make_plan(
            definitions,
            catalog,
            holdable=policy.may_hold,
            faults=found,
            prefix=settings.source.slot,
            missing_identity=settings.definitions.missing_identity,
            masked=masked,
            accepted=same and streamed and described,
        )
        plan = replace(
            plan, types=settings.types, envelope=settings.envelope, topics=settings.topics
        )
        noticed: dict[TableId, Fault] = {}
        unfit = unfollowed(plan)
        for (name, oid), error in unfit.items():
            if not policy.may_hold(name, catalog.tables[oid]):
                raise error
        if policy.is_enabled:
            noticed = find_faults(
                settings, connection, plan, states, rights=rights, readable=readable
            )
        noticed |= {
            table_id: Fault(error.reason, cause=error.cause) for table_id, error in unfit.items()
        }
        if not policy.is_enabled and (wrong := key_faults(settings, plan)):
            (_, oid), fault = min(wrong.items(), key=lambda one: one[0])
            raise DefinitionError(f"table {plan.tables[oid]}: {fault.reason}")
        more = {
            (name, oid): fault
            for (name, oid), fault in noticed.items()
            if (fault.always or policy.may_hold(name, catalog.tables[oid]))
            and (name, oid) not in found
        }
        if not more:
            # Another group's gateway may publish them.
            unknown = () if settings.group is not None else unpublished_names(plan)
            return replace(plan, warnings=(*plan.warnings, *unknown))
        found |= more


def _check_locked(definitions: Definitions, catalog: Catalog, policy: _HoldPolicy) -> None:
    """Raise if a table whose filter cannot be read now, because of a lock, may not be held.

    Raises:
        TableLockedError: such a table is locked; the catalog can be read again later.
    """
    for (name, oid), error in catalog.broken.items():
        having = (s.name for s in definitions.subscriptions if name in s.publications)
        if isinstance(error, TableLockedError) and not all(
            policy.may_hold(subscription, catalog.tables[oid]) for subscription in having
        ):
            raise error


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
