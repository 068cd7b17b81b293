"""Greatest keys of tables, so that batches of greater ones need not read the tables' files.

Keys mostly grow, and then the question whether a table has one of a batch's keys is answered by one
number. It is read from the table's statistics once, and kept up by what the job
writes; it may be too great, as deletes do not lower it, and never too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_consumer.formats.commit_metadata import Version
from spark_consumer.formats.protocol import Table

__all__ = ["Frontiers"]


@dataclass(frozen=True, slots=True)
class _Frontier:
    """Upper bounds of a table's values at a version, by column."""

    version: Version
    greatest: Mapping[str, int]


class Frontiers:
    """Greatest keys of tables, as far as known; sessions may share it."""

    def __init__(self) -> None:
        self._by_path: dict[str, _Frontier] = {}

    def is_beyond(self, table: Table, least: Mapping[str, int]) -> bool:
        """Whether a batch has no key of the table, because some column of its keys is greater.

        Args:
            table: Table at its newest version.
            least: Least value in the batch, by integer column of the key.
        """
        if not least:
            return False
        known = self._by_path.get(table.path)
        if known is None or known.version != table.version():
            known = _Frontier(table.version(), table.greatest(list(least)))
            self._by_path[table.path] = known
        return any(least[name] > most for name, most in known.greatest.items() if name in least)

    def follow(self, table: Table, before: Version, greatest: Mapping[str, int] | None) -> None:
        """Record a write.

        Args:
            table: Table after the write.
            before: Version before the write.
            greatest: Greatest written value, by column; None if not known.
        """
        known = self._by_path.pop(table.path, None)
        if known is None or greatest is None or known.version != before:
            return
        self._by_path[table.path] = _Frontier(
            table.version(),
            {n: max(most, greatest[n]) for n, most in known.greatest.items() if n in greatest},
        )
