"""Copy of one table in chunks; the proof is in the package's docstring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from gateway.copy.lines import CopiedRow, Row, row_of
from gateway.copy.snapshot import Snapshot
from gateway.copy.unseen import Change, Op, UnseenChanges
from gateway.core.copy_progress import Key, Progress
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import UNCHANGED, ColumnValue

__all__ = ["Chunk", "ChunkRequest", "ChunkedCopy"]


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Request for the chunk that is read next.

    Attributes:
        ranged: Whether rows after `after` are wanted; otherwise only those of `again`.
        after: Key after which the range begins; None for the beginning of the table.
        again: Keys whose rows are wanted as well.
        last: Last key of the range; None if not known.
        rows: Number of rows until that key, as far as known.
    """

    ranged: bool
    after: Key | None
    again: tuple[Key, ...]
    last: Key | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one range, read under one snapshot.

    Attributes:
        rows: Rows with all columns known; can be iterated twice. Those of the range come first, in
            the order of the key's index; then those of the keys that are read again.
        snapshot: Snapshot under which they were read.
        insert_lsn: The server's WAL insert position afterwards.
        last: The greatest key of the range; None when `rows` has none of it.
        end: Whether the table has nothing after it; false where the request names the last key.
        size: Number of rows of the range among `rows`.
        skipped: Number of rows of the range that are left out, because no subscription wants them.
        by_key: Whether the key alone decides which rows are left out.
    """

    request: ChunkRequest
    rows: Iterable[CopiedRow]
    snapshot: Snapshot
    insert_lsn: Lsn
    last: Key | None
    end: bool
    size: int
    skipped: int = 0
    by_key: bool = True

    def split(self, rows: int, key: Sequence[int]) -> tuple[Chunk, Chunk] | None:
        """Split it into two chunks, to be placed one after the other; None if it stays whole.

        The stream may go on between them: each is what a chunk of that range would have been under
        the same snapshot.

        Args:
            rows: Number of rows of the first of the two.
            key: Positions of the key's columns in a row.
        """
        if not self.request.ranged or not 0 < rows < self.size or not isinstance(self.rows, list):
            return None
        last = UnseenChanges(key).key_of_copied(self.rows[rows - 1])
        first = replace(
            self,
            request=replace(self.request, again=()),
            rows=self.rows[:rows],
            last=last,
            end=False,
            size=rows,
            skipped=0,
        )
        rest = replace(
            self,
            request=replace(self.request, after=last),
            rows=self.rows[rows:],
            size=self.size - rows,
        )
        return first, rest


class ChunkedCopy:
    """The copy of one table for subscriptions with the same progress. Not thread-safe.

    It is shown every change of the table that is published, in order, and every chunk. All rows
    have the columns of the chunks, in their order; an old row that is not known in full has at
    least the key's.

    Args:
        key: Positions of the key's columns in a row; empty for a table without one.
        progress: Progress that was committed last.
    """

    def __init__(self, key: Sequence[int], progress: Progress) -> None:
        self._key = tuple(key)
        self._unseen = UnseenChanges(key)
        self._copied = progress.copied
        self._complete = progress.complete
        self._rows = progress.rows
        # With the transaction that put it there; None: one that every snapshot sees.
        self._again: dict[Key, int | None] = dict.fromkeys(progress.again)
        self._rewritten: list[int] = []

    @property
    def progress(self) -> Progress:
        """Progress, to be committed with everything that has been published so far."""
        return Progress(self._copied, self._complete, tuple(self._again), self._rows)

    @property
    def started(self) -> bool:
        """Whether a chunk has been placed."""
        return self._complete or self._copied is not None

    def request(self) -> ChunkRequest:
        """Return what to read next once everything read is placed; see `gateway.copy.front`."""
        return ChunkRequest(not self._complete, self._copied, tuple(self._again))

    # Changes of the stream

    def insert(self, xid: int, new: Row) -> None:
        """Apply an INSERT of the source's transaction `xid`.

        One that lacks values is an UPDATE of the key, changed by the server's filter: no
        subscription wants the old row, which is not known.
        """
        if self._key and UNCHANGED in new:
            self._note(xid, Change(Op.MOVE, (), new))
            if self.started and not self._complete:
                self._again[self.key_of(new)] = xid
            return
        self._note(xid, Change(Op.PUT, (), new))
        if self._again:
            self._again.pop(self.key_of(new), None)

    def update(self, xid: int, old: Row | None, new: Row) -> None:
        """Apply an UPDATE; without an old row the key is the same."""
        if not self._key:
            self._note(xid, Change(Op.MOVE, () if old is None else old, new))
            return
        if old is None or (before := self.key_of(old)) == (after := self.key_of(new)):
            self._note(xid, Change(Op.SET, (), new))
            return
        self._note(xid, Change(Op.MOVE, old, new))
        wanted = before in self._again
        self._again.pop(before, None)
        if wanted or (self.started and not self._complete):
            self._again[after] = xid

    def delete(self, xid: int, old: Row) -> None:
        """Apply a DELETE."""
        self._note(xid, Change(Op.DELETE, old, ()))
        if self._again:
            self._again.pop(self.key_of(old), None)

    def truncate(self, xid: int) -> None:
        """Apply a TRUNCATE of the whole table."""
        self._note(xid, Change(Op.TRUNCATE, (), ()))
        self._again.clear()

    def rewrite(self, xid: int) -> bool:
        """Apply an ALTER TABLE that rewrote the table.

        Returns:
            Whether the copy can go on, because nothing is placed yet; `lacks_rewrite` says which
            chunks cannot be placed.
        """
        if not self.started:
            self._rewritten.append(xid)
        return not self.started

    # Chunks

    def lacks_rewrite(self, chunk: Chunk) -> bool:
        """Whether the rows of a chunk may be from before a `rewrite`."""
        return not all(chunk.snapshot.sees(xid) for xid in self._rewritten)

    @property
    def has_unseen(self) -> bool:
        """Whether there are changes to forget."""
        return bool(self._unseen)

    def forget(self, snapshot: Snapshot) -> None:
        """Drop the changes that all chunks still to be placed see."""
        self._unseen.forget([snapshot])

    def place(self, chunk: Chunk) -> Iterable[CopiedRow]:
        """Place a chunk after everything published so far, at or after its `insert_lsn`.

        Chunks are placed in the order of their ranges, whatever their snapshots.

        Returns:
            The rows to publish, as they are at this position. Exhaust it before anything else.
        """
        unseen = self._unseen.unseen_by(chunk.snapshot)
        self._rows += chunk.size + chunk.skipped
        if not self._key:
            self._complete = True
            return _bag(chunk.rows, [change for _, changes in unseen for change in changes])
        rows: Iterable[CopiedRow] = chunk.rows
        asked = [key for key in chunk.request.again if key in self._again]
        if unseen or asked:
            concerned = {*chunk.request.again, *self._again}
            others, known = self._unseen.separate(chunk.rows, unseen, concerned)
            moved = self._unseen.make_up_for(known, unseen, all_known=chunk.by_key)
            self._again |= {key: row.xid for key, row in moved.items()}
            for key in asked:
                xid = self._again.get(key)
                if key not in moved and (xid is None or chunk.snapshot.sees(xid)):
                    self._again.pop(key, None)
            for key in list(self._again):
                if key in known:
                    del self._again[key]
            rows = chain(others, known.values())
        if chunk.request.ranged:
            self._copied = self._copied if chunk.last is None else chunk.last
            self._complete = chunk.end
        return rows

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return self._unseen.key_of(row)

    def _note(self, xid: int, change: Change) -> None:
        self._unseen.note(xid, change)


def _bag(rows: Iterable[CopiedRow], changes: Iterable[Change]) -> Iterator[CopiedRow]:
    """Yield the rows of a table without a key, brought to the present; equal rows are the same."""
    extra: Counter[tuple[ColumnValue, ...]] = Counter()
    void = False
    for op, old, new in changes:
        if op is Op.TRUNCATE:
            void = True
            extra.clear()
        if op in (Op.MOVE, Op.DELETE) and old:
            extra[tuple(old)] -= 1
        if op in (Op.MOVE, Op.PUT):
            extra[tuple(new)] += 1
    if not void:
        for row in rows:
            if extra and extra[same := tuple(row_of(row))] < 0:
                extra[same] += 1
            else:
                yield row
    for same, count in extra.items():
        for _ in range(count):
            yield same
