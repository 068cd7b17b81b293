"""Routes of announced relations: built when a Relation message says something new.

This is where a relation meets the plan: which subscriptions take it, as which table, with which
columns, filters and schemas. Everything the hot path needs is prepared here, per relation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from gateway.copy import ChunkedCopy
from gateway.core.errors import SchemaError, SchemaRefusedError
from gateway.core.lsn import Lsn
from gateway.core.records import CopyState, Record
from gateway.definitions.ddl.alterations import PREFIX, rewritten
from gateway.definitions.ddl.messages import Reason, UnbelievedError
from gateway.definitions.model import Operation, Plan, Publish, TableCopy
from gateway.definitions.tables.keys import key_of
from gateway.definitions.tables.remembered import key_signature
from gateway.definitions.tables.shape import unseen_changes
from gateway.envelope.envelope import EnvelopeEncoder
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy
from gateway.pgoutput.messages import LogicalMessage, Relation
from gateway.pgoutput.relations import Relations
from gateway.routing.build.projections import Form, Forms
from gateway.routing.build.publication_history import Moments, Publishes
from gateway.routing.build.relation_check import taken_of, trouble_of
from gateway.routing.build.route_builder import GroupBuilder
from gateway.routing.build.topics import Addresses
from gateway.routing.ports import (
    CatalogReader,
    Evaluator,
    Replanner,
    SchemaIds,
    UnannouncedError,
    UnexpectedFilterError,
)
from gateway.routing.row.binary_rows import RowToText, compile_row
from gateway.routing.row.copied_rows import CopyRoute, CopyWatch
from gateway.routing.row.filters import Asking, Filters
from gateway.routing.row.native import compile_rows
from gateway.routing.row.projection_route import Group
from gateway.routing.row.relation_route import RelationRoute
from gateway.routing.row.targets import Taker
from gateway.routing.settings import RoutingSettings

__all__ = ["RelationRoutes"]


class RelationRoutes:
    """All routes in force, by the OID under which the server sends a relation.

    Attributes:
        altered: A relation has changed whose table is being copied.
        addresses: Where records go.
        forms: What is known of the tables, and the forms in which they are published.
        outdated: By subscription and OID, the tables that are not as their copy has them, and why:
            of another key or values, or in such a shape that their rows could not be published.
        ignored: DDL messages that could not be believed, by reason.

    Args:
        reader: Asked for the plan when the stream shows that it may have changed; None: it does not
            change.
        ask_server: The server evaluates filters, also if none of `plan` needs that.
        evaluator: Evaluates the filters that are not evaluated here; without it no row of theirs
            can be routed.
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
    ) -> None:
        self.by_oid = _LazyRoutes(self._build)
        self._reader = reader
        self.moments = Moments()
        self._heard: Plan | None = None
        self.evaluator = evaluator
        self.altered = False
        self._watched: dict[int, list[tuple[CopyRoute, ChunkedCopy]]] = {}
        self._whole: dict[tuple[str, int], ChunkedCopy] = {}
        self._settings = settings
        self._catalog = catalog
        self.forms = Forms(plan, catalog)
        self._relations = Relations()
        self.filters = Filters(self.forms.tables, server=settings.server_filters)
        self.filters.expected = ask_server
        self.two_phase = [s.name for s in plan.subscriptions if s.two_phase]
        self._publishes_once = {
            (publish.subscription, publish.target_oid): publish for publish in plan.publishes
        }.values()
        self._taken = plan.targets
        self._publishes = self._now = _by_relation(plan.publishes)
        self.addresses = Addresses(plan, self._taken, settings, schemas)
        self._groups = GroupBuilder(plan, settings, self.addresses)
        self._copied = {(copy.subscription, copy.target_oid) for copy in plan.copies}
        self._open_ended = plan.open_ended
        self._put_aside: list[tuple[str, int]] = []
        self.outdated: dict[tuple[str, int], str] = {}
        self.ignored: Counter[Reason] = Counter()
        self._planned = plan.tables
        self._keys = {
            (copy.subscription, copy.target_oid): key_signature(
                plan.tables[copy.target_oid].columns,
                key_of(plan.tables[copy.target_oid], copy.columns),
            )
            for copy in plan.copies
        }
        self.filters.compile(plan.publishes)

    def take_put_aside(self, lsn: Lsn) -> list[Record]:
        """Return COPY markers of the tables that were put aside since the last call, at `lsn`."""
        if not self._put_aside:
            return []
        put_aside, self._put_aside = self._put_aside, []
        headers = HeaderMaker(lsn, None, None, None).make(lsn, 0, b"COPY")
        markers = []
        for subscription, oid in put_aside:
            table = self.forms.tables[oid]
            state = CopyState(subscription, table.schema, table.name, "pending", lsn)
            markers.append(self.addresses.marker(subscription, encode_copy(state), headers))
        return markers

    def announce(self, relation: Relation) -> None:
        """Take a Relation message; when it says something new, the relation's route is outdated.

        The new one is built at the relation's next row: a streamed transaction also announces what
        a subtransaction did that was rolled back later, and no schema of that should be registered.

        The server announces a relation once more when somebody has changed a publication that has
        it, be that one of ours or not; and from then on it would use that one's new definition.

        Raises:
            FilterError: a publication was given a filter that cannot be evaluated here.
            TransientError: the catalog cannot be read, or the first filter that the server
                evaluates has come.

        Source: rel_sync_cache_relation_cb, get_rel_sync_entry in pgoutput.c.
        """
        before = self._relations.get(relation.relation_oid)
        again = None if before is None else relation.relation_oid
        if self._reader is not None and (plan := self._reader.now(again)) is not None:
            self._adopt(plan)
        if self._relations.learn(relation):
            self.by_oid.pop(relation.relation_oid, None)
            if before is not None and any(self._watched.values()):
                targets = {p.target_oid for p in self._publishes.get(relation.relation_oid, ())}
                self.altered |= any(self._watched.get(target) for target in targets)

    def _adopt(self, plan: Plan) -> None:
        """Take the tables that are published already in the way that `plan` says.

        Those that it adds have to be copied first (`gateway.runtime.planning.reload`), and so has a
        table
        under a new name: its topic is the one of the name that is in force.
        """
        self.forms.adopt(plan)
        unseen = unseen_changes(self._planned, plan)
        found = unseen.keys() & self._copied - self.outdated.keys()
        self.outdated |= {taken: unseen[taken] for taken in found}
        self._put_aside += sorted(found)
        for held in plan.held:
            if (held.subscription, held.oid) in self._taken:
                self.outdated[held.subscription, held.oid] = held.reason
        kept = [p for p in plan.publishes if (p.subscription, p.target_oid) in self._taken]
        self._publishes = self._now = _by_relation(kept)
        asked = self.filters.ask_server
        self.filters.compile(kept)
        if self.filters.ask_server and not asked:
            raise UnexpectedFilterError(
                "a publication was given a row filter that the server evaluates",
                hint="nothing is lost: the rows are read again from the slot",
            )
        self.by_oid.clear()

    def hear(self, message: LogicalMessage, commit_lsn: Lsn, xid: int | None) -> None:
        """Apply a DDL message of the transaction `xid` that ends at `commit_lsn`.

        It counts for what this transaction changes from here on, and for all that is changed after
        `commit_lsn`; see `enter`. Or it names a table that was rewritten, which is copied again.
        A message that cannot be believed is counted, and nothing else.

        Raises:
            FilterError, TransientError: as `announce`.
        """
        if self._reader is None:
            return
        before, refused = self._now, self._reader.refused_filters
        try:
            content = self._reader.believe(message, xid)
            if message.prefix != PREFIX:
                self._take_rewritten(rewritten(content), xid)
                return
            plan = self._reader.hear(content, commit_lsn)
        except UnbelievedError as error:
            self.ignored[error.reason] += 1
            return
        if self._reader.refused_filters > refused:
            self.ignored["filter"] += 1
        if plan is None:
            return
        self._adopt(plan)
        self._heard = plan
        if self._now != before:
            self.moments.add(commit_lsn, before)
            copied = {oid for oid, watched in self._watched.items() if watched}
            self.altered |= any(
                copied & {p.target_oid for p in (*before.get(oid, ()), *self._now.get(oid, ()))}
                for oid in before.keys() | self._now.keys()
                if before.get(oid) != self._now.get(oid)
            )

    def _take_rewritten(self, oids: Iterable[int], xid: int | None) -> None:
        for target in taken_of(self._publishes, oids):
            copy = self._whole.get(target)
            if copy is None or xid is None or not copy.rewrite(xid):
                self.copy_rewritten([target])

    def copy_rewritten(self, targets: Iterable[tuple[str, int]]) -> None:
        """Have tables copied again, for their copies have rows from before they were rewritten."""
        found = self._copied.intersection(targets) - self.outdated.keys()
        self.outdated |= dict.fromkeys(found, "ALTER TABLE has given its rows other values")
        self._put_aside += sorted(found)

    def enter(self, lsn: Lsn) -> Lsn | None:
        """Publish as at `lsn` from now on; return up to where that holds, None: for good."""
        found = self.moments.at(lsn)
        upto, publishes = (None, self._now) if found is None else found
        if publishes is not self._publishes:
            self._publishes = publishes
            self.by_oid.clear()
        return upto

    def take_heard(self) -> Plan | None:
        """Return the plan that the stream has told since the last call, if it has told one."""
        heard, self._heard = self._heard, None
        return heard

    def _build(self, relation_oid: int) -> RelationRoute | None:
        relation = self._relations.get(relation_oid)
        if relation is None:
            return None
        aside = {*self.addresses.refused, *self.outdated}
        names = [column.name for column in relation.columns]
        publishes = self._usable(relation)
        asking = self.filters.asking((publish.filters for publish in publishes), names)
        groups = self._groups_of(relation, names, publishes, asking)
        aside_now = self.addresses.refused.keys() | self.outdated.keys()
        self._put_aside += self._copied & (aside_now - aside)
        name = f"{relation.namespace}.{relation.name}"
        sent = [(column.name, column.type_oid) for column in relation.columns]
        to_text = self._to_text(relation_oid, name, sent)
        watches = self._watches(relation, names)
        compiled = None
        if to_text is None and asking is None and not watches:
            compiled = compile_rows(relation_oid, names, groups, self.filters)
        return RelationRoute(
            relation_oid, name, len(names), groups, to_text, asking, watches, compiled
        )

    def _usable(self, relation: Relation) -> list[Publish]:
        """Return how `relation` is published, where it can be."""
        usable = []
        for publish in self._publishes.get(relation.relation_oid, ()):
            taken = (publish.subscription, publish.target_oid)
            trouble = None
            if taken in self._keys:
                planned = self._planned[publish.target_oid]
                trouble = trouble_of(publish, relation, self.filters, planned)
            if trouble is None:
                usable.append(publish)
            else:
                self.outdated[taken] = trouble
        return usable

    def truncated(self, oid: int, named: frozenset[int]) -> list[tuple[Group, Taker]]:
        """Return who must see a TRUNCATE of `oid`, in a statement that names all of `named`."""
        if self._settings.truncate == "skip":
            return []
        found = []
        for group in self.by_oid[oid].groups:
            target = self.forms.tables[group.target_oid]
            if target.oid == oid or named.issuperset(target.leaves):
                found += [(group, t) for t in group.takers if Operation.TRUNCATE in t.operations]
        return found

    def copy_route(self, copies: Sequence[TableCopy], key: Sequence[str]) -> CopyRoute:
        """Prepare the copy of one table for the subscriptions of `copies`; `key` is its key.

        The filters are evaluated as for the stream: what the copy is shown of a row decides, not
        what the server had when it was read.
        """
        table = self.forms.tables[copies[0].target_oid]
        wanted = {*key}.union(*(copy.columns for copy in copies))
        for copy in copies:
            wanted.update(*(self.filters.of(clause).columns for clause in copy.filters))
        columns = tuple(column.name for column in table.columns if column.name in wanted)
        asking = self.filters.asking(({Operation.INSERT: c.filters} for c in copies), columns)
        forms: dict[tuple[str, ...], list[TableCopy]] = {}
        for copy in copies:
            forms.setdefault(copy.columns, []).append(copy)
        groups = []
        for published, sharing in forms.items():
            form = self.forms.stored(table, published)
            encoder = self._groups.encoder(form, columns)
            takers = [self._copy_taker(copy, form, encoder, columns, asking) for copy in sharing]
            groups.append(self._groups.group(form, encoder, takers, str(table), columns))
        compiled = None
        if asking is None:
            compiled = compile_rows(table.oid, columns, groups, self.filters)
        return CopyRoute(table, columns, tuple(key), tuple(groups), asking, compiled)

    def _copy_taker(
        self,
        copy: TableCopy,
        form: Form,
        encoder: EnvelopeEncoder,
        columns: Sequence[str],
        asking: Asking | None,
    ) -> Taker:
        insert = Operation.INSERT
        lookup = self.filters.lookup(copy.filters, columns)
        return self._groups.taker(
            copy.subscription,
            form,
            encoder,
            frozenset({insert, Operation.TRUNCATE}),
            {insert: self.filters.passes(copy.filters, columns, asking)},
            {} if lookup is None else {insert: lookup},
            {insert: copy.filters},
        )

    @property
    def is_astray(self) -> bool:
        """Whether a table is put aside, or is no longer what the plan says."""
        return bool(self.altered or self.outdated or self.addresses.refused)

    def watch(self, route: CopyRoute, copy: ChunkedCopy, whole: Iterable[TableCopy] = ()) -> None:
        """Show `copy` every change that is published of the table of `route` from now on.

        Args:
            route: Of the copy.
            copy: What is shown.
            whole: What it copies from the beginning to the end.
        """
        self._watched.setdefault(route.table.oid, []).append((route, copy))
        self._whole |= {(each.subscription, each.target_oid): copy for each in whole}
        self._forget_routes(route.table.oid)

    def unwatch(self, route: CopyRoute, copy: ChunkedCopy) -> None:
        """End what `watch` has begun."""
        oid = route.table.oid
        self._watched[oid] = [each for each in self._watched[oid] if each[1] is not copy]
        self._whole = {target: each for target, each in self._whole.items() if each is not copy}
        self._forget_routes(oid)

    def _forget_routes(self, target_oid: int) -> None:
        """Build the routes of the relations that are published as a table anew."""
        for oid, publishes in self._publishes.items():
            if any(publish.target_oid == target_oid for publish in publishes):
                self.by_oid.pop(oid, None)

    def truncate_copies(self, oids: Sequence[int], xid: int) -> None:
        """Show the copies a TRUNCATE that names `oids`."""
        named = frozenset(oids)
        for target_oid, watched in self._watched.items():
            leaves = self.forms.tables[target_oid].leaves
            if target_oid in named or (leaves and named.issuperset(leaves)):
                for _, copy in watched:
                    copy.truncate(xid)

    def _watches(self, relation: Relation, names: Sequence[str]) -> list[CopyWatch]:
        targets = {p.target_oid for p in self._publishes.get(relation.relation_oid, ())}
        return [
            CopyWatch(copy, route.columns, names)
            for target in sorted(targets)
            for route, copy in self._watched.get(target, ())
        ]

    def register_all(
        self, holdable: Collection[tuple[str, int]] = ()
    ) -> dict[tuple[str, int], str]:
        """Register the schemas of every subscriber table as the catalog has it now.

        Args:
            holdable: Subscription and OID of the tables that can be held when the registry refuses
                their schema, instead of refusing everything.

        Returns:
            Those of them that it refuses, and why.

        Raises:
            SchemaError: a table cannot be published.
            SchemaRefusedError: its schema changed incompatibly; not where it is put aside then.
        """
        refused = {}
        for publish in self._publishes_once:
            table = self.forms.tables[publish.target_oid]
            columns = tuple(c.name for c in table.columns if publish.publishes(c))
            form = self.forms.stored(table, columns)
            encoder = self._groups.encoder(form, columns)
            try:
                self._groups.taker(publish.subscription, form, encoder, frozenset(), {})
            except SchemaRefusedError as error:
                table_id = (publish.subscription, publish.target_oid)
                if table_id not in holdable:
                    raise
                refused[table_id] = error.message

        # A type that cannot be read in binary format is refused now, not at its first row.
        for oid in self._publishes:
            table = self.forms.tables[oid]
            sent = [(c.name, c.type_oid) for c in table.columns if c.generated != "v"]
            self._to_text(oid, str(table), sent)
        return refused

    def _to_text(self, oid: int, name: str, columns: Sequence[tuple[str, int]]) -> RowToText | None:
        """Prepare the conversion of a relation's rows, where the stream is in binary format."""
        if not self._settings.binary:
            return None
        read: set[str] = set()
        for publish in self._publishes.get(oid, ()):
            read.update(
                [column for column, _ in columns] if publish.columns is None else publish.columns
            )
            for clauses in publish.filters.values():
                for clause in clauses:
                    read |= self.filters.of(clause).columns
            for route, _ in self._watched.get(publish.target_oid, ()):
                read.update(route.columns)
        return compile_row(name, columns, read, self._catalog.type_info)

    def _groups_of(
        self,
        relation: Relation,
        names: Sequence[str],
        publishes: Sequence[Publish],
        asking: Asking | None,
    ) -> list[Group]:
        """Bring together the publishes that share target and columns."""
        forms: dict[tuple[int, tuple[str, ...]], tuple[Form, EnvelopeEncoder, list[Taker]]] = {}
        seen: set[str] = set()
        for publish in publishes:
            if publish.subscription in seen:
                continue  # read under its root, each leaf of the tree says the same
            seen.add(publish.subscription)
            try:
                self._add(publish, relation, names, asking, forms)
            except (SchemaError, SchemaRefusedError) as error:
                taken = (publish.subscription, publish.target_oid)
                stops = isinstance(error, SchemaRefusedError) and taken not in self._open_ended
                if stops or taken not in self._copied:
                    raise
                self.outdated[taken] = error.message
        name = f"{relation.namespace}.{relation.name}"
        return [
            self._groups.group(form, encoder, takers, name, names)
            for form, encoder, takers in forms.values()
            if takers
        ]

    def _add(
        self,
        publish: Publish,
        relation: Relation,
        names: Sequence[str],
        asking: Asking | None,
        forms: dict[tuple[int, tuple[str, ...]], tuple[Form, EnvelopeEncoder, list[Taker]]],
    ) -> None:
        """Add a subscription to those that take the form in which it gets a relation.

        Raises:
            SchemaError: the relation cannot be published for it.
        """
        taken = (publish.subscription, publish.target_oid)
        form = self.forms.of_relation(publish, relation)
        keyed_by = key_signature(form.columns, form.key)
        if self._keys.get(taken, keyed_by) != keyed_by:
            self.outdated[taken] = "its key has changed"
        key = (form.target.oid, tuple(column.name for column in form.columns))
        if key not in forms:
            forms[key] = (form, self._groups.encoder(form, names), [])
        form, encoder, takers = forms[key]
        passes = {
            operation: self.filters.passes(publish.filters[operation], names, asking)
            for operation in publish.operations - {Operation.TRUNCATE}
        }
        selections = {
            operation: lookup
            for operation in passes
            if (lookup := self.filters.lookup(publish.filters[operation], names)) is not None
        }
        takers.append(
            self._groups.taker(
                publish.subscription,
                form,
                encoder,
                publish.operations,
                passes,
                selections,
                publish.filters,
            )
        )


def _by_relation(publishes: Sequence[Publish]) -> Publishes:
    """By the OID that a change can arrive under: the relation's own, or its tree's root."""
    found: dict[int, list[Publish]] = {}
    for publish in publishes:
        found.setdefault(publish.relation_oid, []).append(publish)
        if publish.target_oid != publish.relation_oid:
            found.setdefault(publish.target_oid, []).append(publish)
    return found


class _LazyRoutes(dict[int, RelationRoute]):
    """Routes by relation OID, built at their first use.

    A subscript raises UnannouncedError for a relation that was never announced, SchemaError for one
    that cannot be published as it is now, TransientError when catalog or registry cannot be
    reached.
    """

    def __init__(self, build: Callable[[int], RelationRoute | None]) -> None:
        super().__init__()
        self._build = build

    def __missing__(self, relation_oid: int) -> RelationRoute:
        route = self._build(relation_oid)
        if route is None:
            raise UnannouncedError(relation_oid)
        self[relation_oid] = route
        return route
