"""When a batch is handed over: a table of situations, and what turning a cost changes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.runtime.loop.commit_cost import MEASURED, CommitCost, Gathered, Handover
from tests.support.run.seeds import SEED

DOCS = Path(__file__).resolve().parents[4] / "docs"
WAIT, PIECE, MANY, COMMIT = Handover

NOTHING = Gathered(0, 0.0)
SOME = Gathered(999, 0.0)
FULL = Gathered(1_000, 0.0, full=True)
PARTLY = Gathered(999, 0.0, whole=False)
COPIES = replace(FULL, copied=1_000)
THIN = replace(FULL, records=1_600, partitions=20)


@pytest.mark.parametrize(
    ("batch", "now", "situation", "expected"),
    [
        pytest.param(NOTHING, 9.0, "idle", WAIT, id="nothing"),
        pytest.param(SOME, 0.1, "", WAIT, id="young, the stream goes on"),
        pytest.param(SOME, 0.1, "idle", COMMIT, id="the stream has nothing more to give"),
        pytest.param(SOME, 0.1, "idle waiting", WAIT, id="more is to be routed"),
        pytest.param(SOME, 0.2, "waiting", COMMIT, id="old"),
        pytest.param(FULL, 0.0, "waiting", COMMIT, id="full"),
        pytest.param(PARTLY, 9.0, "idle", WAIT, id="ends within a transaction"),
        pytest.param(replace(PARTLY, full=True), 0.0, "", PIECE, id="full within a transaction"),
        pytest.param(replace(NOTHING, pieces=1), 0.0, "idle", COMMIT, id="its last piece is over"),
        pytest.param(COPIES, 0.0, "quiet", PIECE, id="full of copied rows"),
        pytest.param(replace(COPIES, pieces=7), 0.0, "quiet", COMMIT, id="eighth batch of them"),
        pytest.param(COPIES, 0.0, "", COMMIT, id="copied rows, and transactions come"),
        pytest.param(replace(COPIES, copied=999), 0.0, "quiet", COMMIT, id="a live change inside"),
        pytest.param(THIN, 0.0, "waiting", MANY, id="spread thin"),
        pytest.param(THIN, 0.0, "", COMMIT, id="spread thin, nothing waits"),
        pytest.param(THIN, 2.0, "waiting", COMMIT, id="spread thin for two seconds"),
        pytest.param(replace(THIN, partitions=9), 0.0, "waiting", COMMIT, id="few partitions"),
        pytest.param(
            replace(THIN, since=1.9, pieces=1, in_pieces=1_600), 2.0, "waiting", COMMIT, id="since"
        ),
        pytest.param(
            replace(THIN, pieces=3, in_pieces=18_399), 0.0, "waiting", MANY, id="19,999 for 20"
        ),
        pytest.param(
            replace(THIN, pieces=3, in_pieces=18_400), 0.0, "waiting", COMMIT, id="20,000 for 20"
        ),
    ],
)
def test_what_is_done_with_a_batch(
    batch: Gathered, now: float, situation: str, expected: Handover
) -> None:
    assert decide(MEASURED, batch, now, situation) is expected


def decide(cost: CommitCost, batch: Gathered, now: float, situation: str) -> Handover:
    """Of batches of 1,000 records that are committed at an age of 0.2 s, eight at once."""
    given = situation.split()
    return cost.decide(
        batch,
        now,
        max_age_s=0.2,
        most_pieces=8,
        idle="idle" in given,
        waiting="waiting" in given,
        quiet="quiet" in given,
    )


@pytest.mark.parametrize(
    ("batch", "waiting", "due_at"),
    [
        (NOTHING, False, None),
        (PARTLY, True, None),
        (SOME, True, 0.2),
        (THIN, False, 0.2),
        (THIN, True, 2.0),
        (replace(THIN, since=1.5, opened_at=0.5, pieces=1), True, 2.5),
    ],
)
def test_when_age_commits_a_batch(batch: Gathered, waiting: bool, due_at: float | None) -> None:
    assert MEASURED.due_at(batch, 0.0, max_age_s=0.2, waiting=waiting) == due_at


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        pytest.param(MEASURED, MANY, id="20 partitions need 20,000 records"),
        pytest.param(CommitCost(partition_records=16), COMMIT, id="cheaper partitions"),
        pytest.param(CommitCost(partition_share=2.5), COMMIT, id="a larger share for them"),
        pytest.param(CommitCost(many_partitions=21), COMMIT, id="20 are not many"),
        pytest.param(CommitCost(longest_spread_s=0.1), COMMIT, id="less patience"),
    ],
)
def test_costs_decide_whether_a_batch_is_put_off(cost: CommitCost, expected: Handover) -> None:
    assert decide(cost, THIN, 0.1, "waiting") is expected


@pytest.mark.parametrize(
    ("cost", "sizes"),
    [
        (MEASURED, [1_000, 1_000, 1_600, 3_000]),
        (CommitCost(request_records=0), [1_000, 1_000, 1_000, 1_000]),
        (CommitCost(request_records=60), [1_000, 1_920, 3_000, 3_000]),
        (CommitCost(request_share=0.75), [1_000, 1_000, 1_000, 3_000]),
        (CommitCost(most_batches=20), [1_000, 1_000, 1_600, 16_000]),
    ],
)
def test_costs_decide_how_large_a_batch_is(cost: CommitCost, sizes: list[int]) -> None:
    partitions = [0, 12, 20, 200]

    assert [cost.batch_records(1_000, number) for number in partitions] == sizes


@pytest.mark.parametrize(
    ("before", "copied", "took_s", "expected"),
    [
        pytest.param(2_000, 999, 9.0, 2_000, id="mostly live changes: nothing is learnt"),
        pytest.param(2_000, 2_000, 0.045, 2_000, id="as long as is aimed at"),
        pytest.param(2_000, 2_000, 0.009, 3_000, id="an eighth of the way up"),
        pytest.param(4_000, 4_000, 0.090, 3_000, id="half of the way down"),
        pytest.param(2_000, 2_000, 9.0, 2_000, id="never fewer"),
        pytest.param(5_000, 5_000, 0.0, 5_000, id="never more"),
    ],
)
def test_how_many_copied_rows_a_commit_may_have(
    before: int, copied: int, took_s: float, expected: int
) -> None:
    assert MEASURED.mixed_records(before, copied, took_s, most=5_000) == expected


@pytest.mark.parametrize("rate", [60_000, 90_000, 110_000])
def test_copied_rows_settle_where_their_commit_takes_as_long_as_is_aimed_at(rate: int) -> None:
    for cost in (MEASURED, CommitCost(mixed_s=0.060)):
        records = cost.least_copied
        for _ in range(100):
            records = cost.mixed_records(records, records, records / rate, most=50_000)

        assert records / rate == pytest.approx(cost.mixed_s, rel=0.01)


@pytest.mark.parametrize(
    ("before", "took_s", "expected"),
    [
        pytest.param(0.0, 0.006, 0.0, id="as quick as the others"),
        pytest.param(0.0, 0.019, 0.0, id="slower, and not refused"),
        pytest.param(0.0, 0.020, 0.002, id="refused: a step"),
        pytest.param(0.002, 0.300, 0.004, id="once more, whatever it took"),
        pytest.param(0.009, 0.020, 0.010, id="never longer than the longest"),
        pytest.param(0.010, 0.006, 0.00995, id="not refused: half a percent less"),
    ],
)
def test_how_long_small_commits_pause(before: float, took_s: float, expected: float) -> None:
    found = MEASURED.pause_s(before, took_s, quickest_s=0.005)

    assert found == pytest.approx(expected)


@pytest.mark.parametrize("ends_after_s", [0.003, 0.006, 0.009])
def test_the_pause_settles_where_few_commits_are_refused(ends_after_s: float) -> None:
    chance = random.Random(SEED)
    pause_s, refused = 0.0, 0
    for number in range(2_000):
        # The broker ends a Kafka transaction some time after its commit, which varies.
        is_refused = pause_s < ends_after_s * chance.uniform(0.5, 1.0)
        pause_s = MEASURED.pause_s(pause_s, 0.025 if is_refused else 0.005, quickest_s=0.005)
        refused += is_refused and number >= 100

    assert refused / 1_900 < 0.04
    assert pause_s < ends_after_s + 2 * MEASURED.pause_step_s


@pytest.mark.parametrize(
    ("page", "sentence", "numbers"),
    [
        (
            "decisions/0019*.md",
            r"lately sent in ([\d,]+) ms,\s+no fewer than ([\d,]+)",
            [round(MEASURED.mixed_s * 1000), MEASURED.least_copied],
        ),
        (
            "decisions/0122*.md",
            r"([\d,]+) ms longer .* adds ([\d,]+) ms .*at most ([\d,]+)",
            [
                round(1000 * seconds)
                for seconds in (
                    MEASURED.refusal_s,
                    MEASURED.pause_step_s,
                    MEASURED.longest_pause_s,
                )
            ],
        ),
        (
            "decisions/0044*.md",
            r"there are ([\d,]+) records for each partition",
            [MEASURED.worth_commit(1)],
        ),
        (
            "decisions/0044*.md",
            r"until it has ([\d,]+) records for each",
            [MEASURED.worth_requests(1)],
        ),
        (
            "operations.md",
            r"up to ([\d,]+) for each of them.*fewer than ([\d,]+) for each partition",
            [MEASURED.worth_commit(1), MEASURED.worth_requests(1)],
        ),
    ],
)
def test_the_documents_say_the_same_numbers(page: str, sentence: str, numbers: list[int]) -> None:
    (path,) = DOCS.glob(page)
    found = re.search(sentence, " ".join(path.read_text().split()))

    assert found is not None
    assert [int(number.replace(",", "")) for number in found.groups()] == numbers
