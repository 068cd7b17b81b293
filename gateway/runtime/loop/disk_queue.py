"""Queue on disk of frames for which the loop has no room, in the order of the stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gateway.transactions.spool import Spool

__all__ = ["DiskQueue"]

_SEGMENT_BYTES: Final = 64 << 20


class DiskQueue:
    """First in, first out, in segments that are freed as soon as they are read.

    Args:
        directory: Directory of the files; None for the system's temporary directory.
    """

    def __init__(self, directory: Path | None, *, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: deque[Spool] = deque()
        self._reading: Iterator[list[bytes]] | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to pop."""
        return bool(self._segments)

    @property
    def size(self) -> int:
        """Bytes on disk, including those of the first segment that have been read."""
        return sum(segment.size for segment in self._segments)

    def append(self, frames: Sequence[bytes]) -> None:
        """Add `frames` at the end: all of them, or none when it fails.

        Raises:
            SpoolFullError: no space.
            FatalError: the file cannot be made or written.
        """
        if not frames:
            return
        if self._segments and self._segments[-1].size < self._segment_bytes:
            self._segments[-1].append(frames)
            return
        segment = Spool(self._directory)
        try:
            segment.append(frames)
        except BaseException:
            segment.close()
            raise
        self._segments.append(segment)

    def pop(self) -> list[bytes]:
        """Remove and return the next frames, a bounded number of them; empty when there are none.

        Raises:
            FatalError: the file cannot be read.
        """
        while self._segments:
            if self._reading is None:
                self._reading = self._segments[0].chunks()
            if (chunk := next(self._reading, None)) is not None:
                return chunk
            self._reading = None
            self._segments.popleft().close()
        return []

    def close(self) -> None:
        """Free the space."""
        self._reading = None
        while self._segments:
            self._segments.pop().close()
