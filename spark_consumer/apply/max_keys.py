"""The greatest keys of tables, so that a batch of greater ones need not look at the tables' files.

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
    """Greatest values by column, which the table has at most at a version."""

    version: Version
    greatest: Mapping[str, int]


class Frontiers:
    """What is known of tables; sessions may have it in common."""

    def __init__(self) -> None:
        self._by_path: dict[str, _Frontier] = {}

    def is_beyond(self, table: Table, least: Mapping[str, int]) -> bool:
        """Whether a batch has no key of the table, for a column of all its keys is greater.

        Args:
            table: as it is now.
            least: by integer column of the key, the least value of the batch.
        """
        if not least:
            return False
        known = self._by_path.get(table.path)
        if known is None or known.version != table.version():
            known = _Frontier(table.version(), table.greatest(list(least)))
            self._by_path[table.path] = known
        return any(least[name] > most for name, most in known.greatest.items() if name in least)

    def follow(self, table: Table, before: Version, greatest: Mapping[str, int] | None) -> None:
        """Take note of a write.

        Args:
            table: after it.
            before: its version before.
            greatest: by column, the greatest value that was written; None when not known.
        """
        known = self._by_path.pop(table.path, None)
        if known is None or greatest is None or known.version != before:
            return
        self._by_path[table.path] = _Frontier(
            table.version(),
            {n: max(most, greatest[n]) for n, most in known.greatest.items() if n in greatest},
        )
