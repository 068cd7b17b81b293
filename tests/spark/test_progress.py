"""When a subscription is complete: counts against promises, over any cut of the batches."""

from __future__ import annotations

from spark_consumer.progress import Counted, Marked, Progress, advance

T1 = ("s.public.t1", 0)
T2 = ("s.public.t2", 0)


def test_a_marker_read_before_its_records_completes_nothing() -> None:
    marked = Marked(offset=0, end_lsn=0x100, promised={T1: 3}, copies={})

    early = advance(Progress(), {T1: Counted(1, 2)}, marked, [])
    late = advance(early, {T1: Counted(2, 3)}, None, [])

    assert early.complete_lsn is None
    assert early.missing() == ["s.public.t1-0: 2 of 3 records"]
    assert late.complete_lsn == 0x100


def test_an_older_lsn_stays_complete_while_a_newer_one_is_not() -> None:
    first = Marked(offset=0, end_lsn=0x100, promised={T1: 1}, copies={})
    second = Marked(offset=1, end_lsn=0x200, promised={T2: 1}, copies={})

    done = advance(Progress(), {T1: Counted(0, 1)}, first, [])
    waiting = advance(done, {}, second, [])

    assert (waiting.end_lsn, waiting.complete_lsn) == (0x200, 0x100)


def test_a_table_whose_initial_copy_is_not_ready_holds_everything_back() -> None:
    copying = Marked(offset=0, end_lsn=0x100, promised={}, copies={"public.t1": "copying"})
    ready = Marked(offset=1, end_lsn=None, promised={T1: 1}, copies={"public.t1": "ready"})

    waiting = advance(Progress(), {}, copying, [])
    done = advance(waiting, {T1: Counted(0, 1)}, ready, [])

    assert waiting.complete_lsn is None
    assert done.complete_lsn == 0x100


def test_a_copy_marker_alone_completes_no_lsn() -> None:
    ready = Marked(offset=0, end_lsn=None, promised={T1: 1}, copies={"public.t1": "ready"})

    assert advance(Progress(), {T1: Counted(0, 1)}, ready, []).complete_lsn is None
