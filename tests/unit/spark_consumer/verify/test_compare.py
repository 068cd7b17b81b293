"""Rows that were read at different moments, brought to one: any history, any moments."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spark_consumer.verify.compare import settle
from spark_consumer.verify.replay import Change
from spark_consumer.verify.text import Row

KEYS: list[Row] = [(f"={number}",) for number in range(4)]
_history = st.lists(
    st.tuples(
        st.sampled_from(["put", "set", "set", "delete", "move"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)
_moments = st.lists(st.integers(0, 12), min_size=4, max_size=4)


def make(number: int, op: str, to: int, of: int, unsent: bool) -> Change:
    """The change `number`, which also is its transaction and the value that it writes."""
    key = KEYS[to]
    row = None if op == "delete" else (*key, None if unsent else f"={number}")
    kept = frozenset({1}) if unsent and op in ("set", "move") else frozenset[int]()
    if unsent and not kept and row is not None:
        row = (*key, "=kept")
    return Change(op, number, number, key, KEYS[of] if op == "move" else None, row, kept)


def applied(rows: dict[Row, Row], change: Change) -> dict[Row, Row]:
    """What a subscriber does with one change."""
    rows = dict(rows)
    if change.op == "delete":
        rows.pop(change.key, None)
        return rows
    assert change.row is not None
    if change.op == "put":
        rows[change.key] = change.row
        return rows
    before = rows.pop(change.old or change.key, None)
    if before is not None:
        value = before[1] if 1 in change.unsent else change.row[1]
        rows[change.key] = (*change.key, value)
    return rows


@given(_history, _moments, st.sets(st.integers(0, 3)))
def test_rows_are_those_of_the_last_moment_or_their_keys_are_open(
    drawn: list[tuple[str, int, int, bool]], moments: list[int], again: set[int]
) -> None:
    changes: list[Change] = []
    states: list[dict[Row, Row]] = [{}]
    for each in drawn:
        change = make(len(changes), *each)
        one_moment = len(set(moments)) == 1
        # The source changes rows that it has; a subscriber skips what it does not have.
        if one_moment or change.op == "put" or (change.old or change.key) in states[-1]:
            changes.append(change)
            states.append(applied(states[-1], change))
    late = max(moments)
    read_at = {
        key: min(late if number in again else moments[number], len(changes))
        for number, key in enumerate(KEYS)
    }
    # What is not read again must not have changed between its moment and the first change given.
    spooled = [
        states[read_at[key]][key]
        for number, key in enumerate(KEYS)
        if number not in again and key in states[read_at[key]]
    ]
    read_again = {KEYS[number]: states[read_at[KEYS[number]]].get(KEYS[number]) for number in again}

    expected, opened = settle(
        ["a", "b"],
        ["a"],
        spooled,
        read_again,
        changes,
        lambda key, change: change.xid < read_at[key],
    )

    wanted = {key: row for key, row in states[-1].items() if key not in opened}
    assert {key: row for key, row in expected if key not in opened} == wanted
    if len(set(read_at.values())) == 1:
        assert not opened


def test_a_table_without_a_key_takes_changes_of_rows_that_are_there() -> None:
    spooled = [("=1",), ("=1",), ("=2",)]
    changes = [
        Change("delete", 5, 5, (), ("=9",), None),
        Change("set", 6, 6, (), ("=1",), ("=3",)),
        Change("set", 7, 7, (), ("=8",), ("=4",)),
        Change("put", 8, 8, (), None, ("=2",)),
        Change("delete", 3, 3, (), ("=2",), None),
    ]

    expected, opened = settle(["a"], [], spooled, {}, changes, lambda _, change: change.xid < 4)

    assert Counter(row for _, row in expected) == {("=1",): 1, ("=2",): 2, ("=3",): 1}
    assert not opened
