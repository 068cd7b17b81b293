"""Plan: how each subscription receives each relation, and the publications needed on the server.

Pure. The rules are exactly pgoutput's; `gateway.definitions.membership` implements each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import Literal

from gateway.core.errors import DefinitionError
from gateway.definitions.column_lists import (
    copied_columns,
    different_lists,
    disagreement,
)
from gateway.definitions.identity import find_identity_problems, problems_error
from gateway.definitions.masks import PlannedMasks
from gateway.definitions.membership import Membership
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Catalog,
    Definitions,
    Fault,
    HeldTable,
    MaskedBefore,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
    TableCopy,
    TableId,
)
from gateway.definitions.moving import (
    inner_leaves,
    inner_oids,
    moving_leaves,
    why_not_followed,
)
from gateway.definitions.receiving import (
    copy_of,
    copying_publications,
    masked_columns,
    published_relations,
    publishes_of,
    without_identity,
)
from gateway.definitions.server import plan_server_publications
from gateway.definitions.tables.listed import Listed

__all__ = [
    "MissingIdentity",
    "alterable_relations",
    "find_problems",
    "make_plan",
    "nothing_holdable",
]

MissingIdentity = Literal["refuse", "insert_only"]


def nothing_holdable(subscription: str, table: Table) -> bool:
    """Hold no table: any fault refuses the definitions as a whole."""
    return False


def make_plan(
    definitions: Definitions,
    catalog: Catalog,
    *,
    prefix: str,
    missing_identity: MissingIdentity,
    holdable: Callable[[str, Table], bool] = nothing_holdable,
    faults: Mapping[TableId, Fault] = MappingProxyType({}),
    masked: Collection[MaskedBefore] = (),
    accepted: bool = False,
) -> Plan:
    """Combine definitions and catalog into a plan.

    `Plan.publishes` has plain tables and leaf partitions only; the changes of a tree read under its
    root arrive under the OID of their `target_oid`.

    Args:
        definitions: Parsed definitions.
        catalog: Catalog as read for these definitions.
        prefix: Prefix of the names of the gateway's own publications: the slot's name.
        missing_identity: Action for a table that publishes updates or deletes although its replica
            identity is missing or does not cover a filter or column list: refuse it, or omit those
            operations with a warning.
        holdable: Whether a table of a subscription is held, and left out, if it has a problem;
            otherwise the definitions are refused.
        faults: Faults that the catalog does not show; their tables are held in any case.
        masked: Masks of the tables that were published already.
        accepted: Whether these definitions are in force, and all their tables are in `masked`: a
            mask that fits no table any more, since an owner has dropped it, is only warned of.

    Raises:
        DefinitionError: there are problems; all results of `find_problems`, and one for each mask
            that fits no table, in one error.
        ConfigError: `prefix` is too long for a publication's name.
    """
    members = Membership(catalog)
    named = Listed(definitions, catalog)
    masks = PlannedMasks(definitions, catalog, masked)

    def hold(subscription: str, oid: int, fault: Fault) -> HeldTable:
        table = catalog.tables[oid]
        is_listed = named.has(subscription, table)
        return HeldTable(
            subscription,
            table.schema,
            table.name,
            oid,
            fault.explained,
            fault.statements,
            fault.by_hand,
            is_listed,
            fault.cause,
            masks.masked_as(subscription, table),
        )

    held: dict[TableId, HeldTable] = {}
    for subscription_name, oid, error in _problems(
        members, definitions, catalog, missing_identity, masks
    ):
        if holdable(subscription_name, catalog.tables[oid]):
            fault = Fault(error.reason, cause=error.cause)
            held.setdefault((subscription_name, oid), hold(subscription_name, oid, fault))
    for (subscription_name, oid), fault in faults.items():
        if oid in catalog.tables:
            held.setdefault((subscription_name, oid), hold(subscription_name, oid, fault))
    unknown = list(masks.unknown(_targets(members, definitions, catalog)))
    problems = [
        *(() if accepted else unknown),
        *find_problems(
            definitions, catalog, missing_identity=missing_identity, held=held, masks=masks
        ),
    ]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise problems_error(problems)
    publishes: list[Publish] = []
    copies: list[TableCopy] = []
    warnings: list[str] = []
    empty_roots: dict[int, frozenset[Operation]] = defaultdict(frozenset)
    for subscription in definitions.subscriptions:
        publications = [catalog.publications[name] for name in subscription.publications]
        left_out = {oid for name, oid in held if name == subscription.name}
        published = list(publishes_of(members, subscription, publications, left_out, masks))
        copied = [table for table in members.copied(publications) if table.oid not in left_out]
        if not copied:
            warnings.append(_why_empty(subscription.name, list(held.values())))
        if subscription.copy_data:
            copies += [copy_of(members, subscription, publications, t, masks) for t in copied]
        publishes += published
        for table in copied:
            entry = members.entry(publications, table)
            if table.kind == "p" and not table.leaves and entry is not None:
                empty_roots[table.oid] |= entry.operations
    publishes, reduced = without_identity(members, definitions, publishes)
    read = sorted({oid for copy in copies for oid in inner_oids(copy.filters)})
    by_themselves = sorted({*read, *moving_leaves(copies, catalog.tables)})
    trees = {oid for oid in read if catalog.tables[oid].kind == "p"}
    server_publications = plan_server_publications(
        members.tables,
        [*publishes, *(Publish("", oid, oid, ALL_OPERATIONS, {}, None) for oid in by_themselves)],
        empty_roots,
        wholes=_wholes(members, definitions) | trees,
        detachable=_detachable(members, definitions, publishes)
        | {oid for oid in read if members.tables[oid].ancestors}
        | inner_leaves(copies, catalog.tables),
        alterable=alterable_relations(definitions, publishes),
        prefix=prefix,
    )
    oids = {oid for p in publishes for oid in (p.relation_oid, p.target_oid)}
    oids |= {copy.target_oid for copy in copies} | empty_roots.keys() | set(read)
    oids |= inner_leaves(copies, catalog.tables)  # with the trees between
    family = {o for oid in oids for o in (*catalog.tables[oid].ancestors, *_leaves(catalog, oid))}
    return Plan(
        tables={oid: table for oid, table in catalog.tables.items() if oid in oids | family},
        subscriptions=definitions.subscriptions,
        publishes=tuple(publishes),
        copies=tuple(copies),
        server_publications=server_publications,
        warnings=(
            *(f"table {schema}.{name} is {why}" for schema, name, why in catalog.missing),
            *(error.message for error in unknown),
            *masks.computed(publishes),
            *warnings,
            *reduced,
        ),
        missing=catalog.missing,
        held=tuple(held.values()),
        open_ended=_open_ended(named, catalog, publishes, copies),
        masked_columns=masked_columns(definitions, catalog.tables, copies, masks),
    )


def _open_ended(
    listed: Listed,
    catalog: Catalog,
    publishes: Sequence[Publish],
    copies: Sequence[TableCopy],
) -> frozenset[TableId]:
    targets = {(p.subscription, p.target_oid) for p in publishes}
    targets |= {(c.subscription, c.target_oid) for c in copies}
    return frozenset(
        (name, oid) for name, oid in targets if not listed.has(name, catalog.tables[oid])
    )


def alterable_relations(definitions: Definitions, publishes: Sequence[Publish]) -> set[int]:
    """Return the relations of subscriptions that name a publication of the database."""
    defined = {publication.name for publication in definitions.publications}
    open_ended = {
        s.name for s in definitions.subscriptions if not defined.issuperset(s.publications)
    }
    return {publish.relation_oid for publish in publishes if publish.subscription in open_ended}


def find_problems(
    definitions: Definitions,
    catalog: Catalog,
    *,
    missing_identity: MissingIdentity,
    held: Container[TableId] = (),
    masks: PlannedMasks | None = None,
) -> list[DefinitionError]:
    """Find all problems for which PostgreSQL would refuse a subscription, or a write at the source.

    Problems of the tables in `held`, by subscription and OID, are left out.

    Returns:
        One error per problem, in PostgreSQL's words; and one per mask that a column cannot have.
    """
    masks = PlannedMasks(definitions, catalog, ()) if masks is None else masks
    members = Membership(catalog)
    problems = _problems(members, definitions, catalog, missing_identity, masks)
    errors = (error for name, oid, error in problems if (name, oid) not in held)
    return list({str(error): error for error in errors}.values())


def _targets(
    members: Membership, definitions: Definitions, catalog: Catalog
) -> dict[str, dict[int, Table]]:
    """Return the tables that each subscription has, by OID, whether or not they have rows yet."""
    found: dict[str, dict[int, Table]] = {}
    for subscription in definitions.subscriptions if definitions.masks else ():
        targets = found[subscription.name] = {
            oid: catalog.tables[oid]
            for publication, oid in catalog.broken
            if publication in subscription.publications
        }
        publications = [catalog.publications[name] for name in subscription.publications]
        for table in members.tables.values():
            if (entry := members.entry(publications, table)) is not None:
                targets[entry.target.oid] = entry.target
            elif any(members.reached_as(publication, table) for publication in publications):
                targets[table.oid] = table  # a tree, whose partitions are published by themselves
    return found


def _problems(
    members: Membership,
    definitions: Definitions,
    catalog: Catalog,
    missing_identity: MissingIdentity,
    masks: PlannedMasks,
) -> Iterator[tuple[str, int, DefinitionError]]:
    """Yield each problem with the subscription, and the OID of the subscriber's table."""
    for subscription in definitions.subscriptions:
        publications = [catalog.publications[name] for name in subscription.publications]
        for (publication, oid), error in catalog.broken.items():
            if publication in subscription.publications:
                yield subscription.name, oid, error
        refused: set[int] = set()
        checked: set[int] = set()
        for table in members.copied(publications):
            copying = copying_publications(members, publications, table)
            columns = copied_columns(members, copying, table)
            if columns is not None:
                checked.add(table.oid)
                for fault in masks.problems(subscription.name, table, columns):
                    yield subscription.name, table.oid, fault
            else:
                refused.add(table.oid)
                yield (
                    subscription.name,
                    table.oid,
                    different_lists(table, definitions, subscription),
                )
        for table in published_relations(members):
            entry = members.entry(publications, table)
            if entry is None:
                continue
            if entry.target.oid not in refused:
                disagreed = disagreement(members, entry, definitions, subscription)
                if disagreed is not None:
                    yield subscription.name, entry.target.oid, disagreed
                elif entry.target.oid not in checked:
                    checked.add(entry.target.oid)
                    names = [column.name for column in entry.target.columns]
                    for fault in masks.problems(subscription.name, entry.target, names):
                        yield subscription.name, entry.target.oid, fault
            if missing_identity == "insert_only":
                continue
            for _, error in find_identity_problems(members, publications, table, definitions.text):
                yield subscription.name, entry.target.oid, error
        if any(relation.formula for each in publications for relation in each.relations):
            yield from _not_followed(members, definitions, subscription, refused, masks)


