"""ALTER TABLE gives the rows of a table other values while it is copied."""

from __future__ import annotations

from gateway.copy import Chunk, ChunkedCopy, Progress, Snapshot
from gateway.core.lsn import Lsn

REWRITE = 7


def chunk_of(copy: ChunkedCopy, snapshot: str) -> Chunk:
    return Chunk(
        copy.request(), [b"1\tone\n"], Snapshot.parse(snapshot), Lsn(10), (b"1",), False, 1
    )


def test_what_is_read_later_can_be_placed() -> None:
    copy = ChunkedCopy([0], Progress())

    assert copy.rewrite(REWRITE)
    assert copy.lacks_rewrite(chunk_of(copy, "7:7:"))
    assert copy.lacks_rewrite(chunk_of(copy, "7:9:7"))
    assert not copy.lacks_rewrite(chunk_of(copy, "8:8:"))


def test_a_copy_that_has_begun_cannot_go_on() -> None:
    copy = ChunkedCopy([0], Progress())
    list(copy.place(chunk_of(copy, "7:7:")))

    assert not copy.rewrite(REWRITE)
