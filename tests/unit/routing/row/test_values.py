"""Keys and values of records: column lists, generated and unchanged columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.pgoutput.messages import (
    UNCHANGED,
    Delete,
    Insert,
    ReplicaIdentity,
    TupleData,
    Update,
)
from gateway.routing.row.native import ROWS
from tests.support.gateway.routing_scene import (
    T1,
    T1_TABLE,
    TWO_COLUMNS,
    Gateway,
    Seen,
    column,
    data,
    full_tuple,
    key_tuple,
    ops,
    publish,
    relation_of,
    table,
    update,
)


def test_unchanged_columns_are_named_and_null() -> None:
    gateway = Gateway([T1_TABLE], [publish()])
    new: TupleData = (b"1", UNCHANGED)

    (row,) = data(gateway.commit(relation_of(T1_TABLE), Update(T1, None, new)))

    assert row.value is not None
    assert (row.value["after"], row.value["unchanged"]) == ({"a": 1, "b": None}, ["b"])


def test_under_full_unchanged_columns_are_taken_from_the_old_row() -> None:
    full = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)
    gateway = Gateway([full], [publish(where="(b > 5)")])
    change = Update(T1, full_tuple(b"1", b"77"), (b"2", UNCHANGED))

    seen = data(gateway.commit(relation_of(full), change))

    assert seen[-1].value is not None
    assert (seen[-1].value["after"], seen[-1].value["unchanged"]) == ({"a": 2, "b": 77}, [])


def test_without_a_primary_key_full_makes_the_whole_row_the_key() -> None:
    bag = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL, primary_key=())
    gateway = Gateway([bag], [publish()])

    seen = gateway.commit(
        relation_of(bag), Insert(T1, (b"1", None)), Delete(T1, full_tuple(b"1", None))
    )

    # No tombstone: another row with the same key may live on.
    assert ops(seen) == ["c", "d"]
    assert data(seen)[0].key == {"a": 1, "b": None}


def test_a_column_list_limits_the_value() -> None:
    gateway = Gateway([T1_TABLE], [publish(columns=("a",))])

    (row,) = data(gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"1", b"2"))))

    assert row.value is not None
    assert row.value["after"] == {"a": 1}


@pytest.mark.parametrize(
    ("columns", "generated", "after"),
    [
        pytest.param(None, False, {"a": 1, "b": 2}, id="left out, though the server sends it"),
        pytest.param(None, True, {"a": 1, "b": 2, "g": 3}, id="published by the option"),
        pytest.param(("a", "g"), False, {"a": 1, "g": 3}, id="published by the column list"),
    ],
)
def test_a_stored_generated_column_is_there_where_it_is_published(
    columns: tuple[str, ...] | None, generated: bool, after: dict[str, int]
) -> None:
    stored = table(T1, "t1", (*TWO_COLUMNS, replace(column("g", 3), generated="s")))
    taken = replace(publish(columns=columns), generated=generated)
    gateway = Gateway([stored], [taken])

    (row,) = data(gateway.commit(relation_of(stored), Insert(T1, (b"1", b"2", b"3"))))

    assert row.value is not None
    assert row.value["after"] == after


def test_equal_keys_share_a_partition_when_there_are_several() -> None:
    numeric = table(T1, "t1", (column("a", 1, 1700, "numeric"), column("b", 2)))
    gateway = Gateway([numeric], [publish()], partitions=8)

    seen = data(
        gateway.commit(
            relation_of(numeric), Insert(T1, (b"1.0", b"2")), update(None, b"1.00", b"3")
        )
    )

    assert len({s.partition for s in seen}) == 1


def test_a_value_that_is_not_in_the_stream_is_counted_when_a_row_enters_the_filter() -> None:
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])
    entering = Update(T1, key_tuple(b"1", None), (b"9", UNCHANGED))
    staying = Update(T1, None, (b"9", UNCHANGED))

    seen = data(gateway.commit(relation_of(T1_TABLE), entering, staying))

    assert seen[0].value is not None
    assert (seen[0].op, seen[0].value["after"]) == ("c", {"a": 9, "b": None})
    assert gateway.router.pop_lost_values() == {"public.t1": 1}
    assert gateway.router.pop_lost_values() == {}


def test_so_it_is_when_the_filter_was_the_servers() -> None:
    """With push-down the row comes as an INSERT, which is then without the value as well."""
    gateway = Gateway([T1_TABLE], [publish(where="(a > 5)")])

    seen = data(gateway.commit(relation_of(T1_TABLE), Insert(T1, (b"9", UNCHANGED))))

    assert seen[0].value is not None
    assert (seen[0].op, seen[0].value["after"]) == ("c", {"a": 9, "b": None})
    assert seen[0].value["unchanged"] == ["b"]
    assert gateway.router.pop_lost_values() == {"public.t1": 1}


@pytest.mark.parametrize("lacking", ["CONVERSIONS", "KEY_FORMS"])
def test_what_the_compiled_row_path_lacks_is_left_to_the_interpreted_one(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (column("a", 1, 1184, "timestamp with time zone"), column("b", 2))
    dated = table(T1, "t1", columns)
    changes = [Insert(T1, (b"2024-02-29 12:00:00+00", b"%d" % n)) for n in range(3)]

    def routed() -> list[Seen]:
        return Gateway([dated], [publish()], partitions=7).commit(relation_of(dated), *changes)

    expected = routed()
    if not isinstance(ROWS, str):
        monkeypatch.delitem(getattr(ROWS, lacking), "timestamptz")

    assert routed() == expected
    assert len(data(expected)) == 3