def _not_followed(
    members: Membership,
    definitions: Definitions,
    subscription: SubscriptionDefinition,
    refused: Collection[int],
    masks: PlannedMasks,
) -> Iterator[tuple[str, int, DefinitionError]]:
    """Yield the filters over other tables that cannot be followed for a subscription."""
    publications = [members.publications[name] for name in subscription.publications]
    published: dict[int, list[Publish]] = {}
    for publish in publishes_of(members, subscription, publications, refused, masks):
        published.setdefault(publish.target_oid, []).append(publish)
    for table in members.copied(publications):
        clauses = [
            clause
            for publication in copying_publications(members, publications, table)
            if (clause := members.clause(publication, table)) is not None
        ]
        moving = next((c for c in clauses if c.formula is not None), None)
        if moving is None or table.oid in refused:
            continue
        copy = copy_of(members, subscription, publications, table, masks)
        publishes = published.get(table.oid, ())
        filters = [copy.filters, *(f for each in publishes for f in each.filters.values())]
        if not any(clause.formula for found in filters for clause in found):
            continue  # another publication has all rows
        why = why_not_followed(subscription, copy, publishes, members.tables)
        if why is not None:
            publication = members.publications[moving.publication]
            relation = members.relation(publication, table.oid)
            written = None if relation is None else relation.clause
            yield (
                subscription.name,
                table.oid,
                DefinitionError(
                    f'row filter over other tables of {table} in publication "{publication.name}", '
                    f'subscription "{subscription.name}": {why}',
                    text=definitions.text,
                    position=None if written is None else written.where_position,
                ),
            )


