"""Counted keys beyond what memory is for: in memory up to a limit, in one SQLite file after that.

All stores of a gateway share the limit: when together they have more keys than it allows, the
largest one that is in memory is moved to the file. The file is a cache of what Kafka has: it has no
name once it is open, nothing of it survives the process, and nothing is written for durability's
sake.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.core.errors import FatalError
from gateway.subselects.sets.entries import Entries, MemoryEntries, all_of, place_of

__all__ = ["DiskEntries", "SpillingEntries", "SpillingStores"]

_SETTINGS: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA temp_store = FILE",
    "CREATE TABLE entries (store INTEGER, place INTEGER, key BLOB, count INTEGER,"
    " PRIMARY KEY (store, place, key)) WITHOUT ROWID",
    # It is never committed: pages are written when the cache needs their room.
    "BEGIN EXCLUSIVE",
)
_CACHE_KB: Final = 64 << 10


class _File:
    """The file of all stores."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with tempfile.NamedTemporaryFile(
            dir=directory, prefix="pgsluice-set-", delete=False
        ) as file:
            path = Path(file.name)
        try:
            # One thread at a time has it; which one, may change between two attempts.
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for setting in (f"PRAGMA cache_size = -{_CACHE_KB}", *_SETTINGS):
                self._database.execute(setting)
        except sqlite3.Error as error:
            raise self._failure(error) from None
        finally:
            path.unlink(missing_ok=True)

    def rows(self, statement: str, *values: object) -> list[tuple[bytes, int]]:
        """Run a query; return its rows."""
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def change(self, statement: str, *values: object) -> int:
        """Run a statement; return how many rows it has changed."""
        try:
            return self._database.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """Close the file, which gives its space back."""
        self._database.close()

    def _failure(self, error: sqlite3.Error) -> FatalError:
        return FatalError(
            f"values of a sub-select cannot be kept in a file in {self._directory}: {error}",
            hint="make room there, then start again: the set is read back from Kafka",
        )


class DiskEntries:
    """`Entries` in the file.

    Args:
        file: The file of all stores.
        store: Number of this one.
        place: Function from a key to its place.
    """

    def __init__(self, file: _File, store: int, place: Callable[[bytes], int]) -> None:
        self._file = file
        self._store = store
        self._place = place
        self._size = 0

    def get(self, key: bytes) -> int:
        """Return how often a key occurs."""
        found = self._file.rows(
            "SELECT count FROM entries WHERE store = ? AND place = ? AND key = ?",
            *(self._store, self._place(key), key),
        )
        return int(found[0][0]) if found else 0

    def put(self, key: bytes, count: int) -> None:
        """Set how often a key occurs."""
        place = self._place(key)
        if not count:
            self._size -= self._file.change(
                "DELETE FROM entries WHERE store = ? AND place = ? AND key = ?",
                *(self._store, place, key),
            )
        elif self._file.change(
            "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)", self._store, place, key, count
        ):
            self._size += 1
        else:
            self._file.change(
                "UPDATE entries SET count = ? WHERE store = ? AND place = ? AND key = ?",
                *(count, self._store, place, key),
            )

    def within(self, low: int, high: int) -> list[tuple[bytes, int]]:
        """Return the keys with places from `low` until before `high`, and their counts."""
        return self._file.rows(
            "SELECT key, count FROM entries WHERE store = ? AND place >= ? AND place < ?",
            *(self._store, low, high),
        )

    def clear(self) -> None:
        """Remove all keys."""
        self._file.change("DELETE FROM entries WHERE store = ?", self._store)
        self._size = 0

    def close(self) -> None:
        """Remove all keys: the file is that of other stores, too."""
        self.clear()

    def __len__(self) -> int:
        return self._size


class SpillingStores:
    """Stores that share a limit of keys in memory, and a file for those beyond it.

    Args:
        directory: Folder for the file.
        limit: Largest number of keys in memory.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._stores: dict[int, SpillingEntries] = {}
        self._next = 0
        self._file: _File | None = None
        self.in_memory = 0

    def make(
        self, place: Callable[[bytes], int] = place_of, bits: int | None = None
    ) -> SpillingEntries:
        """Make a store, given the function from a key to its place, and the bits together."""
        self._next += 1
        made = self._stores[self._next] = SpillingEntries(self, self._next, place, bits=bits)
        return made

    def note(self, keys: int) -> None:
        """Note that memory has `keys` keys more.

        Raises:
            FatalError: the file cannot be made or written.
        """
        self.in_memory += keys
        if keys > 0 and self.in_memory > self._limit:
            largest = max(self._stores.values(), key=lambda each: each.in_memory)
            if self._file is None:
                self._file = _File(self._directory)
            largest.spill(self._file)

    def release(self, number: int) -> None:
        """Note that a store is closed; the file is closed with the last one."""
        self._stores.pop(number, None)
        if not self._stores and self._file is not None:
            self._file.close()
            self._file = None


class SpillingEntries:
    """`Entries` in memory until `SpillingStores` moves them to the file.

    Args:
        stores: All stores.
        number: Number of this one.
        place: Function from a key to its place.
        bits: Number of leading bits of a place whose keys are kept together in memory.
    """

    def __init__(
        self,
        stores: SpillingStores,
        number: int,
        place: Callable[[bytes], int] = place_of,
        *,
        bits: int | None = None,
    ) -> None:
        self._stores = stores
        self._number = number
        self._place = place
        self._bits = bits
        self._entries: Entries = self._made()
        self._is_in_memory = True

    @property
    def in_memory(self) -> int:
        """Number of its keys in memory."""
        return len(self._entries) if self._is_in_memory else 0

    def get(self, key: bytes) -> int:
        """Return how often a key occurs."""
        return self._entries.get(key)

    def put(self, key: bytes, count: int) -> None:
        """Set how often a key occurs."""
        before = len(self._entries)
        self._entries.put(key, count)
        if self._is_in_memory and (more := len(self._entries) - before):
            self._stores.note(more)

    def spill(self, file: _File) -> None:
        """Move all keys to the file."""
        spilled = DiskEntries(file, self._number, self._place)
        for key, count in all_of(self._entries):
            spilled.put(key, count)
        self._stores.note(-len(self._entries))
        self._entries, self._is_in_memory = spilled, False

    def within(self, low: int, high: int) -> list[tuple[bytes, int]]:
        """Return the keys with places from `low` until before `high`, and their counts."""
        return self._entries.within(low, high)

    def clear(self) -> None:
        """Remove all keys, in the file, too."""
        self._stores.note(-self.in_memory)
        self._entries.close()
        self._entries, self._is_in_memory = self._made(), True

    def close(self) -> None:
        """Give back what it has in memory and in the file."""
        self.clear()
        self._stores.release(self._number)

    def __len__(self) -> int:
        return len(self._entries)

    def _made(self) -> MemoryEntries:
        if self._bits is None:
            return MemoryEntries(self._place)
        return MemoryEntries(self._place, bits=self._bits)
