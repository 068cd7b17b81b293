"""When a silent stream is asked for a word, and when it is given up."""

from __future__ import annotations

from gateway.source.stream.receiver_timeout import SilenceWatch, Verdict


def test_is_asked_at_half_and_lost_at_the_whole_time() -> None:
    watch = SilenceWatch(10)

    assert [(at, watch.judge(at)) for at in (0, 4.9, 5, 5.1, 9.9, 10)] == [
        (0, Verdict.WAIT),
        (4.9, Verdict.WAIT),
        (5, Verdict.ASK),
        (5.1, Verdict.WAIT),
        (9.9, Verdict.WAIT),
        (10, Verdict.LOST),
    ]


def test_begins_anew_with_every_word() -> None:
    watch = SilenceWatch(10)
    for at in (0.0, 100.0, 200.0):
        assert watch.judge(at) is Verdict.WAIT
        assert watch.judge(at + 5) is Verdict.ASK
        watch.on_message()


def test_is_not_lost_unasked_by_a_receiver_that_did_not_look() -> None:
    watch = SilenceWatch(10)
    assert watch.judge(0) is Verdict.WAIT
    assert watch.judge(60) is Verdict.ASK
    assert watch.judge(64) is Verdict.WAIT
    assert watch.judge(65) is Verdict.LOST


def test_zero_means_never() -> None:
    watch = SilenceWatch(0)

    assert {watch.judge(at) for at in (0, 1e3, 1e9)} == {Verdict.WAIT}
