"""When a silent stream is asked for a word, and when it is given up."""

from __future__ import annotations

from gateway.source.stream.receiver_timeout import Liveness, SilenceWatch


def test_is_asked_at_half_and_lost_at_the_whole_time() -> None:
    watch = SilenceWatch(10)

    assert [(at, watch.judge(at)) for at in (0, 4.9, 5, 5.1, 9.9, 10)] == [
        (0, Liveness.WAIT),
        (4.9, Liveness.WAIT),
        (5, Liveness.ASK),
        (5.1, Liveness.WAIT),
        (9.9, Liveness.WAIT),
        (10, Liveness.LOST),
    ]


def test_begins_anew_with_every_word() -> None:
    watch = SilenceWatch(10)
    for at in (0.0, 100.0, 200.0):
        assert watch.judge(at) is Liveness.WAIT
        assert watch.judge(at + 5) is Liveness.ASK
        watch.on_message()


def test_is_not_lost_unasked_by_a_receiver_that_did_not_look() -> None:
    watch = SilenceWatch(10)
    assert watch.judge(0) is Liveness.WAIT
    assert watch.judge(60) is Liveness.ASK
    assert watch.judge(64) is Liveness.WAIT
    assert watch.judge(65) is Liveness.LOST


def test_zero_means_never() -> None:
    watch = SilenceWatch(0)

    assert {watch.judge(at) for at in (0, 1e3, 1e9)} == {Liveness.WAIT}
