"""Reads of unsettled slices and keys: what is asked for, and how far each one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.copy import CopiedRow, Snapshot
from gateway.core.copy_progress import Key
from gateway.core.lsn import Lsn
from gateway.subselects.formula import Value
from gateway.subselects.moves.state import Slice

__all__ = ["MoveChunk", "MoveRequest", "SliceRead"]


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """Rows that are read next: those of some slices in the order of the key, or of some keys.

    Attributes:
        number: Number of the read; its chunks have the same one.
        columns: Columns of the slices; empty for a read by keys.
        values: Values of the slices.
        keys: Keys of the rows, for a read by keys.
        after: Key after which rows are wanted; None for the beginning.
        whole: Whether all rows are wanted at once, however many they are.
    """

    number: int
    columns: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    keys: tuple[Key, ...] = ()
    after: Key | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class MoveChunk:
    """Rows of a request, read under one snapshot.

    Attributes:
        request: Request that they answer.
        rows: Rows with all columns known.
        snapshot: Snapshot under which they were read.
        insert_lsn: The server's WAL insert position afterwards.
        end: Whether no row of the slices comes after them.
    """

    request: MoveRequest
    rows: Sequence[CopiedRow]
    snapshot: Snapshot
    insert_lsn: Lsn
    end: bool


class SliceRead:
    """A read of slices with the same columns, until its last chunk is placed.

    Attributes:
        request: Request for its next chunk.
        is_out: Whether that is being read, or waits to be placed.
        open: For each slice the subscriptions for which it is settled by this read; None until the
            first chunk is placed.
    """

    __slots__ = ("is_out", "open", "request")

    def __init__(self, request: MoveRequest) -> None:
        self.request = request
        self.is_out = True
        self.open: dict[Slice, set[str]] | None = None

    @property
    def slices(self) -> list[Slice]:
        """The slices."""
        return [Slice(self.request.columns, value) for value in self.request.values]

    @property
    def is_void(self) -> bool:
        """Whether it settles nothing any more."""
        return self.open is not None and not any(self.open.values())

    def void(self, slice_: Slice, subscription: str) -> bool:
        """Note that a slice is unsettled again; return whether rows of it are placed already."""
        found = None if self.open is None else self.open.get(slice_)
        if found is None or subscription not in found:
            return False
        found.discard(subscription)
        return True
