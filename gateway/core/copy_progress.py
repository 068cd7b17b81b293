"""How far the copy of a table is: what is committed with the rows of each chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Key", "Progress"]

Key: TypeAlias = tuple[bytes, ...]
"""The text of each of a key's columns, in the order of the columns in the table."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy is.

    Attributes:
        copied: The last key of the last chunk; None before the first one, and where all of the
            table is one chunk.
        complete: Nothing is behind `copied` any more.
        again: Keys whose rows consumers may not have although their range is copied.
        rows: Read so far.
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
