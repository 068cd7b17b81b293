"""A blocking call in a thread: its result, its failure, and a caller that gives up on it."""

from __future__ import annotations

import threading

import pytest

from gateway.core.background import call_in_background, keep_waiting
from tests.support.run.waiting import wait_until


class GivenUp(Exception):
    pass


def give_up() -> None:
    raise GivenUp


def test_result_and_failure_are_those_of_the_call() -> None:
    assert call_in_background(lambda: 42, on_wait=keep_waiting) == 42
    with pytest.raises(ZeroDivisionError):
        call_in_background(lambda: 1 // 0, on_wait=keep_waiting)


def test_a_timeout_of_the_call_is_its_failure_and_no_reason_to_wait_on() -> None:
    def expire() -> None:
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        call_in_background(expire, on_wait=keep_waiting)


def test_the_caller_is_awake_while_it_waits() -> None:
    seen: list[int] = []
    enough = threading.Event()

    def look() -> None:
        seen.append(1)
        if len(seen) == 3:
            enough.set()

    assert call_in_background(lambda: enough.wait(20), on_wait=look)


def test_what_comes_after_the_caller_gave_up_is_discarded() -> None:
    go_on = threading.Event()
    discarded: list[str] = []

    def work() -> str:
        go_on.wait(20)
        return "late"

    with pytest.raises(GivenUp):
        call_in_background(work, on_wait=give_up, discard=discarded.append)
    assert discarded == []
    go_on.set()
    wait_until(lambda: discarded == ["late"], 60, "the late result")


def test_a_failure_after_the_caller_gave_up_is_nobodys() -> None:
    go_on = threading.Event()
    ended = threading.Event()

    def work() -> None:
        go_on.wait(20)
        ended.set()
        raise ValueError

    with pytest.raises(GivenUp):
        call_in_background(work, on_wait=give_up)
    go_on.set()
    assert ended.wait(20)
