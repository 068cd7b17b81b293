"""The walk over key changes and multisets, against the apply worker on plain values."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_consumer.lineage import Event, trace_bags, trace_keys
from tests.spark.apply_worker import KeyedTable, Multiset

IDS = st.integers(0, 4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "set", "delete", "move"]), IDS, IDS), max_size=25
)


@given(steps=STEPS, present=st.sets(IDS))
def test_a_row_is_made_of_the_changes_that_the_apply_worker_gave_it(
    steps: list[tuple[Any, int, int]], present: set[int]
) -> None:
    model = KeyedTable("id")
    for key in present:
        model.insert({"id": key, "made of": (f"row {key}",)})
    events = []
    for offset, (operation, old, new) in enumerate(steps):
        row = model.rows.get(model.identity({"id": old}))
        made_of = {"made of": (*row["made of"], offset)} if row is not None else {}
        match operation:
            case "put":
                events.append(Event(offset, "put", new=new))
                model.insert({"id": new, "made of": (offset,)})
            case "delete":
                events.append(Event(offset, "delete", old=old))
                model.delete({"id": old})
            case "set":
                events.append(Event(offset, "set", old=old))
                model.update({"id": old}, {"id": old, **made_of})
            case _:
                events.append(Event(offset, "move", old=old, new=new))
                model.update({"id": old}, {"id": new, **made_of})

    lineages = trace_keys(events, present)

    made: dict[int, tuple[Any, ...]] = {key: (f"row {base}",) for base, key in lineages.bases}
    for offset, key in lineages.changes:
        made[key] = (*made.get(key, ()), offset)
    assert made == {row["id"]: row["made of"] for row in model.rows.values()}
    assert lineages.present == set(made)


@given(steps=STEPS, rows=st.lists(IDS, max_size=6))
def test_a_multiset_keeps_as_many_rows_of_each_value_as_the_apply_worker(
    steps: list[tuple[Any, int, int]], rows: list[int]
) -> None:
    model = Multiset()
    for value in rows:
        model.insert({"value": value})
    events = []
    for offset, (operation, old, new) in enumerate(steps):
        match operation:
            case "put":
                events.append(Event(offset, "put", new=new))
                model.insert({"value": new})
            case "delete":
                events.append(Event(offset, "delete", old=old))
                model.delete({"value": old})
            case _:
                events.append(Event(offset, operation, old=old, new=new))
                model.update({"value": old}, {"value": new})

    bags = trace_bags(events, {value: rows.count(value) for value in set(rows)})

    left = [v for v in set(rows) for _ in range(rows.count(v) - bags.removed.get(v, 0))]
    added = [event.new for event in events if event.offset in set(bags.inserted)]
    assert sorted([*left, *added], key=repr) == sorted(
        (row["value"] for row in model.rows), key=repr
    )
