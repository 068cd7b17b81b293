"""Masks of the definitions: where they apply, what is refused, and what a change of one means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from gateway.core.errors import ConfigError, DefinitionError
from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyState
from gateway.definitions.changes import copy_states, fingerprint_of
from gateway.definitions.combine import make_plan
from gateway.definitions.masks import PlannedMasks, have_same_masks, with_masks, without_masks
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Catalog,
    Column,
    Definitions,
    Fault,
    Parent,
    Plan,
    Publication,
    PublishedRelation,
    Table,
    TableId,
)
from gateway.definitions.sql.parser import parse_definitions
from gateway.definitions.tables.recalled import has_same_key, masked_before, recall, unseen_since
from gateway.definitions.tables.remembered import describe, description_fault
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.masks import Mask
from schemas.settings.tables import TypesTable

KEY = "0123456789abcdef0123456789abcdef"
OTHER_KEY = KEY[::-1]
TEXT = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE t (id, name);"
    "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION few CONNECTION '' PUBLICATION q;"
)


def column(name: str, number: int, oid: int, type_name: str, missing: str | None = None) -> Column:
    return Column(name, number, oid, -1, type_name, oid, -1, "b", False, "", None, missing)


COLUMNS = (
    column("id", 1, 23, "integer"),
    column("name", 2, 25, "text"),
    column("mail", 3, 1043, "character varying(80)", "nobody@example.com"),
)
TABLE = Table(
    1, "public", "t", "r", COLUMNS, ReplicaIdentity.DEFAULT, ("id",), ("id",)
)  # fmt: skip
OF_T = Parent(1, "public.t")
ROOT = replace(TABLE, oid=9, name="events", kind="p", leaves=(1,))
LEAF = replace(TABLE, ancestors=(9,))


def catalog(table: Table = TABLE, *others: Table) -> Catalog:
    def publication(name: str, columns: tuple[str, ...] | None) -> Publication:
        relation = PublishedRelation(table.oid, None, columns, None)
        return Publication(name, ALL_OPERATIONS, False, False, (), (relation,))

    return Catalog(
        {one.oid: one for one in (table, *others)},
        {"p": publication("p", None), "q": publication("q", ("id", "name"))},
    )


def everything(*tables: Table, via_root: bool = False) -> Catalog:
    """``p`` is FOR ALL TABLES, ``q`` has none."""
    whole = Publication("p", ALL_OPERATIONS, via_root, True, (), ())
    none = Publication("q", ALL_OPERATIONS, False, False, (), ())
    return Catalog({one.oid: one for one in tables}, {"p": whole, "q": none})


def definitions(masks: Mapping[str, str], key: str | None = KEY) -> Definitions:
    parsed = parse_definitions(TEXT)
    return with_masks(parsed, masks, key, defined=[s.name for s in parsed.subscriptions])


def plan_of(
    masks: Mapping[str, str],
    of: Catalog | None = None,
    *,
    key: str = KEY,
    states: Iterable[CopyState] = (),
    faults: Mapping[TableId, Fault] | None = None,
    accepted: bool = False,
) -> Plan:
    return make_plan(
        definitions(masks, key),
        of or catalog(),
        prefix="gw",
        missing_identity="refuse",
        masked=masked_before(states),
        faults=faults or {},
        accepted=accepted,
    )


def masks_of(plan: Plan, subscription: str = "s", oid: int = 1) -> dict[str, str]:
    of = (subscription, oid)
    (publish,) = (p for p in plan.publishes if (p.subscription, p.target_oid) == of)
    (copy,) = (c for c in plan.copies if (c.subscription, c.target_oid) == of)
    assert publish.masks == copy.masks
    return {name: str(mask) for name, mask in publish.masks}


def ready(states: Iterable[CopyState]) -> list[CopyState]:
    return [replace(state, state="ready") for state in states]


def test_a_mask_is_for_one_subscription() -> None:
    plan = plan_of({"s.public.t.mail": "hash", "few.public.t.name": "truncate(1)"})

    assert masks_of(plan) == {"mail": "hash"}
    assert masks_of(plan, "few") == {"name": "truncate(1)"}


def test_a_mask_of_a_column_that_is_not_published_waits_for_it() -> None:
    assert masks_of(plan_of({"few.public.t.mail": "null"}), "few") == {}


def test_a_mask_of_a_tree_is_for_its_partitions() -> None:
    plan = plan_of(
        {"s.public.events.mail": "hash", "s.public.events.name": "null", "s.public.t.name": "hash"},
        catalog(LEAF, ROOT),
    )

    assert masks_of(plan) == {"name": "hash", "mail": "hash"}


@pytest.mark.parametrize("others", [(), (replace(TABLE, oid=2),)], ids=["", "its name is reused"])
def test_a_mask_stays_with_a_table_that_is_renamed(others: tuple[Table, ...]) -> None:
    masks = {"s.public.t.mail": "null"}
    states = copy_states(plan_of(masks, everything(TABLE)), (), reconcile=True)

    for name in ("clients", "customers", "people"):
        renamed = everything(replace(TABLE, name=name), *others)
        plan = plan_of(masks, renamed, states=states)
        states = copy_states(plan, states, reconcile=True)

        assert masks_of(plan) == {"mail": "null"}
        assert all(masks_of(plan, oid=other.oid) == {"mail": "null"} for other in others)


@pytest.mark.parametrize("via_root", [False, True])
def test_a_mask_of_a_tree_stays_with_a_partition_that_is_detached(via_root: bool) -> None:
    masks = {"s.public.events.mail": "hash"}
    tree = plan_of(masks, everything(ROOT, LEAF, via_root=via_root))
    states = copy_states(tree, (), reconcile=True)

    for name in ("t", "t_of_last_year"):
        alone = everything(replace(ROOT, leaves=()), replace(TABLE, name=name), via_root=via_root)
        plan = plan_of(masks, alone, states=states)
        states = copy_states(plan, states, reconcile=True)

        assert masks_of(plan) == {"mail": "hash"}


@pytest.mark.parametrize("moved", ["attached", "published as its root"])
def test_a_partition_that_was_published_by_itself_brings_its_mask_to_the_root(moved: str) -> None:
    masks = {"s.public.t.mail": "hash", "s.public.events.name": "null"}
    if moved == "attached":
        before = everything(replace(ROOT, leaves=()), TABLE, via_root=True)
    else:
        before = everything(ROOT, LEAF)
    states = ready(copy_states(plan_of(masks, before), (), reconcile=True))

    for _ in range(2):
        plan = plan_of(masks, everything(ROOT, LEAF, via_root=True), states=states)
        states = ready(after := copy_states(plan, states, reconcile=False))

        assert masks_of(plan, oid=9) == {"name": "null", "mail": "hash"}
        assert [state.table for state in states if state.subscription == "s"] == ["events"]
    assert after == tuple(states)


RENAMED = replace(TABLE, columns=(*COLUMNS[:2], replace(COLUMNS[2], name="address")))


def test_a_partition_that_is_detached_from_its_root_and_renames_the_column_is_refused() -> None:
    masks = {"s.public.events.mail": "hash"}
    states = copy_states(plan_of(masks, everything(ROOT, LEAF, via_root=True)), (), reconcile=True)

    alone = everything(replace(ROOT, leaves=()), RENAMED, via_root=True)
    with pytest.raises(DefinitionError, match=r'"mail" of table "public.t" by hash .* no such'):
        plan_of(masks, alone, states=states)


@pytest.mark.parametrize(
    "columns",
    [
        (*COLUMNS[:2], replace(COLUMNS[2], name="old"), replace(COLUMNS[2], attnum=4)),
        (COLUMNS[0], replace(COLUMNS[1], name="mail"), replace(COLUMNS[2], name="name")),
    ],
    ids=["renamed and added", "exchanged"],
)
def test_a_partition_that_is_detached_from_its_root_with_other_columns_is_refused(
    columns: tuple[Column, ...],
) -> None:
    masks = {"s.public.events.mail": "hash"}
    states = copy_states(plan_of(masks, everything(ROOT, LEAF, via_root=True)), (), reconcile=True)
    alone = everything(replace(ROOT, leaves=()), replace(TABLE, columns=columns), via_root=True)

    with pytest.raises(DefinitionError, match=r'columns of table "public.t" .* another order'):
        plan_of(masks, alone, states=states)
    named = plan_of({**masks, "s.public.t.mail": "hash"}, alone, states=states)
    assert masks_of(named) == {"mail": "hash"}


def test_a_masked_table_whose_columns_were_exchanged_and_that_becomes_a_partition_is_refused() -> (
    None
):
    masks = {"s.public.t.mail": "hash"}
    columns = (COLUMNS[0], replace(COLUMNS[1], name="mail"), replace(COLUMNS[2], name="name"))
    before = everything(replace(ROOT, leaves=()), TABLE, via_root=True)
    states = ready(copy_states(plan_of(masks, before), (), reconcile=True))

    attached = everything(ROOT, replace(LEAF, columns=columns), via_root=True)
    with pytest.raises(DefinitionError, match=r'"name" of table "public.events" has no mask'):
        plan_of(masks, attached, states=states)


@pytest.mark.parametrize("of_events", [{}, {"s.public.events.name": "null"}], ids=["", "masked"])
def test_a_masked_table_that_renames_the_column_and_becomes_a_partition_is_refused(
    of_events: dict[str, str],
) -> None:
    masks = {"s.public.t.mail": "hash", **of_events}
    of_root = replace(ROOT, columns=RENAMED.columns)
    before = everything(replace(of_root, leaves=()), TABLE, via_root=True)
    states = ready(copy_states(plan_of(masks, before), (), reconcile=True))

    attached = everything(of_root, replace(LEAF, columns=RENAMED.columns), via_root=True)
    with pytest.raises(DefinitionError, match=r'"mail" of table "public.events" .* no such'):
        plan_of(masks, attached, states=states)


def test_a_mask_stays_with_a_table_that_is_held_when_it_gets_another_name() -> None:
    masks = {"s.public.events.mail": "hash"}
    tree = plan_of(masks, everything(ROOT, LEAF, via_root=True))
    states = copy_states(tree, (), reconcile=True)

    for name in ("t", "t_of_last_year"):
        alone = everything(replace(ROOT, leaves=()), replace(TABLE, name=name), via_root=True)
        plan = plan_of(masks, alone, states=states, faults={("s", 1): Fault("no right")})
        states = copy_states(plan, states, reconcile=True)

    assert {state.table: state.state for state in states} == {
        "events": "pending",
        "t_of_last_year": "held",
    }
    assert [description_fault(state.taken) for state in states] == [None, None]
    assert recall(plan, states, existing=()) == plan
    assert masks_of(plan_of(masks, alone, states=states)) == {"mail": "hash"}


def test_a_dropped_table_keeps_the_mask_of_a_column_that_was_renamed_before() -> None:
    masks = {"s.public.t.mail": "null"}
    (publish,) = (p for p in plan_of(masks).publishes if p.subscription == "s")
    now = replace(TABLE, columns=(*COLUMNS[:2], replace(COLUMNS[2], name="mail_old")))

    restored = PlannedMasks(definitions(masks), catalog(now), ()).restored(publish, now)

    assert restored.masks == (("mail", Mask("null")),)


def test_a_mask_by_the_present_name_counts_more_than_one_by_an_earlier_name() -> None:
    masks = {"s.public.a.mail": "hash", "s.public.b.mail": "truncate(50)"}
    other = replace(TABLE, oid=2)
    states: tuple[CopyState, ...] = ()

    for name, others in (("a", "b"), ("b", "a"), ("a", "b"), ("a", "b")):
        of = everything(replace(TABLE, name=name), replace(other, name=others))
        plan = plan_of(masks, of, states=states)
        states = copy_states(plan, states, reconcile=True)

        assert masks_of(plan) == {"mail": masks[f"s.public.{name}.mail"]}
        assert masks_of(plan, oid=2) == {"mail": masks[f"s.public.{others}.mail"]}


def test_an_earlier_name_counts_for_the_subscription_that_published_it() -> None:
    masks = {"s.public.events.born": "null", "few.public.events.born": "null"}
    born = (*COLUMNS, column("born", 4, 25, "text"))
    root = replace(ROOT, columns=born, leaves=(2,))
    of_few = Publication(
        "q", ALL_OPERATIONS, False, False, (), (PublishedRelation(9, None, None, None),)
    )
    of = everything(root, replace(LEAF, columns=born), replace(LEAF, oid=2, columns=born, name="u"))
    of = replace(of, publications={**of.publications, "q": of_few})
    states = copy_states(plan_of(masks, of), (), reconcile=True)
    of_s = [state for state in states if state.subscription == "s"]

    alone = everything(TABLE)
    table = Publication(
        "q", ALL_OPERATIONS, False, False, (), (PublishedRelation(1, None, None, None),)
    )
    alone = replace(alone, publications={**alone.publications, "q": table})
    found = PlannedMasks(definitions(masks), alone, masked_before(of_s))

    assert found.masked_as("s", TABLE) == ("public.events",)
    assert found.masked_as("few", TABLE) == ()


@pytest.mark.parametrize("direct", [True, False], ids=["child", "grandchild"])
def test_a_mask_is_for_the_tables_that_inherit(direct: bool) -> None:
    masks = {"s.public.t.mail": "null", "s.public.vip.name": "hash"}
    middle, heir = replace(TABLE, oid=2, name="middle"), replace(TABLE, oid=3, name="vip")
    parents = {3: (OF_T,)} if direct else {2: (OF_T,), 3: (Parent(2, "public.middle"),)}
    of = replace(everything(TABLE, middle, heir), parents=parents)
    plan = plan_of(masks, of)
    states = copy_states(plan, (), reconcile=True)

    assert masks_of(plan, oid=3) == {"name": "hash", "mail": "null"}
    assert masks_of(plan, oid=2) == ({} if direct else {"mail": "null"})
    alone = plan_of(masks, everything(TABLE, middle, heir), states=states)
    assert masks_of(alone, oid=3) == {"name": "hash", "mail": "null"}


def test_a_mask_of_a_table_that_is_not_published_is_for_those_that_inherit_from_it() -> None:
    masks = {
        "s.public.t.mail": "hash",
        "s.public.events.mail": "truncate(1)",
        "s.public.events.name": "truncate(2)",
        "s.public.all.name": "null",
    }
    above = {1: (Parent(9, "public.events"),), 9: (Parent(10, "public.all"),)}

    plan = plan_of(masks, replace(everything(TABLE), parents=above))

    assert masks_of(plan) == {"mail": "hash", "name": "truncate(2)"}


def test_a_generated_column_of_a_masked_table_is_warned_of() -> None:
    lower = replace(column("mail_lower", 4, 25, "text"), generated="s")
    of = catalog(replace(TABLE, columns=(*COLUMNS, lower)))
    generated = {n: replace(p, generated=True) for n, p in of.publications.items()}
    of = replace(of, publications=generated, publishes_generated=True)
    shown = 'column "mail_lower" of table "public.t" has no mask for subscription "s": '

    warned = plan_of({"s.public.t.mail": "null"}, of).warnings

    assert [warning.startswith(shown) for warning in warned] == [True]
    assert plan_of({}, of).warnings == ()
    masks = {"s.public.t.mail": "null", "s.public.t.mail_lower": "hash"}
    assert plan_of(masks, of).warnings == ()


def test_a_table_that_its_owner_drops_stops_no_other() -> None:
    masks = {"s.public.t.mail": "null"}
    left = everything(replace(TABLE, oid=2, name="other"))

    plan = plan_of(masks, left, accepted=True)

    assert masks_of(plan, oid=2) == {}
    assert [warning.partition(" is for")[0] for warning in plan.warnings] == [
        "the mask of s.public.t.mail",
        'subscription "few" has no tables',
    ]
    with pytest.raises(DefinitionError, match=r"the mask of s\.public\.t\.mail is for a table"):
        plan_of(masks, left)


def test_a_mask_needs_a_copy() -> None:
    text = TEXT.replace("PUBLICATION q;", "PUBLICATION q WITH (copy_data = false);")
    parsed = parse_definitions(text)
    assert text != TEXT

    with pytest.raises(ConfigError, match=r"'few\.public\.t\.name' is .* copy_data = false"):
        with_masks(parsed, {"few.public.t.name": "null"}, None, defined=["s", "few"])
    assert with_masks(parsed, {"s.public.t.name": "null"}, None, defined=["s", "few"]).masks


def test_a_masked_column_whose_name_another_has_now_needs_a_mask() -> None:
    masks = {"s.public.t.mail": "null"}
    states = copy_states(plan_of(masks), (), reconcile=True)
    mail = COLUMNS[2]
    columns = (*COLUMNS[:2], replace(mail, name="mail_old"), replace(mail, attnum=4))
    now = catalog(replace(TABLE, columns=columns))
    held = plan_of(masks, now, states=states, faults={("s", 1): Fault("no right")})

    for known in (states, copy_states(held, states, reconcile=True)):
        with pytest.raises(DefinitionError, match=r'"mail_old" .* no mask .* masked as "mail"'):
            plan_of(masks, now, states=known)
        both = plan_of({**masks, "s.public.t.mail_old": "hash"}, now, states=known)
        assert masks_of(both) == {"mail_old": "hash", "mail": "null"}


def test_a_former_child_may_drop_the_masked_column_and_not_rename_it() -> None:
    masks = {"s.public.events.mail": "null"}
    child = everything(TABLE, replace(TABLE, oid=9, name="events"))
    child = replace(child, parents={1: (Parent(9, "public.events"),)})
    states = copy_states(plan_of(masks, child), (), reconcile=True)
    renamed = replace(TABLE, columns=(*COLUMNS[:2], replace(COLUMNS[2], name="address")))
    dropped = replace(TABLE, columns=COLUMNS[:2])

    def alone(of: Table) -> Catalog:
        return everything(of, replace(TABLE, oid=9, name="events"))

    with pytest.raises(DefinitionError, match=r'"mail" of table "public.t" by null .* no such'):
        plan_of(masks, alone(renamed), states=states)
    with pytest.raises(DefinitionError, match=r'"mail" of table "public.events" .* no such'):
        plan_of(masks, everything(TABLE, replace(dropped, oid=9, name="events")), states=states)
    both = plan_of({**masks, "s.public.t.address": "hash"}, alone(renamed), states=states)
    assert masks_of(both) == {"address": "hash"}
    for _ in range(2):
        plan = plan_of(masks, alone(dropped), states=states)
        states = copy_states(plan, states, reconcile=False)
        assert masks_of(plan) == {}
    assert masks_of(plan, oid=9) == {"mail": "null"}


def test_a_held_table_without_masks_has_no_description() -> None:
    plan = plan_of({}, everything(TABLE), faults={("s", 1): Fault("no right")})

    (state,) = copy_states(plan, (), reconcile=True)

    assert (state.state, state.taken) == ("held", "")
    publishes_nothing = (
        'subscription "s" publishes nothing: its only table is held; public.t: no right'
    )
    assert publishes_nothing in plan.warnings


@pytest.mark.parametrize("forged", ["7", "null", "[7]", "[[7]]"])
def test_names_that_are_no_texts_are_refused(forged: str) -> None:
    plan = plan_of({"s.public.t.mail": "null"}, everything(TABLE))
    taken = describe(plan, plan.copies[0])

    text = taken.replace('"masked_as":["public.t"]', f'"masked_as":{forged}')

    assert text != taken
    assert description_fault(taken) is None
    assert description_fault(text) is not None


@pytest.mark.parametrize(
    ("name", "mask", "says"),
    [
        ("s.public.t.nmae", "hash", 'column "nmae" of table "public.t" by hash .*no such column'),
        ("s.public.t.id", "null", 'column "id" .*by null .*part of the key'),
        ("s.public.t.id", "truncate(2)", "part of the key"),
        ("few.public.t.id", "null", 'subscription "few": it is part of the key'),
        ("s.public.tt.id", "hash", "for a table that its subscription does not have"),
    ],
)
def test_a_mask_that_cannot_be_is_refused_by_name(name: str, mask: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as caught:
        plan_of({name: mask})

    assert caught.value.hint


@pytest.mark.parametrize("name", ["few.public.t.mail", "s.public.other.mail"])
def test_a_mask_of_a_table_that_only_others_have_is_refused(name: str) -> None:
    of = catalog(TABLE, replace(TABLE, oid=2, name="other"))
    publications = {**of.publications, "q": replace(of.publications["q"], relations=())}

    with pytest.raises(DefinitionError, match=f"the mask of {name} is for a table that its sub"):
        plan_of({name: "null"}, replace(of, publications=publications))


def test_a_mask_of_a_partition_that_is_published_as_its_root_is_refused() -> None:
    masks = {"s.public.t.mail": "null"}
    assert masks_of(plan_of(masks, everything(ROOT, LEAF))) == {"mail": "null"}

    with pytest.raises(DefinitionError, match=r"the mask of s\.public\.t\.mail is for"):
        plan_of(masks, everything(ROOT, LEAF, via_root=True))


@pytest.mark.parametrize("via_root", [False, True])
def test_a_tree_without_partitions_can_have_a_mask(via_root: bool) -> None:
    empty = everything(replace(ROOT, leaves=()), via_root=via_root)

    assert plan_of({"s.public.events.mail": "null"}, empty).publishes == ()


def test_a_mask_of_a_table_that_cannot_be_published_any_more_is_known() -> None:
    of = catalog()
    broken = replace(
        of,
        publications={n: replace(p, relations=()) for n, p in of.publications.items()},
        broken={("p", 1): DefinitionError("broken")},
    )

    with pytest.raises(DefinitionError) as caught:
        plan_of({"s.public.t.mail": "null"}, broken)

    assert caught.value.message == "broken"


def test_truncate_is_for_texts() -> None:
    bare = replace(TABLE, columns=(*COLUMNS, column("n", 4, 23, "integer")))
    assert masks_of(plan_of({"s.public.t.mail": "truncate(3)"})) == {"mail": "truncate(3)"}

    with pytest.raises(DefinitionError, match="its type is integer, no text"):
        plan_of({"s.public.t.n": "truncate(3)"}, catalog(bare))


def test_a_key_can_be_hashed_and_a_column_that_is_not_null_can_be_null() -> None:
    strict = replace(TABLE, columns=tuple(replace(c, not_null=True) for c in COLUMNS))

    plan = plan_of({"s.public.t.id": "hash", "s.public.t.name": "null"}, catalog(strict))

    assert masks_of(plan) == {"id": "hash", "name": "null"}


def test_a_mask_names_a_subscription_of_the_file() -> None:
    with pytest.raises(
        ConfigError, match=r"columns\.masks: 'x\.public\.t\.mail' names no"
    ) as caught:
        definitions({"x.public.t.mail": "null"})

    assert caught.value.hint == "defined are few, s"


def test_masks_of_other_groups_are_left_out() -> None:
    parsed = parse_definitions(TEXT)
    ours = replace(parsed, subscriptions=parsed.subscriptions[:1])

    found = with_masks(ours, {"few.public.t.name": "hash"}, None, defined=["s", "few"])

    assert found == ours


def test_a_fingerprint_tells_other_masks_from_another_file() -> None:
    plain, masked = (definitions(m).fingerprint for m in ({}, {"s.public.t.mail": "null"}))
    other_key = definitions({"s.public.t.mail": "hash"}, OTHER_KEY).fingerprint

    assert without_masks(masked) == without_masks(plain) == plain
    assert have_same_masks(masked, f"0{masked}")
    assert not have_same_masks(masked, plain)
    assert not have_same_masks(definitions({"s.public.t.mail": "hash"}).fingerprint, other_key)


def test_a_hash_needs_a_key() -> None:
    with pytest.raises(
        ConfigError, match=r"columns\.hash_key: is required by .*s\.public\.t\.mail"
    ):
        definitions({"s.public.t.mail": "hash"}, None)
    assert definitions({"s.public.t.mail": "null"}, None).masks


def test_fingerprint_and_masks_do_not_show_the_key() -> None:
    assert KEY not in repr(definitions({"s.public.t.mail": "hash"}))


@pytest.mark.parametrize(
    ("masks", "key"),
    [
        ({}, KEY),
        ({"s.public.t.mail": "null"}, KEY),
        ({"s.public.t.mail": "hash", "s.public.t.name": "hash"}, KEY),
        ({"s.public.t.mail": "hash"}, OTHER_KEY),
    ],
    ids=["none", "another mask", "one more", "another key"],
)
def test_a_table_with_other_masks_is_copied_again(masks: dict[str, str], key: str) -> None:
    before = plan_of({"s.public.t.mail": "hash"})
    copies = {copy.subscription: copy for copy in before.copies}
    states = [
        CopyState(name, "public", "t", "ready", Lsn(5), fingerprint_of(before, copy), oid=1)
        for name, copy in copies.items()
    ]

    after = copy_states(plan_of(masks, key=key), states, reconcile=True)

    assert {state.subscription: state.state for state in after} == {"s": "pending", "few": "ready"}
    assert (
        definitions(masks, key).fingerprint != definitions({"s.public.t.mail": "hash"}).fingerprint
    )


@pytest.mark.parametrize("attached", [True, False], ids=["partition", "child"])
def test_a_table_that_comes_under_a_masked_one_is_copied_again(attached: bool) -> None:
    masks = {"s.public.events.mail": "hash"}
    above = replace(ROOT, leaves=()) if attached else replace(TABLE, oid=9, name="events")
    alone = everything(TABLE, above)
    under = (
        everything(LEAF, ROOT)
        if attached
        else replace(alone, parents={1: (Parent(9, "public.events"),)})
    )
    states = ready(copy_states(plan_of(masks, alone), (), reconcile=True))

    plan = plan_of(masks, under, states=states)
    after = copy_states(plan, states, reconcile=False)
    again = copy_states(plan, ready(after), reconcile=False)

    found = {state.table: state.state for state in after}
    assert found.pop("t") == "pending"
    assert set(found.values()) <= {"ready"}
    assert again == tuple(ready(after))


def test_a_masked_column_that_is_published_later_is_no_change_of_masks() -> None:
    masks = {"few.public.t.mail": "hash"}
    of = catalog()
    relation = PublishedRelation(1, None, ("id", "name", "mail"), None)
    more = replace(of.publications["q"], relations=(relation,))
    states = ready(copy_states(plan_of(masks, of), (), reconcile=True))

    now = replace(of, publications={**of.publications, "q": more})
    after = copy_states(plan_of(masks, now, states=states), states, reconcile=False)

    assert [state.state for state in after] == ["ready", "ready"]


@pytest.mark.parametrize(
    "forged", ['[[3,"mail"]]', '[[3,"mail","none",""]]', '[["3","mail","null",""]]', "[7]", "7"]
)
def test_masks_that_are_none_are_refused(forged: str) -> None:
    plan = plan_of({"s.public.t.mail": "null"}, everything(TABLE))
    taken = describe(plan, plan.copies[0])

    text = taken.replace('"masked":[[3,"mail","null",""]]', f'"masked":{forged}')

    assert text != taken
    assert description_fault(text) is not None


def test_a_table_that_is_gone_is_published_with_its_masks() -> None:
    before = plan_of({"s.public.t.mail": "hash", "s.public.t.name": "truncate(2)"})
    (copy,) = (c for c in before.copies if c.subscription == "s")
    taken = describe(before, copy)
    assert description_fault(taken) is None
    state = CopyState("s", "public", "t", "ready", oid=1, taken=taken)

    recalled = recall(replace(before, tables={}, publishes=(), copies=()), [state], existing=())

    assert masks_of(replace(recalled, copies=(copy,))) == {"name": "truncate(2)", "mail": "hash"}


@pytest.mark.parametrize(("mask", "same"), [("hash", True), ("", False)])
def test_a_hashed_key_is_text_whatever_the_types_say(mask: str, same: bool) -> None:
    masks = {"s.public.t.id": mask} if mask else {}
    dated = (column("id", 1, 1082, "date"), *COLUMNS[1:])
    plan = plan_of(masks, catalog(replace(TABLE, columns=dated)))
    as_text = replace(plan, types=TypesTable(date="text"))
    (copy,) = (c for c in plan.copies if c.subscription == "s")

    assert has_same_key(describe(plan, copy), describe(as_text, copy)) == same


def test_what_is_kept_in_kafka_has_no_value_of_older_rows() -> None:
    plan = plan_of({"s.public.t.mail": "hash"})
    (copy,) = (c for c in plan.copies if c.subscription == "s")

    taken = describe(plan, copy)

    assert "nobody@example.com" not in taken
    assert unseen_since(taken, plan, copy) is None


def test_what_is_kept_in_kafka_has_no_value_of_a_masked_column_that_is_not_published() -> None:
    plan = plan_of({"few.public.t.mail": "hash"})
    (copy,) = (c for c in plan.copies if c.subscription == "few")

    assert "nobody@example.com" not in describe(plan, copy)


def test_a_description_with_a_mask_that_is_none_is_refused() -> None:
    plan = plan_of({"s.public.t.mail": "null"})
    (copy,) = (c for c in plan.copies if c.subscription == "s")

    forged = describe(plan, copy).replace('["mail","null",""]', '["mail","none",""]')

    assert forged != describe(plan, copy)
    assert description_fault(forged) is not None


def test_masks_are_values() -> None:
    assert Mask("hash", key_id="a") != Mask("hash", key_id="b")
