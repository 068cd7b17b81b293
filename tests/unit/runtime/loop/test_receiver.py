"""The stream is read on and answered; nothing is lost or reordered on the way."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.core.errors import FatalError, GatewayError, TransientError
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import Insert
from gateway.runtime.loop.disk_queue import DiskQueue
from gateway.runtime.loop.receiver import Receiver
from tests.support.gateway.fakes import FakeSource, ManualClock
from tests.support.models.pgoutput_encode import keepalive, xlogdata
from tests.support.run.waiting import wait_until


def row(number: int, size: int = 1) -> bytes:
    return xlogdata(Insert(1, (b"x" * size,)), wal_start=number)


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Have the kernel refuse what would make a file larger, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def everything(receiver: Receiver) -> list[bytes]:
    found: list[bytes] = []
    while frames := receiver.receive():
        found += frames
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_what_was_spooled_comes_before_what_comes_later(clock: ManualClock, tmp_path: Path) -> None:
    first, second, third = [row(1), row(2)], [row(3)], [row(4)]
    with Receiver(
        FakeSource([first, second, third]), spool_directory=tmp_path, clock=clock
    ) as receiver:
        assert receiver.spool() == 2
        assert receiver.spool() == 1

        assert everything(receiver) == [*first, *second, *third]
        assert not receiver.waiting


def test_what_is_on_disk_is_taken_before_more_goes_there(
    clock: ManualClock, tmp_path: Path
) -> None:
    source = FakeSource([[row(number)] for number in range(1, 6)])
    with Receiver(source, spool_directory=tmp_path, clock=clock) as receiver:
        receiver.spool()
        assert receiver.receive() == [row(1)]
        assert receiver.receive() == [row(2)]
        assert not receiver.waiting

        receiver.spool()
        clock.advance(1)
        # A look at the socket, where a server that stops is heard.
        assert receiver.receive() == [row(3), row(4)]
        assert receiver.receive() == [row(5)]


def test_a_moment_without_room_is_none_in_which_anything_goes_to_disk(
    clock: ManualClock, tmp_path: Path
) -> None:
    source = FakeSource([[row(number)] for number in range(1, 5)])
    with Receiver(source, spool_directory=tmp_path, clock=clock) as receiver:
        assert receiver.receive() == [row(1)]
        receiver.defer()
        assert (receiver.spooled, receiver.reads) == (0, False)

        clock.advance(1)
        receiver.defer()
        assert (receiver.spooled > 0, receiver.reads) == (True, True)

        assert receiver.receive() == [row(2)]
        receiver.defer()
        assert not receiver.reads
        assert receiver.receive() == [row(3)]
        assert receiver.reads


def test_a_question_is_answered_when_it_arrives_and_not_again_later(clock: ManualClock) -> None:
    source = FakeSource([[row(1), keepalive(50, reply_requested=True)]])
    with Receiver(source, clock=clock) as receiver:
        receiver.send_feedback(Lsn(7))
        receiver.spool()

        assert source.feedback == [7, 7]
        assert everything(receiver) == [row(1), keepalive(50, reply_requested=False)]


def test_a_server_that_insists_is_let_go_while_frames_are_spooled(clock: ManualClock) -> None:
    class Insisting(FakeSource):
        def receive(self, limit: int) -> Sequence[bytes]:
            clock.advance(0.05)
            return [keepalive(50, reply_requested=True)]

    with (
        Receiver(Insisting([]), clock=clock) as receiver,
        pytest.raises(TransientError, match="server is stopping"),
    ):
        for _ in range(200):
            receiver.spool()


def test_a_full_disk_pauses_reading_and_loses_nothing(clock: ManualClock, tmp_path: Path) -> None:
    turns = [[row(n, 500)] for n in range(1, 6)]
    with Receiver(FakeSource(turns), spool_directory=tmp_path, clock=clock) as receiver:
        receiver.spool()
        with no_file_above(800):
            assert receiver.spool() == 1  # taken from the socket, kept in memory
            for _ in range(3):
                clock.advance(2)
                assert receiver.spool() == 0
            receiver.send_feedback(Lsn(7))

        clock.advance(2)
        assert receiver.spool() == 1
        assert everything(receiver) == [frame for turn in turns for frame in turn]


def test_a_full_disk_does_not_keep_what_is_there_from_being_taken(
    clock: ManualClock, tmp_path: Path
) -> None:
    turns = [[row(n, 500)] for n in range(1, 6)]
    source = FakeSource(turns)
    with Receiver(source, spool_directory=tmp_path, clock=clock) as receiver, no_file_above(800):
        receiver.spool()
        receiver.spool()

        assert everything(receiver) == [frame for turn in turns for frame in turn]


def test_a_thread_reads_and_answers_while_the_loop_is_elsewhere() -> None:
    source = FakeSource([[row(1)], [keepalive(50, reply_requested=True)], [row(2)]])
    with Receiver(source, feedback_interval_s=0.01) as receiver:
        with receiver.answering():
            wait_until(lambda: len(source.feedback) > 3, 60, "feedback from the thread")

        assert [f for f in everything(receiver) if f[:1] == b"w"] == [row(1), row(2)]


def test_what_goes_wrong_meanwhile_is_raised_at_the_end_of_the_block() -> None:
    closed: list[bool] = []

    class Broken(FakeSource):
        def receive(self, limit: int) -> Sequence[bytes]:
            raise TransientError("the connection is gone")

        def close(self) -> None:
            closed.append(True)

    source = Broken([])
    receiver = Receiver(source)
    with pytest.raises(TransientError, match="the connection is gone"), receiver.answering():
        wait_until(lambda: bool(closed), 60, "the connection to be closed at once")
    FakeSource.close(source)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (FatalError("the server decodes without a publication"), "decodes without a publication"),
        (TransientError("the connection is gone"), "the slot was lost"),
    ],
)
def test_a_fatal_failure_meanwhile_is_the_cause_of_a_transient_one_of_the_block(
    failure: GatewayError, raised: str
) -> None:
    closed: list[bool] = []

    class Broken(FakeSource):
        def receive(self, limit: int) -> Sequence[bytes]:
            raise failure

        def close(self) -> None:
            closed.append(True)

    def fail() -> None:
        wait_until(lambda: bool(closed), 60, "the connection to be closed at once")
        raise TransientError("the slot was lost")

    source = Broken([])
    receiver = Receiver(source)
    with pytest.raises(GatewayError, match=raised), receiver.answering():
        fail()
    FakeSource.close(source)


def test_a_reason_that_was_read_with_the_last_frames_is_the_cause_of_a_failure_of_the_block(
    tmp_path: Path,
) -> None:
    given: list[bytes] = []

    class Ended(FakeSource):
        """Has nothing to be waited for: frames and reason are in the client's buffer."""

        def receive(self, limit: int) -> Sequence[bytes]:
            if given:
                raise FatalError("the server decodes without a publication")
            os.read(self._reader, 1)
            given.append(row(1))
            return given

    def fail() -> None:
        wait_until(lambda: bool(given), 60, "the last frames to be read")
        raise TransientError("the slot was lost")

    with (
        Receiver(Ended([]), spool_directory=tmp_path) as receiver,
        pytest.raises(GatewayError, match="decodes without a publication"),
        receiver.answering(),
    ):
        fail()


def test_a_backlog_frees_each_segment_as_it_is_read(tmp_path: Path) -> None:
    disk_queue = DiskQueue(tmp_path, segment_bytes=1000)
    frames = [row(n, 300) for n in range(1, 31)]
    for first in range(0, 30, 3):
        disk_queue.append(frames[first : first + 3])
    whole = disk_queue.size

    taken = disk_queue.pop()
    while disk_queue.size > whole / 2:
        taken += disk_queue.pop()
    assert taken == frames[: len(taken)]
    assert len(taken) < 30

    while chunk := disk_queue.pop():
        taken += chunk
    assert taken == frames
    assert not disk_queue
    disk_queue.close()


def test_a_backlog_is_read_to_what_was_added_last(tmp_path: Path) -> None:
    disk_queue = DiskQueue(tmp_path)
    disk_queue.append([row(1)])
    assert disk_queue.pop() == [row(1)]
    disk_queue.append([row(2)])
    assert disk_queue.pop() == [row(2)]
    assert disk_queue.pop() == []
    disk_queue.append([row(3)])
    assert disk_queue.pop() == [row(3)]
    disk_queue.close()
