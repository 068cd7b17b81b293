"""Spool of rows on disk, in the order in which they were read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Self

from spark_consumer.verify.text import Row

__all__ = ["Spool"]


class Spool:
    """Rows in a temporary file, which is removed when the block ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115  closed on leaving

    def append(self, row: Row) -> None:
        """Add a row."""
        self._file.write(json.dumps(row))
        self._file.write("\n")

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows; no rows may be added meanwhile."""
        self._file.seek(0)
        for line in self._file:
            yield tuple(json.loads(line))

    def clear(self) -> None:
        """Remove all rows."""
        self._file.seek(0)
        self._file.truncate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
