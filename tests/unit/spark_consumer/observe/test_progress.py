"""How far a long cut is, said from its first seconds on."""

from __future__ import annotations

from spark_consumer.observe.progress import Progress


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_long_cut_is_mentioned_after_five_seconds_and_every_ten() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.read([1_000, 200])
    progress.begin(0, 3)
    said = []
    with progress.table("public.big"):
        for _ in range(27):
            clock.now += 1
            if (line := progress.report()) is not None:
                said.append((clock.now - 100, line))
            if clock.now == 110:
                progress.applied("public.small", 40)

    assert said == [
        (5, "cut=1/2 tables=0/3 records=0/1000 seconds=5 now=public.big (5 s)"),
        (15, "cut=1/2 tables=1/3 records=40/1000 seconds=15 now=public.big (15 s)"),
        (25, "cut=1/2 tables=1/3 records=40/1000 seconds=25 now=public.big (25 s)"),
    ]


def test_a_short_cut_and_an_idle_job_are_not_mentioned() -> None:
    clock = Clock()
    progress = Progress(clock)
    assert progress.report() is None
    for number in range(2):
        progress.read([7, 7])
        progress.begin(number, 1)
        clock.now += 4
        assert progress.report() is None
    progress.read(())
    clock.now += 60
    assert progress.report() is None
    assert progress.waiting_records == 0


def test_a_cut_that_failed_waits_and_is_not_said_to_be_applied() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.read([7])
    progress.begin(0, 1)
    progress.interrupt()
    clock.now += 60
    assert progress.report() is None
    assert progress.waiting_records == 7

    # Another try, which has not begun yet.
    progress.read([9])
    assert progress.report() is None
    progress.begin(0, 1)
    clock.now += 6
    assert "seconds=6" in (progress.report() or "")


def test_a_table_that_was_behind_makes_no_cut_more_than_done() -> None:
    progress = Progress(Clock())
    progress.read([100, 50])
    progress.begin(0, 1)
    progress.applied("public.t", 400)
    assert progress.waiting_records == 50
    progress.begin(1, 1)
    assert progress.waiting_records == 50


def test_many_tables_at_work_are_counted_and_the_oldest_named() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.read([9])
    progress.begin(0, 5)
    with progress.table("a"), progress.table("b"), progress.table("c"), progress.table("d"):
        clock.now += 6
        assert "now=a (6 s),b (6 s),c (6 s) and 1 more" in (progress.report() or "")
        assert progress.running_tables == 4
    assert progress.running_tables == 0
