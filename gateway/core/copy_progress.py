"""Progress of a table's copy, committed with the rows of each chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Key", "Progress"]

Key: TypeAlias = tuple[bytes, ...]
"""Text of each key column, in the order of the columns in the table."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a copy.

    Attributes:
        copied: Last key of the last chunk; None before the first one, and if the whole table is one
            chunk.
        complete: Whether no rows are left after `copied`.
        again: Keys whose rows consumers may lack although their range has been copied.
        rows: Number of rows read so far.
    """

    copied: Key | None = None
    complete: bool = False
    again: tuple[Key, ...] = ()
    rows: int = 0

    @property
    def started(self) -> bool:
        """Whether a chunk has been published."""
        return self.complete or self.copied is not None

    @property
    def ready(self) -> bool:
        """Whether consumers have the whole table."""
        return self.complete and not self.again
