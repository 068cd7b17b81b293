"""Which subscriber tables a change of the definitions concerns, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.copy import Progress
from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyState
from gateway.definitions.changes import copy_states, fingerprint_of
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Column,
    Element,
    FilterClause,
    HeldTable,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
    TableCopy,
)
from gateway.definitions.tables.recalled import recall
from gateway.definitions.tables.remembered import (
    describe,
    description_fault,
    oversized,
    relations_of,
)
from gateway.pgoutput.messages import ReplicaIdentity
from schemas.settings.tables import EnvelopeFormat, EnvelopeTable, TypesTable

SUBSCRIPTION = SubscriptionDefinition("s", ("p",))
ROWS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


def column(name: str, number: int, *, generated: str = "") -> Column:
    return Column(name, number, 23, -1, "integer", 23, -1, "b", False, generated, None)


TABLE = Table(
    oid=1,
    schema="public",
    name="t",
    kind="r",
    columns=(column("a", 1), column("b", 2)),
    replica_identity=ReplicaIdentity.DEFAULT,
    identity=("a",),
    primary_key=("a",),
)


def plan(
    where: str | None,
    *,
    table: Table = TABLE,
    columns: tuple[str, ...] | None = None,
    operations: frozenset[Operation] = ALL_OPERATIONS,
    copied: str | None = "same",
    publication: str = "p",
) -> Plan:
    """One subscription to one table."""
    clauses = () if where is None else (FilterClause(publication, 1, where),)
    of_copy = clauses if copied == "same" else (FilterClause(publication, 1, str(copied)),)
    publish = Publish("s", 1, 1, operations, {o: clauses for o in ROWS if o in operations}, columns)
    copy = TableCopy("s", 1, of_copy, columns or tuple(c.name for c in table.columns))
    return Plan({1: table}, (), (publish,), (copy,), ())


def ready(under: Plan) -> CopyState:
    copy = under.copies[0]
    return CopyState(
        "s",
        "public",
        "t",
        "ready",
        Lsn(5),
        fingerprint_of(under, copy),
        oid=1,
    )


def states(before: CopyState, after: Plan, *, reconcile: bool = True) -> tuple[CopyState, ...]:
    found = copy_states(after, [before], reconcile=reconcile)
    return tuple(replace(state, taken="") for state in found)


def to_copy(now: Plan) -> tuple[CopyState, ...]:
    return (replace(ready(now), state="pending", consistent_point=None),)


def test_the_same_definition_under_another_publication_changes_nothing() -> None:
    before = ready(plan("(a > 5)"))

    assert states(before, plan("(a > 5)", publication="q")) == (before,)


def test_a_column_that_is_added_to_the_table_changes_nothing() -> None:
    before = ready(plan("(a > 5)"))
    wider = replace(TABLE, columns=(*TABLE.columns, column("c", 3)))

    assert states(before, plan("(a > 5)", table=wider)) == (before,)


@pytest.mark.parametrize(
    "after",
    [
        plan("(a > 7)"),
        plan(None),
        plan("(a > 5)", columns=("a",)),
        plan("(a > 5)", operations=frozenset({Operation.INSERT})),
        plan("(a > 5)", copied="(b > 1)"),
    ],
    ids=["filter", "no filter", "columns", "operations", "filter of another operation"],
)
def test_a_table_under_another_definition_is_copied(after: Plan) -> None:
    assert states(ready(plan("(a > 5)")), after) == to_copy(after)


def test_a_table_that_is_not_there_is_copied_also_when_nothing_is_reconciled() -> None:
    now = plan("(a > 5)")

    (state,) = copy_states(now, [], reconcile=False)
    assert replace(state, taken="") == to_copy(now)[0]


@pytest.mark.parametrize("reconcile", [False, True])
def test_a_copy_under_way_goes_on_where_it_is(reconcile: bool) -> None:
    now = plan("(a > 5)")
    under_way = replace(ready(now), state="copying", progress=Progress((b"7",)))

    assert states(under_way, now, reconcile=reconcile) == (under_way,)


@pytest.mark.parametrize("reconcile", [False, True])
def test_a_copy_under_way_by_another_definition_starts_from_nothing(reconcile: bool) -> None:
    before, after = plan("(a > 5)"), plan("(a > 7)")
    under_way = replace(ready(before), state="copying", progress=Progress((b"7",)))

    assert states(under_way, after, reconcile=reconcile) == to_copy(after)


def test_without_reconciling_a_changed_filter_only_counts_from_now_on() -> None:
    after = plan("(a > 7)")
    (state,) = states(ready(plan("(a > 5)")), after, reconcile=False)

    assert state.state == "ready"
    assert states(state, after) == (state,)


def test_a_table_that_took_on_a_filter_without_a_copy_stays_marked_until_it_is_copied() -> None:
    altered = plan("(a > 7)")
    (state,) = states(ready(plan("(a > 5)")), altered, reconcile=False)

    assert state.definition != ready(altered).definition
    assert states(state, altered, reconcile=False) == (state,)


def test_a_table_that_is_not_named_any_more_is_forgotten() -> None:
    now = plan(None)

    assert states(ready(now), replace(now, copies=())) == ()


def test_a_table_that_was_made_again_is_another_table() -> None:
    now = plan("(a > 5)")

    assert states(replace(ready(now), oid=7), now, reconcile=False) == to_copy(now)


def test_a_dropped_table_is_recalled_as_it_was_published() -> None:
    before = plan("(a > 5)", columns=("a",))
    after = replace(before, tables={}, publishes=(), copies=(), subscriptions=(SUBSCRIPTION,))

    state = replace(ready(before), taken=describe(before, before.copies[0]))

    recalled = recall(after, [state], existing=())

    assert recalled.publishes == before.publishes
    assert recalled.tables == before.tables
    assert copy_states(recalled, [state], reconcile=False) == (state,)
    assert copy_states(after, [state], reconcile=False) == ()
    assert recall(after, [state], existing={1}) == after


MOODS = replace(
    column("m", 3),
    type_oid=5001,
    type_name="mood[]",
    base_type_oid=5001,
    element=Element(5000, -1, "mood", "e"),
)


def remembered(*columns: Column, edit: Callable[[list[Any]], list[Any]] = list) -> CopyState:
    """State of a table whose description was edited, column by column."""
    before = plan("(a > 5)", table=replace(TABLE, columns=columns))
    description = json.loads(describe(before, before.copies[0]))
    description["columns"] = [edit(values) for values in description["columns"]]
    return replace(ready(before), taken=json.dumps(description))


def test_a_table_of_arrays_is_recalled_with_their_items() -> None:
    state = remembered(*TABLE.columns, MOODS)

    recalled = recall(served(replace(plan(None), tables={}, publishes=(), copies=())), [state], ())

    assert description_fault(state.taken) is None
    assert recalled.tables[1].columns == (*TABLE.columns, MOODS)


@pytest.mark.parametrize("lacking", [1, 2])
def test_a_description_from_before_items_and_base_types_is_read(lacking: int) -> None:
    state = remembered(*TABLE.columns, edit=lambda values: values[:-lacking])
    now = plan("(a > 5)")
    again = (column("a", 1), column("b", 3))  # dropped and added again meanwhile

    recalled = recall(served(replace(now, tables={}, publishes=(), copies=())), [state], ())

    assert description_fault(state.taken) is None
    assert recalled.tables[1].columns == TABLE.columns
    (same,) = states(state, now)
    assert same.state == "ready"
    altered = plan("(a > 5)", table=replace(TABLE, columns=again))
    assert states(state, altered) == to_copy(altered)


UUID = replace(column("a", 1), type_oid=2950, base_type_oid=2950, type_name="uuid")


def numeric(precision: int, scale: int) -> Column:
    modifier = (precision << 16 | scale & 0x7FF) + 4
    base = replace(column("a", 1), type_oid=1700, base_type_oid=1700, type_name="numeric")
    return replace(base, type_modifier=modifier, base_type_modifier=modifier)


def keyed(key: Column, identity: ReplicaIdentity = ReplicaIdentity.DEFAULT) -> Table:
    """A table whose key is one column or, under FULL, its whole row."""
    table = replace(TABLE, columns=(key, column("b", 2)), replica_identity=identity)
    if identity is ReplicaIdentity.FULL:
        return replace(table, identity=(key.name, "b"), primary_key=())
    return table


def is_copied(before: Plan, after: Plan) -> bool:
    """Whether the table of a plan is copied when the next one is put into force."""
    state = replace(ready(before), taken=describe(before, before.copies[0]))
    assert description_fault(state.taken) is None
    (found,) = states(state, after)
    assert found in (to_copy(after)[0], replace(state, taken=""))
    return found.state == "pending"


@pytest.mark.parametrize("identity", [ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL])
@pytest.mark.parametrize(
    ("then", "now", "copied"),
    [
        (TypesTable(), TypesTable(), False),
        (TypesTable(), TypesTable(uuid="text"), True),
        (TypesTable(uuid="text"), TypesTable(columns={"public.t.a": "text"}), False),
        (TypesTable(uuid="text"), TypesTable(), True),
        (TypesTable(), TypesTable(columns={"public.t.b": "text"}, time="native"), False),
    ],
)
def test_a_table_whose_keys_are_carried_in_another_type_is_copied(
    identity: ReplicaIdentity, then: TypesTable, now: TypesTable, copied: bool
) -> None:
    before = replace(plan(None, table=keyed(UUID, identity)), types=then)

    assert is_copied(before, replace(before, types=now)) is copied


@pytest.mark.parametrize(
    ("then", "now", "copied"),
    [
        (EnvelopeTable(), EnvelopeTable(format="debezium"), True),
        (EnvelopeTable(format="debezium"), EnvelopeTable(format="row"), True),
        (EnvelopeTable(format="row"), EnvelopeTable(), True),
        (
            EnvelopeTable(format="debezium"),
            EnvelopeTable(format="debezium", time_precision="connect"),
            True,
        ),
        (EnvelopeTable(format="debezium"), EnvelopeTable(subscriptions={"s": "debezium"}), False),
        (EnvelopeTable(), EnvelopeTable(subscriptions={"other": "row"}), False),
        (EnvelopeTable(), EnvelopeTable(time_precision="connect"), False),
        (EnvelopeTable(), EnvelopeTable(without_truncates=("s",)), False),
    ],
)
def test_a_table_whose_format_changes_is_copied(
    then: EnvelopeTable, now: EnvelopeTable, copied: bool
) -> None:
    before = replace(plan(None, table=keyed(UUID, ReplicaIdentity.DEFAULT)), envelope=then)

    assert is_copied(before, replace(before, envelope=now)) is copied


@pytest.mark.parametrize(
    ("kind", "now", "copied"),
    [
        ("debezium", TypesTable(time="native"), False),
        ("debezium", TypesTable(columns={"public.t.a": "native"}), False),
        ("debezium", TypesTable(columns={"public.t.a": "text"}), True),
        ("pgsluice", TypesTable(time="native"), True),
        ("pgsluice", TypesTable(columns={"public.t.a": "text"}), False),
    ],
)
def test_a_time_in_a_key_is_never_text_for_debezium_unless_it_is_named(
    kind: EnvelopeFormat, now: TypesTable, copied: bool
) -> None:
    clock = replace(UUID, type_oid=1083, base_type_oid=1083, type_name="time without time zone")
    envelope = EnvelopeTable(format=kind)
    before = replace(plan(None, table=keyed(clock)), envelope=envelope)

    assert is_copied(before, replace(before, types=now)) is copied


SHAPE = replace(UUID, type_oid=65_000, base_type_oid=65_000, type_name="ext.geometry(Point,4326)")
PLACE = replace(SHAPE, type_oid=65_001, type_name="place", type_kind="d")


@pytest.mark.parametrize("identity", [ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL])
@pytest.mark.parametrize(
    ("kind", "copied"),
    [
        pytest.param(SHAPE, True, id="geometry"),
        pytest.param(replace(PLACE, base_type_name="ext.geometry"), True, id="domain"),
        pytest.param(replace(PLACE, type_name="geometry", base_type_name="bytea"), False, id="own"),
        pytest.param(replace(SHAPE, type_kind="e"), False, id="enum of that name"),
    ],
)
def test_a_key_of_an_extensions_type_is_known_by_the_name_of_its_base_type(
    identity: ReplicaIdentity, kind: Column, copied: bool
) -> None:
    before = plan(None, table=keyed(kind, identity))
    after = replace(before, types=TypesTable(geometry="native"))

    assert is_copied(before, after) is copied
    assert is_copied(after, before) is copied


@pytest.mark.parametrize("identity", [ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL])
@pytest.mark.parametrize(
    ("before", "copied"),
    [
        pytest.param(numeric(10, 2), True, id="a decimal before"),
        pytest.param(numeric(39, 2), False, id="text before"),
        pytest.param(numeric(5, -2), False, id="text before, with a negative scale"),
    ],
)
def test_a_numeric_key_that_loses_its_precision_is_copied_if_it_was_a_decimal(
    identity: ReplicaIdentity, before: Column, copied: bool
) -> None:
    after = replace(before, type_modifier=-1, base_type_modifier=-1)
    plans = [plan(None, table=keyed(one, identity)) for one in (before, after)]

    assert is_copied(*plans) is copied


def test_a_column_that_is_added_to_a_whole_row_key_copies_nothing() -> None:
    table = keyed(UUID, ReplicaIdentity.FULL)
    wider = replace(table, columns=(*table.columns, replace(UUID, name="c", attnum=3)))

    assert not is_copied(plan(None, table=table), plan(None, table=wider))
    assert not is_copied(plan(None, table=wider), plan(None, table=table))


def test_the_labels_of_an_enum_are_not_stored() -> None:
    labelled = replace(MOODS, labels=("sad", "so so"))
    state = remembered(*TABLE.columns, labelled)

    recalled = recall(served(replace(plan(None), tables={}, publishes=(), copies=())), [state], ())

    assert "so so" not in state.taken
    assert recalled.tables[1].columns == (*TABLE.columns, MOODS)


def test_a_table_of_which_it_is_not_known_how_keys_were_carried_is_not_copied() -> None:
    before = plan("(a > 5)")
    older = json.loads(describe(before, before.copies[0]))
    del older["native"]
    state = replace(ready(before), taken=json.dumps(older))

    assert states(state, before)[0].state == "ready"


@pytest.mark.parametrize(
    "edit",
    [
        lambda values: [*values, 1],
        lambda values: values[:-3],
        lambda values: [*values[:-1], 7],
        lambda values: [*values[:3], "4", *values[4:]],
        lambda values: [*values[:4], None, *values[5:]],
        lambda values: [*values[:5], [23], *values[6:]],
        lambda values: [*values[:-2], [[23], -1, "integer", "b"], ""],
        lambda values: [*values[:-2], [23, "-1", "integer", "b"], ""],
        lambda values: [*values[:-2], [23, -1, 7, "b"], ""],
        lambda values: [*values[:-2], [23, -1, "integer"], ""],
    ],
)
def test_a_description_that_no_gateway_writes_is_not_read(
    edit: Callable[[list[Any]], list[Any]],
) -> None:
    assert description_fault(remembered(*TABLE.columns, edit=edit).taken) is not None


def test_a_description_with_native_columns_that_are_a_list_is_not_read() -> None:
    description = json.loads(remembered(*TABLE.columns).taken)
    assert description_fault(json.dumps({**description, "native": ["a"]})) is not None
    assert description_fault(json.dumps({**description, "format": 7})) is not None


def test_a_table_that_has_left_its_publication_is_recalled_under_the_same_definitions() -> None:
    before = plan("(a > 5)")
    after = replace(before, tables={}, publishes=(), copies=(), subscriptions=(SUBSCRIPTION,))
    state = replace(ready(before), taken=describe(before, before.copies[0]))

    recalled = recall(after, [state], existing={1}, same_definitions=True)

    assert recalled.publishes == before.publishes
    assert copy_states(recalled, [state], reconcile=False) == (state,)
    held = HeldTable("s", "public", "t", 1, "trouble")
    assert recall(replace(after, held=(held,)), [state], existing={1}, same_definitions=True) == (
        replace(after, held=(held,))
    )


def served(plan: Plan) -> Plan:
    return replace(plan, subscriptions=(SUBSCRIPTION,))


def test_what_the_stream_will_tell_is_recalled_as_it_was_until_then() -> None:
    before = served(plan("(a > 5)"))
    state = replace(ready(before), taken=describe(before, before.copies[0]))
    altered = served(plan("(a > 6)"))

    as_now = recall(altered, [state], existing={1}, same_definitions=True)
    exact = recall(altered, [state], existing={1}, same_definitions=True, exactly=True)
    other = recall(altered, [state], existing={1}, exactly=True)

    assert as_now == other == altered
    assert exact.publishes == before.publishes
    assert exact.copies == altered.copies
    assert exact.earlier == {("s", 1)}
    same = recall(before, [state], existing={1}, same_definitions=True, exactly=True)
    assert same == before


def test_a_filter_of_the_past_on_a_column_that_is_gone_is_not_recalled() -> None:
    before = served(plan("(gone > 5)"))
    state = replace(ready(before), taken=describe(before, before.copies[0]))
    now = served(plan("(a > 6)"))
    assert recall(now, [state], existing={1}, same_definitions=True, exactly=True) == now


def test_a_table_that_was_in_no_publication_is_recalled_as_that() -> None:
    out = replace(plan(None), publishes=())
    state = replace(ready(plan(None)), taken=describe(out, out.copies[0]))

    recalled = recall(
        served(plan(None)), [state], existing={1}, same_definitions=True, exactly=True
    )

    assert recalled.publishes == ()
    assert recalled.earlier == {("s", 1)}


def test_a_partition_of_another_tree_by_now_is_recalled_as_one_of_the_tree_it_was_in() -> None:
    roots = {oid: replace(TABLE, oid=oid, name=f"t{oid}", kind="p") for oid in (1, 9)}
    leaves = {oid: replace(TABLE, oid=oid, name=f"t{oid}") for oid in (2, 3)}
    whole = served(plan(None))
    (publish,) = whole.publishes
    before = replace(
        whole,
        tables={**roots, **leaves},
        publishes=tuple(replace(publish, relation_oid=leaf) for leaf in leaves),
        copies=(*whole.copies, replace(whole.copies[0], target_oid=9)),
    )
    state = replace(ready(before), taken=describe(before, before.copies[0]), table="t1")
    stays, moves = before.publishes
    moved = replace(moves, target_oid=9)
    after = replace(before, publishes=(stays, moved))

    recalled = recall(after, [state], existing={1, 2, 3, 9}, same_definitions=True)

    # What is read under the new root goes on; and the sibling has not left anything.
    under_root = replace(moved, relation_oid=9)
    assert recalled.publishes == (stays, under_root, moves)
    assert recalled.earlier == {("s", 3)}


def test_siblings_of_a_dropped_partition_have_not_left() -> None:
    root = replace(TABLE, kind="p")
    leaves = {oid: replace(TABLE, oid=oid, name=f"t{oid}") for oid in (2, 3)}
    whole = served(plan(None, table=root))
    (publish,) = whole.publishes
    publishes = tuple(replace(publish, relation_oid=leaf) for leaf in leaves)
    before = replace(whole, tables={1: root, **leaves}, publishes=publishes)
    state = replace(ready(before), taken=describe(before, before.copies[0]))
    after = replace(before, publishes=publishes[:1])

    recalled = recall(after, [state], existing={1, 2})

    assert recalled.publishes == publishes
    assert recalled.earlier == {("s", 3)}


def test_a_pending_table_keeps_the_position_up_to_which_another_gateway_has_published() -> None:
    now, later = plan(None), plan("(a > 5)")
    pending = replace(ready(now), state="pending", consistent_point=Lsn(70))
    held = HeldTable("s", "public", "t", 1, "trouble")

    (redefined,) = states(pending, later)
    (aside,) = states(pending, replace(now, publishes=(), copies=(), held=(held,)))
    (back,) = states(aside, now)

    assert {each.consistent_point for each in (redefined, aside, back)} == {70}
    assert [aside.state, back.state] == ["held", "pending"]


def test_a_listed_table_that_is_not_there_is_missing_until_it_is_made_again() -> None:
    before = plan("(a > 5)")
    listed = replace(
        before,
        tables={},
        publishes=(),
        copies=(),
        subscriptions=(SUBSCRIPTION,),
        missing=(("public", "t", "gone"),),
    )

    (missing,) = states(ready(before), listed)

    assert (missing.state, missing.reason) == ("missing", "gone")
    assert states(missing, listed) == (missing,)
    assert states(missing, before) == to_copy(before)


def test_a_table_whose_topic_has_another_name_is_copied_to_it() -> None:
    now = plan("(a > 5)")
    before = replace(ready(now), topic="s.public.t")

    (kept,) = copy_states(now, [before], reconcile=False, names={})
    (moved,) = copy_states(now, [before], reconcile=False, names={"s.public.t": "other"})

    assert (kept.state, kept.topic) == ("ready", "s.public.t")
    assert (moved.state, moved.topic) == ("pending", "other")


def test_partitions_that_are_published_alike_are_remembered_together() -> None:
    leaves = range(100, 5_100)
    before = plan("(a > 5)", table=replace(TABLE, kind="p", leaves=tuple(leaves)))
    (publish,) = before.publishes
    trees = replace(before, publishes=tuple(replace(publish, relation_oid=o) for o in leaves))

    taken = describe(trees, trees.copies[0])

    assert len(taken) < 50_000
    assert relations_of(taken) == frozenset(leaves)
    recalled = recall(
        replace(trees, publishes=(), copies=()),
        [replace(ready(before), taken=taken)],
        (),
        same_definitions=True,
    )
    assert {p.relation_oid for p in recalled.publishes} <= frozenset(leaves)
    assert not oversized(trees, 50_000)


@pytest.mark.parametrize("text", ["5", "x" * 9_000, '"' * 4_000])
def test_a_table_of_which_more_is_remembered_than_may_be_is_found(text: str) -> None:
    found = plan(f"(a = '{text}'::text)")
    size = len(describe(found, found.copies[0]).encode())

    assert oversized(found, size) == {}
    assert oversized(found, size - 1) == {("s", 1): size}
