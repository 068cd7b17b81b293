"""Ranges of a table that are being read, and the order in which their chunks are placed. Pure.

Several readers can work on one table. Each claims the next range; the others can claim the one
after it as soon as its last key is known. Chunks are placed in the order of their ranges, which
need not be that of their snapshots.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from gateway.copy.chunked import Chunk, ChunkRequest
from gateway.copy.snapshot import Snapshot
from gateway.core.copy_progress import Key

__all__ = ["Claim", "Front"]


@dataclass(slots=True, eq=False)
class Claim:
    """A range that a reader reads or has read.

    Attributes:
        floor: Snapshot that sees nothing which that of the range does not see; None if not known.
        settled: Whether the end of the range is known.
        chunk: The chunk, once it has been read.
    """

    request: ChunkRequest
    floor: Snapshot | None
    settled: bool = False
    chunk: Chunk | None = None


class Front:
    """The ranges of one table, from the one that is placed next. Not thread-safe.

    Args:
        request: Request for the first chunk.
    """

    def __init__(self, request: ChunkRequest) -> None:
        self._request = request
        self._claims: deque[Claim] = deque()
        self._newest: Snapshot | None = None
        self._closed = False

    @property
    def outstanding(self) -> int:
        """Number of ranges that are claimed and not placed."""
        return len(self._claims)

    @property
    def waiting(self) -> int:
        """Number of these that have been read."""
        return sum(claim.chunk is not None for claim in self._claims)

    @property
    def is_closed(self) -> bool:
        """Whether it was abandoned."""
        return self._closed

    @property
    def has_more(self) -> bool:
        """Whether there are ranges that nobody has claimed."""
        return self._request.ranged and not self._closed

    @property
    def due(self) -> Chunk | None:
        """The chunk that is placed next, if it has been read."""
        return self._claims[0].chunk if self._claims else None

    def claim(self) -> Claim | None:
        """Claim the next range; None if another one has to be settled or placed first."""
        if self._closed or not (self._request.ranged or not self._claims):
            return None
        if self._claims and not self._claims[-1].settled:
            return None
        asked = {key for claim in self._claims for key in claim.request.again}
        again = tuple([key for key in self._request.again if key not in asked])
        claim = Claim(replace(self._request, again=again), self._newest)
        self._claims.append(claim)
        return claim

    def settle(self, claim: Claim, last: Key | None, end: bool) -> None:
        """Let others claim the range after `last`; at the `end` there is none."""
        claim.settled = True
        after = self._request.after if last is None else last
        self._request = replace(self._request, ranged=not end, after=after)

    def release(self, claim: Claim) -> None:
        """Withdraw a claim that is not settled."""
        assert not claim.settled
        if claim in self._claims:
            self._claims.remove(claim)

    def read(self, claim: Claim, chunk: Chunk) -> bool:
        """Note the chunk of a claim; return whether it is the one that is placed next."""
        claim.chunk = chunk
        self._newest = chunk.snapshot
        if not claim.settled:
            self.settle(claim, chunk.last, chunk.end)
        return bool(self._claims) and self._claims[0] is claim

    def keep_rest(self, rest: Chunk) -> None:
        """Replace the chunk that is placed next by its `rest`."""
        self._claims[0].chunk = rest

    def go_on(self, request: ChunkRequest, *, whole: bool) -> bool:
        """Note that a chunk was placed, and return whether the next one has been read.

        Args:
            request: Current value of `ChunkedCopy.request`.
            whole: Whether no rest of it is left.
        """
        if whole and self._claims:
            self._claims.popleft()
        if self._claims:
            self._request = replace(self._request, again=request.again)
        else:
            self._request = request
        return self.due is not None

    def floor(self, snapshot: Snapshot) -> Snapshot | None:
        """Return a snapshot whose transactions all chunks still to be placed see; None if unknown.

        Args:
            snapshot: A snapshot whose transactions everything read from now on sees.
        """
        return self._claims[0].floor if self._claims else snapshot

    def abandon(self, claim: Claim | None = None) -> None:
        """Refuse further claims, and drop a claim with all after it."""
        self._closed = True
        while claim is not None and claim in self._claims:
            self._claims.pop()

    def end(self) -> None:
        """Refuse further claims, and drop all."""
        self._closed = True
        self._claims.clear()
