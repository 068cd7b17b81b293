"""What counts as lost, by what was written and what the partitions have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.copy import Progress
from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyRequest, CopyState
from gateway.definitions.requests import is_asked, released
from gateway.runtime.planning.lost_records import (
    changed_partitions,
    copied_again,
    lost_markers,
    lost_records,
)
from gateway.sink.topics.log_bounds import LogBounds


def ends(*numbers: int) -> tuple[LogBounds, ...]:
    return tuple(LogBounds(0, number) for number in numbers)


@pytest.mark.parametrize(
    ("written", "bounds", "lost"),
    [
        ((5, 7), ends(5, 7), False),
        ((5, 7), ends(6, 90), False),
        ((5, 7), ends(0, 0), True),
        ((5, 7), ends(5, 6), True),
        ((0, 0), ends(0, 0), False),
        ((), ends(0, 0), False),
        ((5, 7), (LogBounds(5, 5), LogBounds(7, 8)), False),  # what retention leaves
    ],
)
def test_a_partition_that_ends_before_what_was_written_has_lost_records(
    written: tuple[int, ...], bounds: tuple[LogBounds, ...], lost: bool
) -> None:
    found = lost_records({"s.public.t": written}, {"s.public.t": bounds})

    assert list(found) == (["s.public.t"] if lost else [])


def test_what_is_seen_of_it_names_the_partition_and_both_offsets() -> None:
    (why,) = lost_records({"t": (5, 7)}, {"t": ends(5, 3)}).values()

    assert "partition 1" in why and "offset 3" in why and "until 7" in why


STATES = (
    CopyState("s", "public", "t", "ready", Lsn(5), topic="s.public.t"),
    CopyState("s", "public", "u", "copying", Lsn(5), progress=Progress((b"1",))),
    CopyState("new", "public", "t", "pending"),
)


def test_only_the_tables_of_lost_topics_are_copied_again() -> None:
    after = copied_again(STATES, {"s.public.u"}, {})

    assert [state.state for state in after] == ["ready", "pending", "pending"]
    assert after[1].progress == Progress()
    assert after[0] is STATES[0]


def test_a_marker_topic_without_a_record_is_lost_where_something_was_published() -> None:
    bounds = {"s.transaction": ends(0), "new.transaction": ends(0)}

    assert lost_markers(["s", "new"], STATES, bounds) == {"s"}
    assert lost_markers(["s"], STATES, {"s.transaction": ends(1)}) == set()


def test_whoever_asks_for_a_copy_of_the_whole_table_knows_of_the_loss() -> None:
    t, u = STATES[0], STATES[1]
    one = CopyRequest("n", "public", "t")
    part = CopyRequest("n", "public", "u", None, "a > 5")

    assert is_asked(t, [one]) and not is_asked(u, [one])
    assert not is_asked(u, [one, part])
    assert not is_asked(t, [CopyRequest("n", "public", "t", cancel=True)])
    assert is_asked(u, [CopyRequest("n", None, None, "s")])
    assert not is_asked(u, [CopyRequest("n", None, None, "new")])


def test_only_what_is_asked_for_is_released() -> None:
    held = [replace(state, state="held", cause="lost", reason="gone") for state in STATES[:2]]

    after = released(held, [CopyRequest("n", "public", "t")])

    assert [state.cause for state in after] == ["", "lost"]
    assert released(held, []) == tuple(held)


def test_a_topic_is_as_it_was_while_it_has_the_partitions_that_are_known() -> None:
    now = {"t": 3, "u": 2, "new": 4}

    (why,) = changed_partitions(now, {"t": (5, 0), "u": (1, 1)}).values()

    assert "topic t has 3 partitions, it had 2" in why
