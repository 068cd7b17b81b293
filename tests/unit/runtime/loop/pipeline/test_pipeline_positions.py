"""How far the loop goes, and what it confirms when nothing is published."""

from __future__ import annotations

import pytest

from gateway.config import LimitsTable
from gateway.runtime.loop.pipeline import Outcome
from tests.support.gateway.pipeline_scene import (
    START,
    BenchFactory,
    message,
    transaction,
)
from tests.support.models.pgoutput_encode import keepalive


def test_idle_positions_advance_the_slot_with_a_progress_marker(bench: BenchFactory) -> None:
    b = bench([[keepalive(5000)]])

    b.pipeline.run()

    assert b.pipeline.durable.end_lsn == 5000
    assert b.values()[-1] == b"PROGRESS s 5000"


def test_a_keepalive_inside_a_transaction_moves_nothing(bench: BenchFactory) -> None:
    frames = transaction(7, 2000)
    b = bench([[*frames[:2], keepalive(1990)]])

    b.pipeline.run()

    assert b.pipeline.durable.end_lsn == START


def test_progress_goes_also_to_the_subscriptions_that_had_no_end(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000)], subscriptions=("s", "idle"), routed=("s",))

    b.pipeline.run()

    assert b"PROGRESS idle 2010" in b.values()


def test_progress_is_limited_to_one_in_an_interval(bench: BenchFactory) -> None:
    turns = [[keepalive(2000 + n)] for n in range(50)]
    b = bench(turns, limits=LimitsTable(progress_interval_s=1000.0))

    b.pipeline.run()

    # One at the start, one at the stop.
    assert sum(v.startswith(b"PROGRESS") for v in b.values()) == 2


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(transaction(8, 3000), id="passed by a later transaction"),
        pytest.param([keepalive(2010)], id="reached by a keepalive"),
        pytest.param([keepalive(9000)], id="passed by a keepalive"),
    ],
)
def test_endpos_publishes_up_to_it_and_stops(bench: BenchFactory, frames: list[bytes]) -> None:
    b = bench([transaction(7, 2000), frames], endpos=2010, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    assert b.pipeline.durable.end_lsn == 2010


def test_endpos_that_was_published_before_still_gets_its_marker(bench: BenchFactory) -> None:
    b = bench([[keepalive(1000)]], endpos=900, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b.values()[-1] == b"PROGRESS s 1000"


def test_endpos_inside_a_commit_record_is_published_but_never_confirmed(
    bench: BenchFactory,
) -> None:
    # The next transaction's commit record is at 3000 to 3010. A server whose slot is confirmed
    # between them would skip it.
    b = bench([transaction(7, 2000), transaction(8, 3000)], endpos=3005, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b.values()[-1] == b"PROGRESS s 3005"
    assert b.pipeline.durable.end_lsn == 3000
    assert b.source.feedback[-1] == 3000


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(transaction(9, 4000), id="transaction"),
        pytest.param([message(4000, b"m")], id="message"),
        pytest.param([keepalive(5000)], id="keepalive"),
    ],
)
def test_what_comes_with_the_transaction_after_endpos_moves_nothing(
    bench: BenchFactory, after: list[bytes]
) -> None:
    b = bench([transaction(7, 2000), transaction(8, 3000) + after], endpos=3005, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b.pipeline.durable.end_lsn == 3000
    assert b.source.feedback[-1] == 3000
    assert b"m" not in b.values()


def test_a_message_after_endpos_is_not_published(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000), [message(2500, b"m")]], endpos=2400, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b"m" not in b.values()
    assert b.pipeline.durable.end_lsn == 2400


def test_endpos_waits_for_the_server_to_pass_it(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000), [keepalive(2400)]], endpos=2500)

    assert b.pipeline.run() is Outcome.STOPPED