def _wholes(members: Membership, definitions: Definitions) -> set[int]:
    """Return the partitioned tables that a subscription receives with all future partitions."""
    names = {name for s in definitions.subscriptions for name in s.publications}
    publications = [members.publications[name] for name in sorted(names)]
    return {
        oid
        for oid, table in members.tables.items()
        if table.kind == "p"
        and any(publication.all_tables or members.holds(publication, oid)
                for publication in publications)
    }  # fmt: skip


def _detachable(
    members: Membership, definitions: Definitions, publishes: Sequence[Publish]
) -> set[int]:
    """Return the partitions that stay published as the same tables when they are detached.

    A publication of the subscription has them by themselves, and their rows are published as them
    or as parts of them, not as a tree around them.
    """
    publications = {
        s.name: [members.publications[name] for name in s.publications]
        for s in definitions.subscriptions
    }
    return {
        oid
        for subscription, target in {(p.subscription, p.target_oid) for p in publishes}
        for oid in (target, *members.tables[target].ancestors)
        # A tree that was dropped while the catalog was read is not among the tables.
        if (table := members.tables.get(oid)) is not None
        and table.ancestors
        and any(p.all_tables or members.holds(p, oid) for p in publications[subscription])
    }


def _leaves(catalog: Catalog, oid: int) -> Iterator[int]:
    return (leaf for leaf in catalog.tables[oid].leaves if leaf in catalog.tables)


def _why_empty(subscription: str, held: Iterable[HeldTable]) -> str:
    """Say that a subscription has no tables, or that all of them are held, and why."""
    its = [table for table in held if table.subscription == subscription]
    if not its:
        return f'subscription "{subscription}" has no tables'
    first = f"{its[0].schema}.{its[0].table}: {its[0].reason}"
    number = "its only table is" if len(its) == 1 else f"all {len(its)} tables are"
    return f'subscription "{subscription}" publishes nothing: {number} held; {first}'
