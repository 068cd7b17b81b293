"""Counted keys beyond what memory is for: in memory up to a limit, in a SQLite file after that.

The file is a cache of what Kafka has: it has no name once it is open, nothing of it survives the
process, and nothing is written for durability's sake.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.core.errors import FatalError
from gateway.subselects.sets.entries import Entries, MemoryEntries, all_of, place_of

__all__ = ["DiskEntries", "SpillingEntries"]

_SETTINGS: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA temp_store = FILE",
    "CREATE TABLE entries (place INTEGER, key BLOB, count INTEGER, PRIMARY KEY (place, key))"
    " WITHOUT ROWID",
)
_CACHE_KB: Final = 16 << 10


class DiskEntries:
    """`Entries` in a file.

    Args:
        directory: Folder for the file.
        place: Function from a key to its place.

    Raises:
        FatalError: the file cannot be made.
    """

    def __init__(self, directory: Path, place: Callable[[bytes], int] = place_of) -> None:
        self._directory = directory
        self._place = place
        self._size = 0
        with tempfile.NamedTemporaryFile(
            dir=directory, prefix="pgsluice-set-", delete=False
        ) as file:
            path = Path(file.name)
        try:
            # One thread at a time has it; which one, may change between two attempts.
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for setting in (*_SETTINGS, f"PRAGMA cache_size = -{_CACHE_KB}"):
                self._database.execute(setting)
        except sqlite3.Error as error:
            raise self._failure(error) from None
        finally:
            path.unlink(missing_ok=True)

    def get(self, key: bytes) -> int:
        """Return how often a key occurs."""
        found = self._run(
            "SELECT count FROM entries WHERE place = ? AND key = ?", (self._place(key), key)
        )
        return int(found[0][0]) if found else 0

    def put(self, key: bytes, count: int) -> None:
        """Set how often a key occurs."""
        place = self._place(key)
        before = self.get(key)
        if count:
            self._run("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (place, key, count))
        elif before:
            self._run("DELETE FROM entries WHERE place = ? AND key = ?", (place, key))
        self._size += bool(count) - bool(before)

    def within(self, low: int, high: int) -> list[tuple[bytes, int]]:
        """Return the keys with places from `low` until before `high`, and their counts."""
        return self._run(
            "SELECT key, count FROM entries WHERE place >= ? AND place < ?", (low, high)
        )

    def clear(self) -> None:
        """Remove all keys."""
        self._run("DELETE FROM entries", ())
        self._size = 0

    def close(self) -> None:
        """Close the file, which gives its space back."""
        self._database.close()

    def __len__(self) -> int:
        return self._size

    def _run(self, statement: str, values: tuple[object, ...]) -> list[tuple[bytes, int]]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def _failure(self, error: sqlite3.Error) -> FatalError:
        return FatalError(
            f"values of a sub-select cannot be kept in a file in {self._directory}: {error}",
            hint="make room there, then start again: the set is read back from Kafka",
        )


class SpillingEntries:
    """`Entries` in memory until there are more than `limit`, and from then on in a file.

    Args:
        directory: Folder for the file.
        limit: Largest number of keys in memory.
        place: Function from a key to its place.
        bits: Number of leading bits of a place whose keys are kept together in memory.
    """

    def __init__(
        self,
        directory: Path,
        limit: int,
        place: Callable[[bytes], int] = place_of,
        *,
        bits: int | None = None,
    ) -> None:
        self._directory = directory
        self._limit = limit
        self._place = place
        self._bits = bits
        self._entries: Entries = self._in_memory()

    def get(self, key: bytes) -> int:
        """Return how often a key occurs."""
        return self._entries.get(key)

    def put(self, key: bytes, count: int) -> None:
        """Set how often a key occurs."""
        self._entries.put(key, count)
        if isinstance(self._entries, MemoryEntries) and len(self._entries) > self._limit:
            spilled = DiskEntries(self._directory, self._place)
            for each, number in all_of(self._entries):
                spilled.put(each, number)
            self._entries = spilled

    def within(self, low: int, high: int) -> list[tuple[bytes, int]]:
        """Return the keys with places from `low` until before `high`, and their counts."""
        return self._entries.within(low, high)

    def clear(self) -> None:
        """Remove all keys, and the file."""
        self._entries.close()
        self._entries = self._in_memory()

    def close(self) -> None:
        """Give the file back."""
        self._entries.close()

    def __len__(self) -> int:
        return len(self._entries)

    def _in_memory(self) -> MemoryEntries:
        if self._bits is None:
            return MemoryEntries(self._place)
        return MemoryEntries(self._place, bits=self._bits)
