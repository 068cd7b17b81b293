"""Buffer of one transaction's frames, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gateway.pgoutput.frames import XLOGDATA_HEADER
from gateway.transactions.spool import CHUNK_BYTES, CHUNK_FRAMES, Spool

__all__ = ["FRAME_OVERHEAD", "FrameBuffer"]

FRAME_OVERHEAD: Final = 48
"""Bytes that a frame costs in memory beyond its payload: object header, allocator, list slot."""

_TAG: Final = XLOGDATA_HEADER
_XID: Final = slice(XLOGDATA_HEADER + 1, XLOGDATA_HEADER + 5)
_SCHEMA_TAGS: Final = b"RY"
_RELATION_TAG: Final = ord("R")


class FrameBuffer:
    """Frames in order, moved to disk on request.

    `Assembler.push` appends to `frames` and adds to `memory` itself: that is its hot path.

    Attributes:
        frames: The newest frames; older ones are in the spool.
        memory: Memory used by `frames` in bytes, including `FRAME_OVERHEAD`.
    """

    __slots__ = ("_aborted", "_spool", "_spooled_bytes", "_spooled_frames", "frames", "memory")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.memory = 0
        self._aborted: set[bytes] = set()
        self._spool: Spool | None = None
        self._spooled_frames = 0
        self._spooled_bytes = 0

    def __len__(self) -> int:
        """Return the number of frames received, those of aborted subtransactions included."""
        return self._spooled_frames + len(self.frames)

    @property
    def byte_size(self) -> int:
        """Bytes of the frames received, headers and aborted subtransactions included."""
        return self._spooled_bytes + self.memory - FRAME_OVERHEAD * len(self.frames)

    @property
    def spooled(self) -> int:
        """Bytes on disk."""
        return 0 if self._spool is None else self._spool.size

    def abort(self, subxid: int) -> None:
        """Skip the frames of `subxid` when reading. Streamed transactions only."""
        self._aborted.add(subxid.to_bytes(4, "big"))

    def spool(self, open_spool: Callable[[], Spool]) -> None:
        """Move the frames in memory to disk."""
        if self._spool is None:
            self._spool = open_spool()
        self._spool.append(self.frames)
        self._spooled_bytes = self.byte_size
        self._spooled_frames += len(self.frames)
        self.frames.clear()
        self.memory = 0

    def chunks(self) -> Iterator[list[bytes]]:
        """Yield the frames that survive, in order, in bounded lists that are never empty."""
        if (
            self._spool is None
            and not self._aborted
            and self.memory <= CHUNK_BYTES
            and len(self.frames) <= CHUNK_FRAMES
        ):
            return iter((self.frames,) if self.frames else ())  # as most transactions are
        return self._bounded()

    def _bounded(self) -> Iterator[list[bytes]]:
        for source in (self._spool.chunks() if self._spool else (), _in_chunks(self.frames)):
            for chunk in source:
                if kept := self._surviving(chunk) if self._aborted else chunk:
                    yield kept

    def relations(self) -> Iterator[bytes]:
        """Yield the Relation frames of `chunks`."""
        for chunk in self.chunks():
            yield from (frame for frame in chunk if frame[_TAG] == _RELATION_TAG)

    def release(self) -> None:
        """Free memory and disk. A second call does nothing."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None
        self.frames = []
        self.memory = 0

    def _surviving(self, chunk: list[bytes]) -> list[bytes]:
        # Relation and Type messages stay: the server remembers "schema sent" per top-level
        # transaction and not per subtransaction (set_schema_sent_in_streamed_txn in pgoutput.c), so
        # surviving changes may rely on what an aborted subtransaction announced. What it announced
        # in vain, because its DDL was rolled back with it, does no harm: the abort clears that
        # memory (pgoutput_stream_abort), and the relation is announced again before its next row.
        aborted = self._aborted
        return [
            frame for frame in chunk if frame[_XID] not in aborted or frame[_TAG] in _SCHEMA_TAGS
        ]


def _in_chunks(frames: list[bytes]) -> Iterator[list[bytes]]:
    for first in range(0, len(frames), CHUNK_FRAMES):
        chunk = frames[first : first + CHUNK_FRAMES]
        if sum(map(len, chunk)) <= CHUNK_BYTES:
            yield chunk
        else:
            yield from _by_bytes(chunk)


def _by_bytes(frames: list[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for frame in frames:
        chunk.append(frame)
        size += len(frame)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
