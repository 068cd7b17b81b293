"""Spool of frames on disk: the only I/O of this package.

A spool is a file without a name (``O_TMPFILE``, or unlinked as soon as it is open), so the kernel
frees it with the process, however that dies: there are never leftovers to find, to clean up or to
mistake for one's own.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from gateway.core.errors import FatalError, GatewayError, TransientError
from gateway.core.shortage import SHORT

__all__ = ["CHUNK_BYTES", "CHUNK_FRAMES", "Spool", "SpoolFullError"]

CHUNK_FRAMES: Final = 1000
CHUNK_BYTES: Final = 1 << 20
"""Bounds of a chunk of frames: it ends with the frame that reaches one of them."""

_LENGTH: Final = Struct("=Q")  # a frame of 1 GB and more is possible, and never leaves this host
_WRITE_FRAMES: Final = 500  # two buffers each; the kernel takes 1024 in one call
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SpoolFullError(TransientError):
    """Raised without space, or a descriptor, for a spool; the caller still has the frames."""


class Spool:
    """An append-only file of length-prefixed frames in `directory`, or in the system's for None.

    Raises:
        SpoolFullError: no space, or no descriptor.
        FatalError: the file cannot be made, written or read for another reason.
    """

    __slots__ = ("_directory", "_end", "_file")

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._end = 0
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed("made", error) from error

    @property
    def size(self) -> int:
        """Number of bytes on disk."""
        return self._end

    def append(self, frames: Sequence[bytes]) -> None:
        """Append `frames`: all of them, or none when it fails."""
        end = self._end
        try:
            for first in range(0, len(frames), _WRITE_FRAMES):
                buffers: list[bytes] = []
                for frame in frames[first : first + _WRITE_FRAMES]:
                    buffers += (_LENGTH.pack(len(frame)), frame)
                end = self._write(buffers, end)
        except OSError as error:
            raise self._failed("written", error) from error
        self._end = end

    def chunks(self) -> Iterator[list[bytes]]:
        """Read everything back in order, a bounded number of frames at a time.

        Frames appended before the end is reached are read as well.
        """
        position = 0
        while position < self._end:
            try:
                chunk, position = self._chunk(position)
            except OSError as error:
                raise self._failed("read", error) from error
            yield chunk

    def close(self) -> None:
        """Free the space. A second call does nothing."""
        self._end = 0
        self._file.close()

    def _write(self, buffers: list[bytes], position: int) -> int:
        file = self._file.fileno()
        while buffers:
            written = os.pwritev(file, buffers, position)
            position += written
            if written == sum(map(len, buffers)):
                break
            # A disk that is nearly full takes a part; the next call then says why.
            while buffers and written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            if buffers:
                buffers[0] = buffers[0][written:]
        return position

    def _chunk(self, position: int) -> tuple[list[bytes], int]:
        file = self._file.fileno()
        stop = min(self._end, position + CHUNK_BYTES)
        data = os.pread(file, min(self._end - position, CHUNK_BYTES + _LENGTH.size), position)
        chunk: list[bytes] = []
        at = 0
        while position < stop and len(chunk) < CHUNK_FRAMES:
            if len(data) - at < _LENGTH.size:
                data, at = os.pread(file, _LENGTH.size, position), 0
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            if len(data) - at < length:
                data, at = os.pread(file, length, position + _LENGTH.size), 0
            chunk.append(data[at : at + length])
            at += length
            position += _LENGTH.size + length
        return chunk, position

    def _failed(self, verb: str, error: OSError) -> GatewayError:
        where = "the system's temporary directory" if self._directory is None else self._directory
        message = f"a spool file in {where} cannot be {verb}: {error.strerror or error}"
        if error.errno in SHORT:
            return SpoolFullError(
                message, hint="raise the limit: ulimit -n, or LimitNOFILE in the systemd unit"
            )
        if error.errno in _FULL:
            return SpoolFullError(
                message, hint="make room there, or name another gateway.spool_directory"
            )
        return FatalError(
            message,
            hint="give it write permission, or name another gateway.spool_directory; nothing is "
            "lost, the transaction is read again from the slot",
        )
