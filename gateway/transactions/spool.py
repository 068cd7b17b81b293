"""Frames on disk: the only I/O of this package.

A spool is a file without a name (``O_TMPFILE``, or unlinked as soon as it is open), so the kernel
frees it with the process, however that dies: there are never leftovers to find, to clean up or to
take for one's own. Spools of prepared transactions that must outlive the process are another class
with the same three methods; `Assembler` takes whatever its `open_spool` returns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final

from gateway.errors import FatalError

__all__ = ["CHUNK_BYTES", "CHUNK_FRAMES", "Spool"]

CHUNK_FRAMES: Final = 1000
CHUNK_BYTES: Final = 1 << 20
"""Bounds of a chunk of frames: it ends with the frame that reaches one of them."""

_LENGTH: Final = Struct("=Q")  # a frame of 1 GB and more is possible, and never leaves this host
_BUFFER_BYTES: Final = 1 << 18


class Spool:
    """An append-only file of length-prefixed frames in `directory`, or in the system's for None.

    Raises:
        FatalError: the file cannot be made, written or read (no space, no permission).
    """

    __slots__ = ("_directory", "_end", "_file")

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._end = 0
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=directory, buffering=_BUFFER_BYTES)  # noqa: SIM115
        except OSError as error:
            raise self._failed("made", error) from error

    def append(self, frames: Sequence[bytes]) -> None:
        """Write `frames` behind what is there."""
        try:
            self._file.seek(self._end)
            lengths = map(_LENGTH.pack, map(len, frames))
            self._file.writelines(chain.from_iterable(zip(lengths, frames, strict=True)))
            self._file.flush()  # no space is an error here, not one of some later read
            self._end = self._file.tell()
        except OSError as error:
            raise self._failed("written", error) from error

    def chunks(self) -> Iterator[list[bytes]]:
        """Read everything back in order, a bounded number of frames at a time."""
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

    def _chunk(self, position: int) -> tuple[list[bytes], int]:
        read = self._file.read
        self._file.seek(position)
        chunk: list[bytes] = []
        stop = min(self._end, position + CHUNK_BYTES)
        while position < stop and len(chunk) < CHUNK_FRAMES:
            (length,) = _LENGTH.unpack(read(_LENGTH.size))
            chunk.append(read(length))
            position += _LENGTH.size + length
        return chunk, position

    def _failed(self, verb: str, error: OSError) -> FatalError:
        where = "the system's temporary directory" if self._directory is None else self._directory
        return FatalError(
            f"a spool file in {where} cannot be {verb}: {error.strerror or error}",
            hint="give it space and write permission, or raise max_buffer_bytes; nothing is lost, "
            "the transaction is read again from the slot",
        )
