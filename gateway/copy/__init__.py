"""Chunked copy of a table: which rows are published at which position of the stream. Pure.

A table is read in chunks, each in a short transaction of its own, while the stream goes on for
everybody. Nothing on the server lives longer than a chunk's transaction: no slot, no exported
snapshot. The copy is exact because a chunk's place in the stream is known:

    1. a chunk is read under a snapshot S (`Snapshot`); then, outside, H is the server's WAL insert
       position
    2. the chunk is placed between two transactions of the stream, at any position P >= H
    3. in its rows, the changes of all transactions before P that S does not see are made up for
       (`ChunkedCopy.place`); they go out as ``r`` records, "this is the row now", together with
the last key that is copied, in one Kafka transaction

Why the table is the source's, filtered, at every position from the one where the copy is ready.
Let R(P) be the source's rows at P, and C(P) what a consumer holds; a key is *settled* at P when
C(P) and R(P) agree about it.

Placed rows are R(P)'s. Every transaction that S sees has its commit record before H, because it was
written before S was taken; so S's rows are some of the transactions before P applied, and the
others are exactly those that the copy itself has been shown and S does not see. If two changes
concern one row, the second is made by a transaction that sees the first, so they may be applied
afterwards in commit order. Each names its row by the key it had (`bytes` of the key's text, which
stay the same until an UPDATE says otherwise), so no comparison of keys is ever made here, whatever
type or collation they have.

A settled key stays settled: consumers apply the stream's changes by the rule that an UPDATE or
DELETE of a row they do not have is skipped, and for a settled key that is what the row itself says.

All keys become settled. Chunks follow each other without a gap in the order of the key's index, so
a row that keeps its key is in the chunk of its range, or was inserted after the chunk's snapshot,
and the stream has it in full. Left over are rows that get their key from an UPDATE: consumers that
do not have the old row skip it. A chunk that has the row under its old key follows it, and one that
is placed after an UPDATE with all values has the row from there; any other such row's key is put
on a list (`Progress.again`) and read with a later chunk. The list may name too many, never too few:
a key comes on it with every UPDATE of a key that is published while not all rows are copied, or
that concerns a key on the list; and in the first chunk, which voids all before it, with every one
that the chunk does not know the row of. A key leaves the list when its row went out whole, when the
row is gone, or when a chunk whose snapshot sees the transaction that put it there has not found it.
Once all ranges are read and the list is empty, the copy is ready.

Changes published before this process began cannot be shown to the copy again. Therefore the first
chunk is read when all transactions have ended that ran when the stream was begun (the reader
waits for that): every snapshot from then on sees them. The same makes up for changes that
transactions made before a table was added to the publications.

Chunks may be read ahead, and several at once: where a range ends is asked for before it is read, so
that others can go on after it (`Front`). They are placed in the order of their ranges. The
snapshot of a later one may be older than that of an earlier one; so a change is kept for as long as
there is a chunk to be placed that may not see it.

A chunk may be placed in parts with the stream in between (`Chunk.split`): each is what a chunk of
its range would have been under the same snapshot; the last one has the keys that are read again.

A chunk may leave out rows that no subscription wants (`Chunk.skipped`). One of them that gets
another key is handled as any row that the chunk does not have. If more than the key decides what is
wanted (`Chunk.by_key`), a change that keeps the key can make a row wanted, too, and is handled in
the same way. This may publish a row of another range, too: it is the row as it is now.

If the server leaves out rows that no subscription wants (`gateway.rowfilter.server.pushdown`), the
stream is that of the other rows, and R(P) is limited to them as well. A change of the key
that brings such a row in comes as an INSERT; one that lacks unchanged values is read again.

A table without a key has no ranges, and consumers keep it as a multiset: it is one chunk, after
a ``t``. The price is one transaction that lasts as long as reading the table takes, the
table's rows in a spool file, and a stream that waits while they are published.
"""

from gateway.copy.chunked import Chunk, ChunkedCopy, ChunkRequest
from gateway.copy.front import Claim, Front
from gateway.copy.lines import CopiedRow, Row, row_of
from gateway.copy.snapshot import Snapshot
from gateway.core.copy_progress import Key, Progress

__all__ = [
    "Chunk",
    "ChunkRequest",
    "ChunkedCopy",
    "Claim",
    "CopiedRow",
    "Front",
    "Key",
    "Progress",
    "Row",
    "Snapshot",
    "row_of",
]
