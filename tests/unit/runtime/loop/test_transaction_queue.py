"""What waits to be routed: order, positions and memory."""

from __future__ import annotations

import pytest

from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import LogicalMessage
from gateway.runtime.loop.transaction_queue import TransactionQueue, end_of
from gateway.transactions import (
    Assembler,
    KeepaliveEvent,
    PreparedTransaction,
    RolledBack,
    StandaloneMessage,
)
from tests.support.gateway.pipeline_scene import FORMS, transaction


@pytest.fixture(params=FORMS)
def queue(request: pytest.FixtureRequest) -> TransactionQueue:
    """Transactions that end at 2010, 2510 and 3010, a message, a PREPARE and what undoes it."""
    queue = TransactionQueue()
    frames = [frame for lsn in (2000, 2500, 3000) for frame in transaction(lsn, lsn)]
    for event in Assembler(series=request.param).push(frames):
        assert not isinstance(event, KeepaliveEvent)
        queue.append(event)
    queue.append(StandaloneMessage(LogicalMessage(False, Lsn(3500), "p", b""), Lsn(3500)))
    queue.append(PreparedTransaction(9, "g", Lsn(3990), Lsn(4000), 0))
    queue.append(RolledBack(9, "g", Lsn(4000), Lsn(5000), 0, 0))
    return queue


def test_items_are_popped_in_order_and_free_their_memory(queue: TransactionQueue) -> None:
    assert len(queue) == 6
    memory, popped, positions = [queue.memory], [], []
    while queue:
        positions.append(queue.next_lsn)
        popped.append(end_of(queue.pop()))
        memory.append(queue.memory)

    assert positions == [2000, 2500, 3000, 3500, 3990, 4000]
    assert popped == [2010, 2510, 3010, 3501, 4000, 5000]
    assert memory == sorted(memory, reverse=True)
    assert memory[0] > 0
    assert (memory[-1], queue.next_lsn, queue.oldest) == (0, None, None)


@pytest.mark.parametrize(
    ("lsn", "kept"),
    [
        (9000, [2010, 2510, 3010, 3501, 4000, 5000]),
        (4999, [2010, 2510, 3010, 3501, 4000]),
        (3500, [2010, 2510, 3010]),
        (2510, [2010, 2510]),
        (2509, [2010]),
        (0, []),
    ],
)
def test_what_ends_after_an_lsn_can_be_dropped(
    queue: TransactionQueue, lsn: int, kept: list[int]
) -> None:
    assert queue.drop_after(Lsn(lsn)) is (len(kept) < 6)

    assert bool(queue.memory) is bool(kept)
    assert [end_of(queue.pop()) for _ in range(len(queue))] == kept
    assert (bool(queue), queue.memory) == (False, 0)
