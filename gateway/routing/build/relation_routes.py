"""Routes of announced relations, built when a Relation message says something new.

For each relation the plan decides which subscriptions receive it, as which table, with which
columns, filters and schemas. Everything that the hot path needs is prepared here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from gateway.copy import ChunkedCopy
from gateway.core.errors import SchemaError, SchemaRefusedError
from gateway.core.lsn import Lsn
from gateway.core.records import Record
from gateway.core.watermark import CopyState
from gateway.definitions.ddl.alterations import PREFIX, rewritten
from gateway.definitions.ddl.authentication import Reason, UntrustedMessageError
from gateway.definitions.model import Operation, Plan, Publish, TableCopy
from gateway.definitions.moving import with_other_formulas
from gateway.definitions.tables.mask_changes import with_other_masks
from gateway.definitions.tables.shape import unseen_changes
from gateway.definitions.tables.signatures import chosen_signature, key_signature
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy
from gateway.pgoutput.messages import LogicalMessage, Relation
from gateway.pgoutput.relations import Relations
from gateway.routing.build.copy_routes import copy_route
from gateway.routing.build.held_tables import HeldTables
from gateway.routing.build.known_schemas import RequestSchemas
from gateway.routing.build.lazy_routes import LazyRoutes
from gateway.routing.build.moving_tables import MovingTables
from gateway.routing.build.projections import Projection, Projections
from gateway.routing.build.publication_history import PublicationHistory, by_relation, by_target
from gateway.routing.build.registration import register_schemas
from gateway.routing.build.relation_check import (
    mismatch_of,
    published_as,
    targets_of,
    targets_of_changes,
)
from gateway.routing.build.route_builder import RouteBuilder
from gateway.routing.build.shared_projections import SharedProjections
from gateway.routing.build.topics import Addresses
from gateway.routing.build.watched_copies import WatchedCopies
from gateway.routing.ports import (
    CatalogReader,
    Evaluator,
    Replanner,
    SchemaIds,
    UnexpectedFilterError,
)
from gateway.routing.row.binary_rows import RowToText, compile_row
from gateway.routing.row.copied_rows import CopyRoute
from gateway.routing.row.filters import Asking, Filters
from gateway.routing.row.moving_route import MovingRoute, looked_up_by
from gateway.routing.row.native import compile_rows
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.relation_route import RelationRoute
from gateway.routing.row.targets import Target
from gateway.routing.settings import RoutingSettings

__all__ = ["RelationRoutes"]


class RelationRoutes:
    """All routes in force, by the OID under which the server sends a relation.

    Attributes:
        by_oid: The routes, each of which is built when it is first looked up.
        history: Earlier publication definitions, by LSN.
        filters: Compiled row filters of the plan.
        two_phase: Names of the subscriptions that receive PREPARE markers.
        copy_invalidated: Whether a relation of a table that is being copied has changed.
        addresses: Topics that records go to.
        begins: Positions up to which another gateway has published the changes of a table: those of
            transactions that end later are published here.
        copies: Copies in progress.
        projections: Known tables and their projections.
        held: Tables that the routes no longer serve.
        settings: Settings of routing.
        ignored: Number of DDL messages that were rejected, by reason.
        schemas: Fingerprint of all tables' subjects and schemas, see `register_all`; empty before
            it, and while the registry refuses one.

    Args:
        reader: Reader of new plans when the stream shows that the plan may have changed; None if it
            never changes.
        ask_server: Whether later filters may need the server even if none of `plan` does.
        evaluator: Evaluator of the filters that are not evaluated here; required for rows that have
            one.
        moving: Tables whose filters have sub-selects, if there are any.
    """

    def __init__(
        self,
        plan: Plan,
        settings: RoutingSettings,
        catalog: CatalogReader,
        schemas: SchemaIds,
        *,
        reader: Replanner | None = None,
        ask_server: bool = False,
        evaluator: Evaluator | None = None,
        moving: MovingTables | None = None,
    ) -> None:
        self.by_oid = LazyRoutes(self._build)
        self._reader = reader
        self.history = PublicationHistory()
        self._new_plan: Plan | None = None
        self.evaluator = evaluator
        self.copy_invalidated = False
        self.begins: dict[tuple[str, int], Lsn] = {}
        self.schemas = ""
        self.copies = WatchedCopies()
        self.settings = settings
        self._catalog = catalog
        self.projections = Projections(plan, catalog)
        self._relations = Relations()
        self.filters = Filters(self.projections.tables, server=settings.server_filters)
        self.filters.expected = ask_server
        self.two_phase = [
            s.name for s in plan.subscriptions if s.two_phase and s.name not in settings.muted
        ]
        self._publishes_once = {
            (publish.subscription, publish.target_oid): publish for publish in plan.publishes
        }.values()
        self._published_tables = plan.targets
        # Those of the position that is being routed, and those of the stream's present end.
        self._publishes = self._current_publishes = by_relation(plan.publishes)
        self._by_target = (self._publishes, by_target(self._publishes))
        self.addresses = Addresses(plan, self._published_tables, settings, schemas)
        self.held = HeldTables(plan)
        self._builder = RouteBuilder(plan, settings, self.addresses, self.held, moving)
        self._open_ended = plan.open_ended
        self.ignored: Counter[Reason] = Counter()
        self._planned = plan.tables
        self._copies = {(copy.subscription, copy.target_oid): copy for copy in plan.copies}
        self._keys = {
            (copy.subscription, copy.target_oid): _signatures(
                self.projections.stored(plan.tables[copy.target_oid], copy.columns, copy.masks)
            )
            for copy in plan.copies
        }
        self.filters.compile(plan.publishes, plan.copies)

    def pop_held_markers(self, lsn: Lsn) -> list[Record]:
        """Return COPY markers, at `lsn`, of the tables that became held since the last call."""
        unmarked = self.held.pop_unmarked()
        if not unmarked:
            return []
        headers = HeaderMaker(lsn, None, None, None).make(lsn, 0, b"COPY")
        markers = []
        for subscription, oid in unmarked:
            table = self.projections.tables[oid]
            state = CopyState(subscription, table.schema, table.name, "pending", lsn)
            markers.append(self.addresses.marker(subscription, encode_copy(state), headers))
        return markers

    def announce(self, relation: Relation, xid: int | None) -> None:
        """Apply a Relation message; if it says something new, drop the relation's route.

        The new route is built at the relation's next row. A streamed transaction may announce the
        work of a subtransaction that is rolled back later; no schema should be registered for it.

        The server announces a relation again after any publication of it was altered, and applies
        the publication's new definition from then on.

        Args:
            relation: The message.
            xid: Committed transaction that it is part of; None if that is prepared.

        Raises:
            FilterError: a publication was given a filter that cannot be evaluated here.
            TransientError: the catalog cannot be read, or the first filter that needs the server
                has appeared.

        Source: rel_sync_cache_relation_cb, get_rel_sync_entry in pgoutput.c.
        """
        before = self._relations.get(relation.relation_oid)
        repeated = None if before is None else relation.relation_oid
        if self._reader is not None:
            plan = self._reader.current_plan(repeated, xid)
            if plan is not None:
                self._adopt(plan)
        if self._relations.learn(relation):
            self.by_oid.pop(relation.relation_oid, None)
            if before is not None:
                targets = {p.target_oid for p in self._publishes.get(relation.relation_oid, ())}
                self.copy_invalidated |= not targets.isdisjoint(self.copies.tables)
                if self._builder.moving is not None:
                    # The rows of its moves have other columns from here on.
                    self.copy_invalidated |= not targets.isdisjoint(self._builder.moving.tables)

    def _adopt(self, plan: Plan) -> None:
        """Apply `plan` to the tables that are already published.

        Tables that it adds have to be copied first (`gateway.runtime.reload.reloader`). The same
        applies to a table under a new name, which keeps the topic of its old name until then.
        """
        self.projections.adopt(plan)
        if self._builder.moving is not None:
            self._builder.moving.note_plan(plan)
        self.held.hold(unseen_changes(self._planned, plan))
        self.held.hold(with_other_masks(plan, self._copies, self._planned))
        self.held.hold(with_other_formulas(plan, self._copies))
        self.held.adopt(plan, self._published_tables)
        self._planned = {**plan.tables, **self._planned}
        ours = self._published_tables
        kept = [p for p in plan.publishes if (p.subscription, p.target_oid) in ours]
        self._publishes = self._current_publishes = by_relation(kept)
        asked = self.filters.ask_server
        self.filters.compile(kept)
        if self.filters.ask_server and not asked:
            raise UnexpectedFilterError(
                "a publication was given a row filter that the server evaluates",
                hint="nothing is lost: the rows are read again from the slot",
            )
        self.by_oid.clear()

    def apply_ddl(self, message: LogicalMessage, commit_lsn: Lsn, xid: int) -> None:
        """Apply a DDL message of transaction `xid`, which commits at `commit_lsn`.

        The message applies to the later changes of this transaction, and to all changes after
        `commit_lsn`; see `enter`. If it reports a rewritten table, that is copied again. Rejected
        messages are only counted.

        Raises:
            FilterError, TransientError: as `announce`.
        """
        if self._reader is None:
            return
        before, refused = self._current_publishes, self._reader.refused_filters
        try:
            content = self._reader.authenticate(message, xid)
            if message.prefix != PREFIX:
                self._apply_rewritten(rewritten(content), xid)
                return
            plan = self._reader.apply_ddl(content, xid)
        except UntrustedMessageError as error:
            self.ignored[error.reason] += 1
            return
        if self._builder.moving is not None:
            self._builder.moving.note_trees(self._reader.altered_trees)
        if self._reader.refused_filters > refused:
            self.ignored["filter"] += 1
        if plan is None:
            return
        self._adopt(plan)
        self._new_plan = plan
        if self._current_publishes != before:
            self.history.add(commit_lsn, before)
            self.copy_invalidated |= not self.copies.tables.isdisjoint(
                targets_of_changes(before, self._current_publishes)
            )

    def _apply_rewritten(self, oids: Iterable[int], xid: int | None) -> None:
        oids = list(oids)
        if self._builder.moving is not None:
            self._builder.moving.note_rewritten(oids)
        for target in targets_of(self._publishes, oids):
            if not self.copies.rewrite(target, xid):
                self.copy_rewritten([target])

    def copy_rewritten(self, targets: Iterable[tuple[str, int]]) -> None:
        """Hold tables for another copy, because their copies have rows from before the rewrite."""
        self.held.hold(dict.fromkeys(targets, "ALTER TABLE has given its rows other values"))

    def enter(self, lsn: Lsn) -> Lsn | None:
        """Use the definitions that apply at `lsn`; return their end, None for the current ones."""
        past = self.history.at(lsn)
        until, publishes = (None, self._current_publishes) if past is None else past
        if publishes is not self._publishes:
            self._publishes = publishes
            self.by_oid.clear()
        return until

    def begin_tables(self, end_lsn: Lsn) -> None:
        """Publish the tables whose position in `begins` is before the end of a transaction."""
        begun = [table_id for table_id, until in self.begins.items() if until < end_lsn]
        for table_id in begun:
            del self.begins[table_id]
        if begun:
            self.by_oid.clear()

    def pop_new_plan(self) -> Plan | None:
        """Return the plan that results from DDL messages since the last call, or None."""
        new_plan, self._new_plan = self._new_plan, None
        return new_plan

    def _build(self, relation_oid: int) -> RelationRoute | None:
        relation = self._relations.get(relation_oid)
        if relation is None:
            return None
        refused_before = {*self.addresses.refused}
        names = [column.name for column in relation.columns]
        publishes = self._usable(relation)
        asking = self.filters.asking((publish.filters for publish in publishes), names)
        projection_routes = self._projection_routes(relation, names, publishes, asking)
        self.held.mark(self.addresses.refused.keys() - refused_before)
        name = f"{relation.namespace}.{relation.name}"
        sent = [(column.name, column.type_oid) for column in relation.columns]
        to_text = self._to_text(relation_oid, name, sent)
        target_oids = {p.target_oid for p in self._publishes.get(relation_oid, ())}
        watches = self.copies.watches(target_oids, names)
        moving: Sequence[MovingRoute] = ()
        if self._builder.moving is not None:
            moving = self._builder.moving.routes(names, projection_routes)
        compiled = None
        looked_up = looked_up_by(moving)
        if to_text is None and asking is None and not watches and looked_up is not None:
            compiled = compile_rows(relation_oid, names, projection_routes, self.filters, looked_up)
        return RelationRoute(
            relation_oid,
            name,
            len(names),
            projection_routes,
            to_text,
            asking,
            watches,
            compiled,
            moving,
        )

    def _usable(self, relation: Relation) -> list[Publish]:
        """Return the publishes that `relation` still matches; hold the tables of all others."""
        usable = []
        for publish in self._publishes.get(relation.relation_oid, ()):
            table_id = (publish.subscription, publish.target_oid)
            mismatch = None
            if table_id in self._keys or publish.masks:
                planned = self._planned[publish.target_oid]
                oids = {publish.target_oid, relation.relation_oid} if publish.masks else ()
                present = [(self._planned[oid], self._catalog.table(oid)) for oid in oids]
                mismatch = mismatch_of(publish, relation, self.filters, planned, present)
            if mismatch is None:
                usable.append(publish)
            elif table_id in self._keys:
                self.held.hold({table_id: mismatch})
            else:
                self.held.lost[table_id] = mismatch
        return usable

    def truncated(self, oid: int, named: frozenset[int]) -> list[tuple[ProjectionRoute, Target]]:
        """Return the targets of a TRUNCATE of `oid`; `named` are all OIDs in its statement."""
        if self.settings.truncate == "skip":
            return []
        result = []
        for route in self.by_oid[oid].projection_routes:
            if self.is_whole(route.target_oid, oid, named):
                targets = route.targets if route.encoder.envelope.truncates else ()
                result += [(route, t) for t in targets if Operation.TRUNCATE in t.operations]
        return result

    def is_whole(self, target_oid: int, oid: int, named: Collection[int]) -> bool:
        """Whether a TRUNCATE of `oid` that names `named` leaves no row of a published table."""
        return target_oid == oid or set(self.projections.tables[target_oid].leaves) <= {*named}

    def copy_route(self, copies: Sequence[TableCopy], key: Sequence[str]) -> CopyRoute:
        """Prepare the copy of one table for the subscriptions of `copies`; `key` is its key."""
        return copy_route(
            copies,
            key,
            projections=self.projections,
            filters=self.filters,
            builder=self._builder,
        )

    @property
    def needs_replan(self) -> bool:
        """Whether a table is held or no longer matches the plan."""
        return bool(self.copy_invalidated or self.held.reasons or self.addresses.refused)

    def watch(self, route: CopyRoute, copy: ChunkedCopy, whole: Iterable[TableCopy] = ()) -> None:
        """Pass all published changes of the table of `route` to `copy` from now on.

        Args:
            route: Route of the copy.
            copy: Copy that receives the changes.
            whole: Tables that it copies completely.
        """
        self.copies.add(route, copy, whole)
        self._forget_routes(route.table.oid)

    def unwatch(self, route: CopyRoute, copy: ChunkedCopy) -> None:
        """Undo `watch`."""
        self.copies.remove(route, copy)
        self._forget_routes(route.table.oid)

    def _forget_routes(self, target_oid: int) -> None:
        """Drop the routes of all relations published as a table; they are rebuilt on demand."""
        publishes, found = self._by_target
        if publishes is not self._publishes:
            self._by_target = (self._publishes, found := by_target(self._publishes))
        for oid in found.get(target_oid, ()):
            self.by_oid.pop(oid, None)

    def truncate_copies(self, oids: Sequence[int], xid: int) -> None:
        """Pass a TRUNCATE that names `oids` to the copies."""
        self.copies.truncate(oids, xid, self.projections.tables)

    def register_all(
        self,
        holdable: Collection[tuple[str, int]] = (),
        *,
        request: RequestSchemas | None = None,
        known: str = "",
        request_later: RequestSchemas | None = None,
    ) -> dict[tuple[str, int], str]:
        """Register the schemas of every subscriber table as it is in the catalog now.

        If they are those of the fingerprint `known`, that waits until the first row of a table,
        which asks the registry for their ids in any case.

        Args:
            holdable: Subscription and OID of the tables that may be held when the registry refuses
                their schema, instead of failing.
            request: Called before with all subjects and schemas, to register several at a time what
                is then registered in order; its errors come again.
            known: Fingerprint of subjects and schemas that were all registered before.
            request_later: Called instead of `request` with those that are known, without waiting.

        Returns:
            Reasons of refusal, by table, for those of `holdable` whose schema was refused.

        Raises:
            SchemaError: a table cannot be published.
            SchemaRefusedError: its schema changed incompatibly, and the table is not in `holdable`.
        """
        fingerprint, refused = register_schemas(
            self._publishes_once,
            self.projections,
            self._builder,
            self.addresses,
            self.held,
            holdable,
            request=request,
            known=known,
            request_later=request_later,
        )
        self.schemas = "" if refused or self.addresses.refused else fingerprint

        # A type that cannot be read in binary format should fail now, not at its first row.
        for oid in self._publishes:
            table = self.projections.tables[oid]
            sent = [(c.name, c.type_oid) for c in table.columns if c.generated != "v"]
            self._to_text(oid, str(table), sent)
        return refused

    def _to_text(self, oid: int, name: str, columns: Sequence[tuple[str, int]]) -> RowToText | None:
        """Return the conversion of a relation's rows to text if the stream is in binary format."""
        if not self.settings.binary:
            return None
        read: set[str] = set()
        for publish in self._publishes.get(oid, ()):
            read.update(
                [column for column, _ in columns] if publish.columns is None else publish.columns
            )
            for clauses in publish.filters.values():
                for clause in clauses:
                    read |= self.filters.of(clause).columns
            read.update(self.copies.columns(publish.target_oid))
        return compile_row(name, columns, read, self._catalog.type_info)

    def _projection_routes(
        self,
        relation: Relation,
        names: Sequence[str],
        publishes: Sequence[Publish],
        asking: Asking | None,
    ) -> list[ProjectionRoute]:
        """Return one projection route for all publishes that share target and columns."""
        shared = SharedProjections(self._builder, self.filters, names, asking)
        for publish in published_as(relation.relation_oid, publishes):
            table_id = (publish.subscription, publish.target_oid)
            if table_id in self.begins:
                continue
            try:
                projection = self.projections.of_relation(publish, relation)
                keyed_by = _signatures(projection)
                if self._keys.get(table_id, keyed_by) != keyed_by:
                    self.held.hold({table_id: "its key has changed"})
                shared.add(publish, projection)
            except (SchemaError, SchemaRefusedError) as error:
                stops = isinstance(error, SchemaRefusedError) and table_id not in self._open_ended
                # Rows from before ALTER COLUMN TYPE, which another copy makes dispensable.
                stops &= not self.projections.differs_in_type(publish, relation)
                stops &= not self.held.is_ending(table_id)
                if stops or not self.held.withdraw(table_id, error.message):
                    raise
        return shared.routes(f"{relation.namespace}.{relation.name}")


def _signatures(projection: Projection) -> tuple[object, object]:
    """Return signatures that change whenever the keys or the partitions of rows change."""
    columns = projection.columns
    return key_signature(columns, projection.key), chosen_signature(columns, projection.chosen)
